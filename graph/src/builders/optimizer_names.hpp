#pragma once

#include "base/named_values.hpp"
#include "perfmodel/graph/build_recommenders.hpp"

namespace perfmodel {

inline constexpr Named<TrainingOptions::Optimizer> kOptimizerNames[] = {
    {"none", TrainingOptions::Optimizer::kNoOptimizer},
    {"sgd", TrainingOptions::Optimizer::kSgd},
    {"momentum", TrainingOptions::Optimizer::kMomentum},
    {"adagrad", TrainingOptions::Optimizer::kAdagrad},
    {"adam", TrainingOptions::Optimizer::kAdam},
    {"adamw", TrainingOptions::Optimizer::kAdamW},
    {"bert_adam", TrainingOptions::Optimizer::kBertAdam}};

inline constexpr Named<DlrmConfig::Optimizer> kTableOptimizerNames[] = {
    {"sgd", DlrmConfig::Optimizer::kSgd},
    {"adagrad", DlrmConfig::Optimizer::kAdagrad},
    {"rowwise_adagrad", DlrmConfig::Optimizer::kRowwiseAdagrad},
    {"adam", DlrmConfig::Optimizer::kAdam},
    {"sparse_adam", DlrmConfig::Optimizer::kSparseAdam}};

}  // namespace perfmodel
