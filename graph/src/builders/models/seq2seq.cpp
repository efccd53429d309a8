#include <fmt/format.h>

#include "builders/emit/ops.hpp"
#include "config_checks.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "recurrent_parts.hpp"

namespace perfmodel {
namespace {

Result<void> check(const Seq2seqConfig& config) {
  const auto sizes = all_good({expect_at_least("source vocabulary", 1, config.source_vocabulary),
                               expect_at_least("target vocabulary", 1, config.target_vocabulary),
                               expect_at_least("embedding", 1, config.embedding),
                               expect_at_least("hidden", 1, config.hidden),
                               expect_at_least("attention", 1, config.attention),
                               expect_layers("encoder layers", config.encoder_layers),
                               expect_layers("decoder layers", config.decoder_layers),
                               expect_at_least("batch", 1, config.batch),
                               expect_at_least("source steps", 1, config.source_steps),
                               expect_at_least("target steps", 1, config.target_steps),
                               expect_probability("dropout", config.dropout)});
  if (!sizes) return sizes;
  if (config.decoder_form == RecurrentForm::kLibrary) {
    return fail(ErrorCode::kImpossible,
                "decoder: expected cells or unfused cells (a step needs the attention of the step "
                "before), found a library call");
  }
  if (config.bidirectional && config.encoder_form != RecurrentForm::kLibrary) {
    return fail(ErrorCode::kImpossible,
                "encoder: expected a library call for two directions, found cells");
  }
  if (config.bidirectional && config.hidden % 2 != 0) {
    return fail(ErrorCode::kImpossible,
                fmt::format("hidden: expected an even size, half for each direction, found {}",
                            config.hidden));
  }
  return all_good(
      {expect_countable("scores", {config.target_steps, config.batch, config.target_vocabulary}),
       expect_countable("attention", {config.source_steps, config.batch, config.attention}),
       expect_countable("gates", {config.source_steps, config.batch, 4 * config.hidden}),
       expect_countable("source embedding", {config.source_vocabulary, config.embedding}),
       expect_countable("target embedding", {config.target_vocabulary, config.embedding}),
       expect_countable("weights", {config.encoder_layers + config.decoder_layers,
                                    4 * config.hidden, config.embedding + 2 * config.hidden})});
}

class Seq2seqBuilder : public ModelBuilder<Seq2seqConfig> {
 public:
  using ModelBuilder::ModelBuilder;

  ExecutionGraph build() {
    make_encoder();
    make_decoder();
    return step_.run([this] {
      const TensorRef source = step_.input(DType::kInt64, {config_.source_steps, config_.batch});
      const TensorRef target = step_.input(DType::kInt64, {config_.target_steps, config_.batch});
      const TensorRef labels = step_.input(DType::kInt64, {config_.target_steps * config_.batch});
      const TensorRef outputs = decode(encode(source), target);
      const TensorRef scores = linear(tape_, outputs, output_, output_bias_);
      return cross_entropy(tape_, view(tape_, scores, {-1, config_.target_vocabulary}), labels);
    });
  }

 private:
  RecurrentLayers shape(std::int64_t input, std::int64_t hidden, std::int64_t layers) const {
    RecurrentLayers made;
    made.cell = config_.cell;
    made.input = input;
    made.hidden = hidden;
    made.layers = static_cast<int>(layers);
    made.dropout = layers > 1 ? config_.dropout : 0;
    return made;
  }

  void make_encoder() {
    const std::int64_t hidden = config_.hidden, layers = config_.encoder_layers;
    source_embedding_ = step_.parameter({config_.source_vocabulary, config_.embedding});
    if (config_.encoder_form != RecurrentForm::kLibrary) {
      for (std::int64_t i = 0; i < layers; ++i) {
        encoder_cells_.push_back(
            make_cell(step_, config_.cell, i == 0 ? config_.embedding : hidden, hidden));
      }
    } else if (config_.bidirectional) {
      RecurrentLayers both = shape(config_.embedding, hidden / 2, 1);
      both.bidirectional = true;
      encoder_layers_.push_back(make_recurrent_layers(step_, both));
      if (layers > 1) {
        encoder_layers_.push_back(make_recurrent_layers(step_, shape(hidden, hidden, layers - 1)));
      }
    } else {
      encoder_layers_.push_back(
          make_recurrent_layers(step_, shape(config_.embedding, hidden, layers)));
    }
  }

  void make_decoder() {
    const std::int64_t hidden = config_.hidden;
    target_embedding_ = step_.parameter({config_.target_vocabulary, config_.embedding});
    for (std::int64_t i = 0; i < config_.decoder_layers; ++i) {
      const std::int64_t input = i == 0 ? config_.embedding + hidden : hidden;
      decoder_cells_.push_back(make_cell(step_, config_.cell, input, hidden));
    }
    query_ = step_.parameter({config_.attention, hidden});
    key_ = step_.parameter({config_.attention, hidden});
    score_ = step_.parameter({1, config_.attention});
    combine_ = step_.parameter({hidden, 2 * hidden});
    output_ = step_.parameter({config_.target_vocabulary, hidden});
    output_bias_ = step_.parameter({config_.target_vocabulary});
  }

