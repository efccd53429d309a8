#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/recurrent.hpp"
#include "perfmodel/graph/training_options.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

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

}  // namespace perfmodel
