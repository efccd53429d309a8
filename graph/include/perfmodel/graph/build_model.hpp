#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/training_options.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A model by the names of its family and preset, for callers that have names and numbers rather
/// than C++ types. Zeros and empty texts keep what the preset has.
struct ModelRequest {
  std::string family;         ///< one of `model_families()`
  std::string preset = {};    ///< of the family; empty: a small usual one
  std::int64_t batch = 0;     ///< samples per step
  std::int64_t sequence = 0;  ///< tokens per sample; of transformers alone
  std::int64_t layers = 0;    ///< of transformers alone (of T5: of encoder and decoder)
  /// none, sgd, momentum, adagrad, adam or adamw. DLRMs with batched tables: sgd, adagrad,
  /// rowwise_adagrad or adam.
  std::string optimizer = {};
};

/// One training step of it: what `build_dlrm`, `build_gpt`, ... make of the preset.
///
/// Errors: an unknown family, preset or optimizer; a sequence or layers that the family does not
/// have; negative numbers; those of the family's `build_*`.
Result<ExecutionGraph> build_model(const ModelRequest& request);

/// bert, dlrm, gpt, inception, llama, mlp, opt, resnet, t5, vgg.
std::vector<std::string_view> model_families();

/// A classifier of linear layers with ReLU in between, cross entropy as its loss.
struct MlpConfig {
  std::string name = "mlp";
  std::vector<std::int64_t> widths = {784, 512, 512, 10};  ///< features first, classes last
  std::int64_t batch = 64;
  bool relu_behind_last = false;  ///< ReLU behind the last layer too
  bool softmax = false;           ///< nn.Softmax in front of the loss
  TrainingOptions training;
};

/// "mnist", or "linear": the 21 layers of width 1,024, ReLU behind each, with a softmax of
/// param-bench's sample workload, batch 512.
Result<MlpConfig> mlp_preset(std::string_view name);

/// One training step. Errors: no layer, sizes that are not positive, 2^60 elements or more.
Result<ExecutionGraph> build_mlp(const MlpConfig& config);

}  // namespace perfmodel
