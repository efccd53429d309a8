#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/training_options.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

enum class RecurrentCell { kLstm, kGru };

/// How the recurrent layers of a model are computed.
enum class RecurrentForm {
  kLibrary,  ///< nn.LSTM or nn.GRU: one call of cuDNN for all layers and steps
  kCells,    ///< nn.LSTMCell or nn.GRUCell in a loop: two products and a fused kernel per step
  kUnfused,  ///< a cell written in Python: two products and one kernel per sign
};

/// Parameters of one layer in one direction on inputs of width `input`: for G gates (LSTM 4, GRU 3)
/// G H (I + H) weights and 2 G H biases.
std::int64_t recurrent_parameters(RecurrentCell cell, std::int64_t input, std::int64_t hidden);

/// FLOP of its products in one forward pass over `positions` = steps times batch:
/// 2 positions G H (I + H). The backward pass has twice as many.
double recurrent_forward_flop(RecurrentCell cell, std::int64_t input, std::int64_t hidden,
                              std::int64_t positions);

/// A recurrent language model: embedding, dropout, L layers of LSTM or GRU, dropout, a linear layer
/// onto the vocabulary, cross entropy. Tokens and targets are [T, B], as in PyTorch's example
/// word_language_model.
struct LstmConfig {
  std::string name = "lstm";
  RecurrentCell cell = RecurrentCell::kLstm;
  RecurrentForm form = RecurrentForm::kLibrary;
  std::int64_t vocabulary = 10'000;
  std::int64_t embedding = 650;
  std::int64_t hidden = 650;
  std::int64_t layers = 2;
  double dropout = 0.5;  ///< behind the embedding and every layer; 0: none is called
  std::int64_t batch = 20;
  std::int64_t steps = 35;
  TrainingOptions training;
};

/// ptb-small, ptb-medium, ptb-large: Zaremba et al. (arXiv 1409.2329) on Penn Treebank, 10,000
/// words; wikitext-2: the defaults of PyTorch's word_language_model. All train with plain SGD.
Result<LstmConfig> lstm_preset(std::string_view name);

/// V E + layers + H V + V; a layer has G H (I + H + 2) with G = 4 (LSTM) or 3 (GRU).
std::int64_t parameter_count(const LstmConfig& config);

/// The execution graph of one training step. States start at zero in every step; the states of the
/// last one are not kept. Loops over cells go step by step through all layers, over inputs that
/// were taken apart once (`x.unbind(0)`).
///
/// Errors: sizes below 1, a dropout outside of [0, 1), tensors of 2^60 elements or more.
Result<ExecutionGraph> build_lstm(const LstmConfig& config);

/// Translation with a recurrent encoder and decoder and attention by a small MLP (Bahdanau et al.,
/// arXiv 1409.0473), as Sockeye has it:
///   encoder   embedding, nn.LSTM; the first of its layers may run in both directions with H/2 each
///   decoder   per target word: a stack of cells on [embedding, previous output]; scores
///             v . tanh(W q + U k) over all source positions, softmax, context; output
///             tanh(C [state, context]); teacher forcing
///   loss      a linear layer onto the target vocabulary over all outputs, cross entropy
/// Source and target are [T, B]. Attention reads the source as [B, T, H], copied once.
struct Seq2seqConfig {
  std::string name = "seq2seq";
  RecurrentCell cell = RecurrentCell::kLstm;
  RecurrentForm encoder_form = RecurrentForm::kLibrary;
  RecurrentForm decoder_form = RecurrentForm::kCells;  ///< kLibrary is not possible
  bool bidirectional = true;                           ///< first layer of the encoder
  std::int64_t source_vocabulary = 17'191, target_vocabulary = 7'709;
  std::int64_t embedding = 512, hidden = 512, attention = 512;
  std::int64_t encoder_layers = 2, decoder_layers = 2;
  double dropout = 0;  ///< behind embeddings and between layers
  std::int64_t batch = 64;
  std::int64_t source_steps = 30, target_steps = 30;
  TrainingOptions training;
};

/// sockeye: the configuration of TBD (Zhu et al., IISWC 2018), 2 + 2 layers of 512 on IWSLT15
/// English-Vietnamese.
Result<Seq2seqConfig> seq2seq_preset(std::string_view name);

/// Closed form, by part.
std::int64_t parameter_count(const Seq2seqConfig& config);

/// The execution graph of one training step.
///
/// Errors: sizes below 1, a dropout outside of [0, 1), an odd hidden size with two directions, a
/// decoder by library call (it needs its own output of the step before), an encoder that is no
/// library call with two directions, tensors of 2^60 elements or more.
Result<ExecutionGraph> build_seq2seq(const Seq2seqConfig& config);

/// Deep Speech 2 (Amodei et al., arXiv 1512.02595) as the MLPerf v0.5 and TBD benchmarks train it:
/// spectrograms [B, 1, F, T] through 2-D convolutions with batch norm and a ReLU clipped at 20,
/// recurrent layers in both directions whose outputs are added up, batch norm between them, a
/// linear layer without bias onto the characters, CTC loss.
struct Deepspeech2Config {
  /// Kernels over frequency x time.
  struct Convolution {
    std::int64_t channels = 32;
    std::int64_t frequency_kernel = 41, time_kernel = 11;
    std::int64_t frequency_stride = 2, time_stride = 2;
    std::int64_t frequency_padding = 20, time_padding = 5;
  };

  std::string name = "deepspeech2";
  std::int64_t frequencies = 161;  ///< of a window of 20 ms at 16 kHz
  std::vector<Convolution> convolutions = {
      {}, {.frequency_kernel = 21, .time_stride = 1, .frequency_padding = 10}};
  RecurrentCell cell = RecurrentCell::kGru;
  std::int64_t layers = 5, hidden = 800;
  std::int64_t characters = 29;
  std::int64_t batch = 32;
  std::int64_t frames = 800;       ///< of every sample
  std::int64_t target_steps = 80;  ///< characters of every transcript
  TrainingOptions training;
};

/// mlperf: 5 GRU layers of 800, convolutions without padding (MLPerf training v0.5); librispeech: 5
/// LSTM layers of 1,024 (default of deepspeech.pytorch); tbd: 5 GRU layers of 1,760, as TBD takes
/// MXNet's example (Zhu et al., IISWC 2018; widths from memory).
Result<Deepspeech2Config> deepspeech2_preset(std::string_view name);

/// Steps that are left behind the convolutions.
std::int64_t output_steps(const Deepspeech2Config& config);
/// Values per step behind the convolutions.
std::int64_t recurrent_input(const Deepspeech2Config& config);
std::int64_t parameter_count(const Deepspeech2Config& config);

/// The execution graph of one training step. All samples have full length, so nothing is packed or
/// masked.
///
/// Errors: sizes below 1, kernels larger than their padded input, targets longer than the steps
/// that CTC aligns them with, tensors of 2^60 elements or more.
Result<ExecutionGraph> build_deepspeech2(const Deepspeech2Config& config);

}  // namespace perfmodel