  TensorRef drop(TensorRef x) {
    return config_.dropout > 0 ? dropout(tape_, x, config_.dropout) : x;
  }

  // One step through all cells.
  TensorRef advance(RecurrentForm form, const std::vector<CellWeights>& cells,
                    std::vector<CellState>& states, TensorRef x) {
    for (std::size_t i = 0; i < cells.size(); ++i) {
      states[i] = step_of(tape_, form, config_.cell, cells[i], x, states[i]);
      x = i + 1 < cells.size() ? drop(states[i].hidden) : states[i].hidden;
    }
    return x;
  }

  std::vector<CellState> zero_states(std::size_t count) {
    std::vector<CellState> states;
    for (std::size_t i = 0; i < count; ++i) {
      states.push_back(zero_state(graph_, config_.cell, {config_.batch, config_.hidden}));
    }
    return states;
  }

  // [T, B] -> [B, T, H]
  TensorRef encode(TensorRef source) {
    TensorRef x = drop(embedding_lookup(tape_, source_embedding_, source));
    if (encoder_cells_.empty()) {
      for (const RecurrentLayers& layers : encoder_layers_) {
        if (&layers != &encoder_layers_.front()) x = drop(x);
        x = recurrent_layers(tape_, layers, x).sequence;
      }
    } else {
      std::vector<CellState> states = zero_states(encoder_cells_.size());
      std::vector<TensorRef> outputs;
      for (TensorRef y : unbind(tape_, x, 0)) {
        outputs.push_back(advance(config_.encoder_form, encoder_cells_, states, y));
      }
      x = stack(tape_, outputs, 0);
    }
    return contiguous(tape_, transpose(tape_, x, 0, 1));
  }

  // [B, H] of the decoder against all of `source` [B, T, H]: softmax(v tanh(W q + U k)).
  TensorRef attend(TensorRef state, TensorRef source, TensorRef keys) {
    const TensorRef query = unsqueeze(tape_, linear(tape_, state, query_), 1);
    const TensorRef hidden = tanh(tape_, add(tape_, query, keys));
    const TensorRef scores = squeeze(tape_, linear(tape_, hidden, score_), 2);
    const TensorRef weights = unsqueeze(tape_, softmax(tape_, scores, 1), 1);
    return squeeze(tape_, bmm(tape_, weights, source), 1);
  }

  TensorRef decode(TensorRef source, TensorRef target) {
    const TensorRef x = drop(embedding_lookup(tape_, target_embedding_, target));
    const TensorRef keys = linear(tape_, source, key_);
    std::vector<CellState> states = zero_states(decoder_cells_.size());
    TensorRef previous =
        zero_state(graph_, RecurrentCell::kGru, {config_.batch, config_.hidden}).hidden;
    std::vector<TensorRef> outputs;
    for (TensorRef word : unbind(tape_, x, 0)) {
      const TensorRef fed = cat(tape_, {word, previous}, 1);
      const TensorRef state = advance(config_.decoder_form, decoder_cells_, states, fed);
      const TensorRef both = cat(tape_, {state, attend(state, source, keys)}, 1);
      previous = tanh(tape_, linear(tape_, both, combine_));
      outputs.push_back(previous);
    }
    return stack(tape_, outputs, 0);
  }

  TensorRef source_embedding_, target_embedding_, query_, key_, score_, combine_, output_,
      output_bias_;
  std::vector<RecurrentLayers> encoder_layers_;
  std::vector<CellWeights> encoder_cells_, decoder_cells_;
};

}  // namespace

Result<Seq2seqConfig> seq2seq_preset(std::string_view name) {
  if (name != "sockeye") return unknown_preset("a seq2seq preset", name, {"sockeye"});
  Seq2seqConfig config;
  config.name = name;
  return config;
}

std::int64_t parameter_count(const Seq2seqConfig& config) {
  const std::int64_t h = config.hidden, e = config.embedding;
  const auto layer = [&](std::int64_t input, std::int64_t hidden) {
    return recurrent_parameters(config.cell, input, hidden);
  };
  const std::int64_t first = config.bidirectional ? 2 * layer(e, h / 2) : layer(e, h);
  const std::int64_t encoder =
      config.source_vocabulary * e + first + (config.encoder_layers - 1) * layer(h, h);
  const std::int64_t decoder =
      config.target_vocabulary * e + layer(e + h, h) + (config.decoder_layers - 1) * layer(h, h);
  const std::int64_t attention = 2 * config.attention * h + config.attention + 2 * h * h;
  return encoder + decoder + attention + config.target_vocabulary * (h + 1);
}

Result<ExecutionGraph> build_seq2seq(const Seq2seqConfig& config) {
  if (auto good = check(config); !good) return Unexpected{good.error()};
  return Seq2seqBuilder(config).build();
}

}  // namespace perfmodel
