#include <fmt/format.h>

#include "base/each_name.hpp"
#include "model_family.hpp"

namespace perfmodel {
namespace {

constexpr Named<RecurrentCell> kCells[] = {{"gru", RecurrentCell::kGru},
                                           {"lstm", RecurrentCell::kLstm}};
constexpr Named<RecurrentCell> kCellTitles[] = {{"LSTM", RecurrentCell::kLstm},
                                                {"GRU", RecurrentCell::kGru}};
constexpr Named<RecurrentForm> kForms[] = {{"cells", RecurrentForm::kCells},
                                           {"library", RecurrentForm::kLibrary},
                                           {"unfused", RecurrentForm::kUnfused}};
constexpr Named<RecurrentForm> kDecoderForms[] = {{"cells", RecurrentForm::kCells},
                                                  {"unfused", RecurrentForm::kUnfused}};
constexpr Named<RecurrentForm> kFormTitles[] = {{"library call", RecurrentForm::kLibrary},
                                                {"fused cells", RecurrentForm::kCells},
                                                {"unfused cells", RecurrentForm::kUnfused}};
constexpr Named<Seq2seqConfig::Software> kSoftware[] = {
    {"mxnet", Seq2seqConfig::Software::kMxnet}, {"pytorch", Seq2seqConfig::Software::kPyTorch}};

ModelFacts lstm_facts(const LstmConfig& config) {
  return {.lines = {{"batch", fmt::format("{} x {} steps", config.batch, config.steps)},
                    {"layers", fmt::format("{} x {} of {}, {}", config.layers,
                                           name_of(kCellTitles, config.cell), config.hidden,
                                           name_of(kFormTitles, config.form))}},
          .keys = {{"batch", config.batch}, {"steps", config.steps}}};
}

ModelFacts seq2seq_facts(const Seq2seqConfig& config) {
  const bool mxnet = config.software == Seq2seqConfig::Software::kMxnet;
  const auto layers = [&](std::int64_t count, RecurrentForm form) {
    return fmt::format("{} x {} of {}, {}", count, name_of(kCellTitles, config.cell), config.hidden,
                       mxnet ? "cells of MXNet" : name_of(kFormTitles, form));
  };
  return {.lines = {{"batch", fmt::format("{} x {} source and {} target steps", config.batch,
                                          config.source_steps, config.target_steps)},
                    {"encoder", layers(config.encoder_layers, config.encoder_form)},
                    {"decoder", layers(config.decoder_layers, config.decoder_form)}},
          .keys = {PERFMODEL_VALUES(config, batch, source_steps, target_steps)}};
}

ModelFacts deepspeech2_facts(const Deepspeech2Config& config) {
  return {.lines = {{"batch", fmt::format("{} x {} frames, {} characters", config.batch,
                                          config.frames, config.target_steps)},
                    {"convolutions",
                     fmt::format("{}, {} steps of {} are left", config.convolutions.size(),
                                 output_steps(config), recurrent_input(config))},
                    {"layers", fmt::format("{} x {} of {} in both directions", config.layers,
                                           name_of(kCellTitles, config.cell), config.hidden)}},
          .keys = {PERFMODEL_VALUES(config, batch, frames, target_steps)}};
}

}  // namespace

const ModelFamily<Deepspeech2Config>& deepspeech2_family() {
  using Config = Deepspeech2Config;
  static const ModelFamily<Config> family = {
      "deepspeech2",
      "One training step of Deep Speech 2 on one GPU",
      deepspeech2_preset,
      build_deepspeech2,
      deepspeech2_facts,
      {{"cell", choice_of<&Config::cell, kCells>(), "Kind of layer"},
       {"frequencies", &Config::frequencies, "Frequencies per frame"},
       {"hidden", &Config::hidden, "Width of a layer"},
       {"layers", &Config::layers, "Recurrent layers"},
       {"characters", &Config::characters, "Characters, the blank included"},
       {"batch", &Config::batch, "Samples per batch"},
       {"frames", &Config::frames, "Frames per sample"},
       {"target_steps", &Config::target_steps, "Characters per transcript"},
       {"name", &Config::name, "Name of the model"}}};
  return family;
}

const ModelFamily<LstmConfig>& lstm_family() {
  using Config = LstmConfig;
  static const ModelFamily<Config> family = {
      "lstm",
      "One training step of a recurrent language model on one GPU",
      lstm_preset,
      build_lstm,
      lstm_facts,
      {{"cell", choice_of<&Config::cell, kCells>(), "Kind of layer"},
       {"form", choice_of<&Config::form, kForms>(),
        "One library call, a fused cell per step, or a cell in single ops"},
       {"vocabulary", &Config::vocabulary, "Words"},
       {"embedding", &Config::embedding, "Width of a word vector"},
       {"hidden", &Config::hidden, "Width of a layer"},
       {"layers", &Config::layers, "Recurrent layers"},
       {"dropout", &Config::dropout, "After the embedding and every layer"},
       {"batch", &Config::batch, "Sequences per batch"},
       {"steps", &Config::steps, "Words per sequence"},
       {"name", &Config::name, "Name of the model"}}};
  return family;
}

const ModelFamily<Seq2seqConfig>& seq2seq_family() {
  using Config = Seq2seqConfig;
  static const ModelFamily<Config> family = {
      "seq2seq",
      "One training step of a recurrent translation model with attention on one GPU",
      seq2seq_preset,
      build_seq2seq,
      seq2seq_facts,
      {{"cell", choice_of<&Config::cell, kCells>(), "Kind of layer"},
       {"encoder_form", choice_of<&Config::encoder_form, kForms>(),
        "One library call, a fused cell per step, or a cell in single ops"},
       {"decoder_form", choice_of<&Config::decoder_form, kDecoderForms>(),
        "A fused cell per step, or a cell in single ops"},
       {"bidirectional", &Config::bidirectional,
        "Whether the first layer of the encoder reads the source both ways", "", true},
       {"software", choice_of<&Config::software, kSoftware>(),
        "mxnet: cells, pieces and loss in MXNet's ops, which keep more"},
       {"attention_norm", &Config::attention_norm,
        "Whether the scores of the attention are normalised, in single ops", "", true},
       {"source_vocabulary", &Config::source_vocabulary, "Words of the source"},
       {"target_vocabulary", &Config::target_vocabulary, "Words of the target"},
       {"embedding", &Config::embedding, "Width of a word vector"},
       {"hidden", &Config::hidden, "Width of a layer"},
       {"attention", &Config::attention, "Width of the attention's hidden layer"},
       {"encoder_layers", &Config::encoder_layers, "Layers of the encoder"},
       {"decoder_layers", &Config::decoder_layers, "Layers of the decoder"},
       {"dropout", &Config::dropout, "After embeddings and between layers"},
       {"batch", &Config::batch, "Sentences per batch"},
       {"source_steps", &Config::source_steps, "Words per source sentence"},
       {"target_steps", &Config::target_steps, "Words per target sentence"},
       {"name", &Config::name, "Name of the model"}}};
  return family;
}

}  // namespace perfmodel
