#include <fmt/format.h>

#include "perfmodel/graph/build_model.hpp"
#include "settings.hpp"

namespace perfmodel {

using Convolution = Deepspeech2Config::Convolution;

static const auto kConvolutionSizes = {&Convolution::channels,    &Convolution::frequency_kernel,
                                       &Convolution::time_kernel, &Convolution::frequency_stride,
                                       &Convolution::time_stride, &Convolution::frequency_padding,
                                       &Convolution::time_padding};

static Item item_of(const std::vector<Convolution>& convolutions) {
  Item::List all;
  for (const Convolution& convolution : convolutions) {
    Item::List sizes;
    for (const auto size : kConvolutionSizes) sizes.emplace_back(convolution.*size);
    all.emplace_back(std::move(sizes));
  }
  return all;
}
static void take_item(const Item& item, std::vector<Convolution>& convolutions) {
  convolutions.clear();
  for (const Item& one : item.list()) {
    Convolution& convolution = convolutions.emplace_back();
    auto size = one.list().begin();
    for (const auto member : kConvolutionSizes) take_item(*size++, convolution.*member);
  }
}

static const Words kCells = {"lstm", "gru"};
static const Words kForms = {"library", "cells", "unfused"};
static const Words kSoftware = {"pytorch", "mxnet"};

template <class Visit>
void visit_settings(LstmConfig& config, Visit visit) {
  visit("cell", config.cell, kCells);
  visit("form", config.form, kForms);
  visit("vocabulary", config.vocabulary);
  visit("embedding", config.embedding);
  visit("hidden", config.hidden);
  visit("layers", config.layers);
  visit("dropout", config.dropout);
  visit("batch", config.batch);
  visit("steps", config.steps);
}

template <class Visit>
void visit_settings(Seq2seqConfig& config, Visit visit) {
  visit("cell", config.cell, kCells);
  visit("encoder_form", config.encoder_form, kForms);
  visit("decoder_form", config.decoder_form, kForms);
  visit("bidirectional", config.bidirectional);
  visit("software", config.software, kSoftware);
  visit("attention_norm", config.attention_norm);
  visit("source_vocabulary", config.source_vocabulary);
  visit("target_vocabulary", config.target_vocabulary);
  visit("embedding", config.embedding);
  visit("hidden", config.hidden);
  visit("attention", config.attention);
  visit("encoder_layers", config.encoder_layers);
  visit("decoder_layers", config.decoder_layers);
  visit("dropout", config.dropout);
  visit("batch", config.batch);
  visit("source_steps", config.source_steps);
  visit("target_steps", config.target_steps);
}

template <class Visit>
void visit_settings(Deepspeech2Config& config, Visit visit) {
  visit("frequencies", config.frequencies);
  visit("convolutions", config.convolutions);
  visit("cell", config.cell, kCells);
  visit("layers", config.layers);
  visit("hidden", config.hidden);
  visit("characters", config.characters);
  visit("batch", config.batch);
  visit("frames", config.frames);
  visit("target_steps", config.target_steps);
}

// 4 (input, forget, cell, output) or 3 (reset, update, new).
static std::int64_t gate_count(RecurrentCell cell) { return cell == RecurrentCell::kLstm ? 4 : 3; }

std::int64_t recurrent_parameters(RecurrentCell cell, std::int64_t input, std::int64_t hidden) {
  return gate_count(cell) * hidden * (input + hidden + 2);
}
double recurrent_forward_flop(RecurrentCell cell, std::int64_t input, std::int64_t hidden,
                              std::int64_t positions) {
  return 2.0 * static_cast<double>(positions) *
         static_cast<double>(gate_count(cell) * hidden * (input + hidden));
}

Result<LstmConfig> lstm_preset(std::string_view name) {
  return preset_of<LstmConfig>("lstm", "an LSTM preset", name);
}
Result<ExecutionGraph> build_lstm(const LstmConfig& config) { return build_module("lstm", config); }

std::int64_t parameter_count(const LstmConfig& config) {
  const std::int64_t first = recurrent_parameters(config.cell, config.embedding, config.hidden);
  const std::int64_t other = recurrent_parameters(config.cell, config.hidden, config.hidden);
  return config.vocabulary * (config.embedding + config.hidden + 1) + first +
         (config.layers - 1) * other;
}

Result<Seq2seqConfig> seq2seq_preset(std::string_view name) {
  return preset_of<Seq2seqConfig>("seq2seq", "a seq2seq preset", name);
}
Result<ExecutionGraph> build_seq2seq(const Seq2seqConfig& config) {
  return build_module("seq2seq", config);
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
  const std::int64_t vectors = config.attention_norm ? 3 : 1;
  const std::int64_t attention = 2 * config.attention * h + vectors * config.attention + 2 * h * h;
  return encoder + decoder + attention + config.target_vocabulary * (h + 1);
}

Result<Deepspeech2Config> deepspeech2_preset(std::string_view name) {
  auto config = preset_of<Deepspeech2Config>("deepspeech2", "a Deep Speech 2 preset", name);
  if (config) config->name = fmt::format("deepspeech2-{}", name);
  return config;
}
Result<ExecutionGraph> build_deepspeech2(const Deepspeech2Config& config) {
  return build_module("deepspeech2", config);
}

// The size that a filter leaves of one axis.
static std::int64_t left_by(std::int64_t size, std::int64_t kernel, std::int64_t stride,
                            std::int64_t padding) {
  return (size + 2 * padding - kernel) / stride + 1;
}
std::int64_t output_steps(const Deepspeech2Config& config) {
  std::int64_t steps = config.frames;
  for (const Convolution& c : config.convolutions) {
    steps = left_by(steps, c.time_kernel, c.time_stride, c.time_padding);
  }
  return steps;
}
std::int64_t recurrent_input(const Deepspeech2Config& config) {
  std::int64_t height = config.frequencies;
  for (const Convolution& c : config.convolutions) {
    height = left_by(height, c.frequency_kernel, c.frequency_stride, c.frequency_padding);
  }
  return config.convolutions.back().channels * height;
}
std::int64_t parameter_count(const Deepspeech2Config& config) {
  std::int64_t count = 0, channels = 1;
  for (const auto& c : config.convolutions) {
    // Filters, biases, scale and shift.
    count += c.channels * (channels * c.frequency_kernel * c.time_kernel + 3);
    channels = c.channels;
  }
  const std::int64_t h = config.hidden;
  count += 2 * recurrent_parameters(config.cell, recurrent_input(config), h);
  count += (config.layers - 1) * (2 * recurrent_parameters(config.cell, h, h) + 2 * h);
  return count + 2 * h + config.characters * h;
}

}  // namespace perfmodel
