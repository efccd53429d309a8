#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/recurrent.hpp"
#include "perfmodel/graph/training_options.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

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

}  // namespace perfmodel
