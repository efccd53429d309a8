#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "perfmodel/sharding/sharding_study.hpp"

/// Random studies of recommenders and plans for them.
namespace perfmodel::sharding::random_studies {

class Studies {
 public:
  explicit Studies(unsigned seed) : random_(seed) {}

  ShardingStudy study() {
    ShardingStudy study;
    study.gpu =
        any<std::string>({"v100-sxm2-32gb", "a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb"});
    study.world = any<std::int64_t>({2, 4, 8, 16, 32});
    study.batch_per_rank = any<std::int64_t>({256, 1024, 2048, 8192});
    study.launch = any<Launch>({Launch::kEager, Launch::kGraphs, Launch::kCompiled});
    const auto dim = any<std::int64_t>({16, 32, 64, 128});
    DensePart dense{.bottom_mlp = {13}, .top_mlp = {}};
    for (int i = any<int>({1, 2, 3}); i > 0; --i) {
      dense.bottom_mlp.push_back(any<std::int64_t>({128, 256, 512}));
      dense.top_mlp.push_back(any<std::int64_t>({256, 512, 1024}));
    }
    dense.bottom_mlp.push_back(dim);
    dense.top_mlp.push_back(1);
    dense.dtype = study.gpu.starts_with("v100")
                      ? any<std::string>({"float32", "float16"})
                      : any<std::string>({"float32", "tf32", "float16", "bfloat16"});
    study.dense = dense;
    const auto tables = any<int>({8, 16, 26, 50, 100});
    for (int i = 0; i < tables; ++i) study.tables.push_back(table(dim));
    return study;
  }

  // Whole tables on ranks in turn, some of them cut or copied if the study has a taste for it.
  std::vector<TablePlacement> plan(const ShardingStudy& study) {
    const double whole = any<double>({0.4, 0.7, 1});
    std::vector<TablePlacement> plan;
    for (std::size_t t = 0; t < study.tables.size(); ++t) {
      const bool is_whole = t == 0 || std::uniform_real_distribution<double>()(random_) < whole;
      if (is_whole) {
        const auto rank = static_cast<std::int64_t>(t) % *study.world;
        plan.push_back({.type = ShardingType::kTableWise, .ranks = {rank}});
      } else if (study.tables[t].rows < 10'000) {
        plan.push_back({.type = ShardingType::kDataParallel, .kernel = ComputeKernel::kDense});
      } else {
        plan.push_back({.type = ShardingType::kRowWise});
      }
    }
    return plan;
  }

 private:
  template <class Value>
  Value any(std::initializer_list<Value> values) {
    return values
        .begin()[std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random_)];
  }

  ShardedTable table(std::int64_t dim) {
    ShardedTable table;
    table.name = "t";
    table.rows =
        std::llround(std::pow(10, std::uniform_real_distribution<double>(2, 6.5)(random_)));
    table.dim = dim;
    table.features = {{.pooling_factor = any<double>({1, 1, 5, 20})}};
    table.optimizer = TableOptimizer::kRowwiseAdagrad;
    return table;
  }

  std::mt19937 random_;
};

}  // namespace perfmodel::sharding::random_studies
