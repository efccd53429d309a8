#include <fmt/format.h>

#include "builders/emit/ops.hpp"
#include "config_checks.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "recurrent_parts.hpp"

namespace perfmodel {
namespace {

Result<void> check(const LstmConfig& config) {
  const Shape scores = {config.steps, config.batch, config.vocabulary};
  const Shape gates = {config.steps, config.batch, 4 * config.hidden};
  const auto sizes = all_good(
      {expect_at_least("vocabulary", 1, config.vocabulary),
       expect_at_least("embedding", 1, config.embedding),
       expect_at_least("hidden", 1, config.hidden), expect_layers("layers", config.layers),
       expect_at_least("batch", 1, config.batch), expect_at_least("steps", 1, config.steps),
       expect_probability("dropout", config.dropout)});
  if (!sizes) return sizes;
  return all_good({expect_countable("scores", scores), expect_countable("gates", gates),
                   expect_countable("layers", {config.layers, 1 << 20}),
                   expect_countable("embedding", {config.vocabulary, config.embedding}),
                   expect_countable("weights", {4 * config.layers, config.hidden,
                                                config.hidden + config.embedding})});
}

class LstmBuilder : public ModelBuilder<LstmConfig> {
 public:
  using ModelBuilder::ModelBuilder;

  ExecutionGraph build() {
    make_parameters();
    return step_.run([this] {
      const TensorRef tokens = step_.input(DType::kInt64, {config_.steps, config_.batch});
      const TensorRef targets = step_.input(DType::kInt64, {config_.steps * config_.batch});
      return cross_entropy(tape_, scores(tokens), targets);
    });
  }

 private:
  bool library() const { return config_.form == RecurrentForm::kLibrary; }

  void make_parameters() {
    embedding_ = step_.parameter({config_.vocabulary, config_.embedding});
    if (library()) {
      RecurrentLayers shape;
      shape.cell = config_.cell;
      shape.input = config_.embedding;
      shape.hidden = config_.hidden;
      shape.layers = static_cast<int>(config_.layers);
      shape.dropout = config_.dropout;
      layers_ = make_recurrent_layers(step_, shape);
    } else {
      for (std::int64_t i = 0; i < config_.layers; ++i) {
        const std::int64_t input = i == 0 ? config_.embedding : config_.hidden;
        cells_.push_back(make_cell(step_, config_.cell, input, config_.hidden));
      }
    }
    decoder_ = step_.parameter({config_.vocabulary, config_.hidden});
    decoder_bias_ = step_.parameter({config_.vocabulary});
  }

  TensorRef drop(TensorRef x) {
    return config_.dropout > 0 ? dropout(tape_, x, config_.dropout) : x;
  }

  TensorRef scores(TensorRef tokens) {
    const TensorRef x = drop(embedding_lookup(tape_, embedding_, tokens));
    const TensorRef y = library() ? recurrent_layers(tape_, layers_, x).sequence : loop(x);
    const TensorRef decoded = linear(tape_, drop(y), decoder_, decoder_bias_);
    return view(tape_, decoded, {-1, config_.vocabulary});
  }

  // As one writes it in Python: step by step, in each one layer after the other.
  TensorRef loop(TensorRef x) {
    std::vector<CellState> states;
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      states.push_back(zero_state(graph_, config_.cell, {config_.batch, config_.hidden}));
    }
    std::vector<TensorRef> outputs;
    for (TensorRef y : unbind(tape_, x, 0)) {
      for (std::size_t i = 0; i < cells_.size(); ++i) {
        states[i] = step_of(tape_, config_.form, config_.cell, cells_[i], y, states[i]);
        y = i + 1 < cells_.size() ? drop(states[i].hidden) : states[i].hidden;
      }
      outputs.push_back(y);
    }
    return stack(tape_, outputs, 0);
  }

  TensorRef embedding_, decoder_, decoder_bias_;
  RecurrentLayers layers_;          // the library's
  std::vector<CellWeights> cells_;  // the loop's
};

LstmConfig preset(std::int64_t width, double dropout, std::int64_t steps) {
  LstmConfig config;
  config.embedding = config.hidden = width;
  config.dropout = dropout;
  config.steps = steps;
  return config;
}

}  // namespace

Result<LstmConfig> lstm_preset(std::string_view name) {
  LstmConfig config;
  if (name == "ptb-small") {
    config = preset(200, 0, 20);
  } else if (name == "ptb-medium") {
    config = preset(650, 0.5, 35);
  } else if (name == "ptb-large") {
    config = preset(1500, 0.65, 35);
  } else if (name == "wikitext-2") {
    config = preset(200, 0.2, 35);
    config.vocabulary = 33'278;
  } else {
    return unknown_preset("an LSTM preset", name,
                          {"ptb-small", "ptb-medium", "ptb-large", "wikitext-2"});
  }
  config.name = name;
  return config;
}

std::int64_t parameter_count(const LstmConfig& config) {
  const std::int64_t first = recurrent_parameters(config.cell, config.embedding, config.hidden);
  const std::int64_t other = recurrent_parameters(config.cell, config.hidden, config.hidden);
  return config.vocabulary * (config.embedding + config.hidden + 1) + first +
         (config.layers - 1) * other;
}

Result<ExecutionGraph> build_lstm(const LstmConfig& config) {
  if (auto good = check(config); !good) return Unexpected{good.error()};
  return LstmBuilder(config).build();
}

}  // namespace perfmodel
