#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/predictor.hpp"

/// Graphs and questions for the tests of Predictor.
namespace perfmodel::test_support {

inline std::filesystem::path source_data() {
  return std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data";
}

/// GPUs with an overhead table of their own and without, of both vendors.
inline PredictorConfig few_gpus() {
  return {.data = source_data(),
          .gpus = {"a100-sxm-40gb", "h100-sxm-80gb", "mi250", "t4"},
          .cached_prices = 1 << 12};
}

inline ExecutionGraph small_gpt() {
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = 2;
  config.batch = 4;
  return build_gpt(config).value();
}

/// A DLRM of one GPU, one rank of a data-parallel one (with collectives), a transformer.
inline std::vector<ExecutionGraph> few_graphs() {
  std::vector<ExecutionGraph> graphs;
  graphs.push_back(build_dlrm(dlrm_preset("mlperf").value()).value());
  graphs.push_back(build_dlrm(dlrm_preset("ddp").value()).value());
  graphs.push_back(small_gpt());
  return graphs;
}

/// Everything in a prediction that is a number of its own, as one text: equal to the bit or not.
std::string digest(const Prediction& prediction);

/// Question `i` of an endless list: other graphs, GPUs, sizes, topologies, strategies, some of them
/// refused. The same number is the same question.
struct MixedQuestion {
  std::size_t graph = 0;
  bool prepared = false;
  std::string_view gpu;
  AskOptions options;
};
inline MixedQuestion mixed_question(std::uint64_t i) {
  const auto draw = [&i](std::uint64_t choices) {
    i = (i ^ (i >> 29)) * 0xBF58476D1CE4E5B9 + 0x9E3779B97F4A7C15;
    return (i >> 33) % choices;
  };
  constexpr std::string_view kGpus[] = {"a100-sxm-40gb",
                                        "h100-sxm-80gb",
                                        "mi250",
                                        "t4",
                                        "NVIDIA H100 80GB HBM3",
                                        "H100-SXM-80GB",
                                        "T4",
                                        "MI250",
                                        "no-such-gpu"};
  constexpr std::string_view kTopologies[] = {"", "",         "",         "",
                                              "", "dgx-a100", "dgx-h100", "no-such-topology"};
  MixedQuestion made;
  made.graph = draw(3);
  made.prepared = draw(4) > 0;
  made.gpu = kGpus[draw(std::size(kGpus))];
  made.options.batch = draw(3) == 0 ? 0 : static_cast<std::int64_t>(64 * (1 + draw(24)));
  made.options.topology = kTopologies[draw(std::size(kTopologies))];
  if (draw(4) == 0) {
    made.options.world = static_cast<std::int64_t>(1) << draw(5);
    made.options.strategy = draw(2) == 0 ? ParallelStrategy::kDdp : ParallelStrategy::kFsdp;
  }
  made.options.interference = draw(8) == 0 ? 1.25 : 1;
  made.options.keep_ops = draw(8) == 0;
  return made;
}

}  // namespace perfmodel::test_support
