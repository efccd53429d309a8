#pragma once

#include <map>
#include <string>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel::test_support {

/// Built training steps small enough to be rewritten hundreds of times a second: "mlp_gpu",
/// "dlrm_cpu", "bert_gpu", "lstm_gpu", "gru_cpu", "resnet_gpu", ...
std::map<std::string, ExecutionGraph> small_models();

}  // namespace perfmodel::test_support
