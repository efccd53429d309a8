// Graphs of large models built, written and read again; many variants of one graph.

#include <benchmark/benchmark.h>

#include <functional>
#include <string>
#include <vector>

#include "inputs.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"
#include "perfmodel/optimize.hpp"
#include "perfmodel/what_if.hpp"
#include "rewrite/resize/size_plan.hpp"

namespace perfmodel::benchmarks {
namespace {

// GPT-3 as it may be trained: autocast with a GradScaler, a checkpoint around each layer, a loop of
// AdamW, one of eight data-parallel ranks.
ExecutionGraph build_gpt3(std::int64_t layers) {
  GptConfig config = value_of(gpt_preset("gpt3-175b"));
  config.batch = 1;
  config.layers = layers;
  config.training.optimizer = TrainingOptions::Optimizer::kAdamW;
  config.training.implementation = TrainingOptions::Implementation::kLoop;
  config.training.zero_grad = TrainingOptions::ZeroGrad::kToZero;
  const auto graph = value_of(build_gpt(config));
  const auto half = value_of(rewrite_precision(
      graph, {.precision = PrecisionOptions::Precision::kFp16, .grad_scaler = true}));
  const auto checkpointed = value_of(rewrite_checkpointing(half, {.every = 1}));
  return value_of(rewrite_data_parallel(checkpointed, {.world_size = 8}));
}

// With 96 layers: should take at most 2 s.
void build_write_read(benchmark::State& state) {
  const auto file = folder() / "gpt3.json";
  std::size_t nodes = 0;
  for (auto _ : state) {
    if (const auto done = write_execution_graph(build_gpt3(state.range(0)), file); !done) {
      stop(done.error());
    }
    nodes = value_of(read_execution_graph(file)).nodes.size();
  }
  state.counters["nodes"] = static_cast<double>(nodes);
  state.counters["nodes/s"] =
      benchmark::Counter(static_cast<double>(nodes) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
  state.SetComplexityN(static_cast<std::int64_t>(nodes));
}
BENCHMARK(build_write_read)
    ->Name("build_write_read/gpt3/layers")
    ->Arg(6)
    ->Arg(24)
    ->Complexity(benchmark::oN)
    ->Unit(benchmark::kMillisecond);
BENCHMARK(build_write_read)
    ->Name("build_write_read/gpt3/large/layers")
    ->Arg(96)
    ->Unit(benchmark::kMillisecond);

template <class Apply>
void rewrite_loop(benchmark::State& state, const ExecutionGraph& graph, Apply&& apply) {
  for (auto _ : state) benchmark::DoNotOptimize(value_of(apply(graph)).nodes.data());
  state.counters["nodes/s"] = benchmark::Counter(
      static_cast<double>(graph.nodes.size()) * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}

void rewrite_batch(benchmark::State& state) {
  const auto graph = value_of(build_dlrm(value_of(dlrm_preset("mlperf"))));
  rewrite_loop(state, graph, [](const auto& of) { return set_batch_size(of, {.batch = 1000}); });
}
BENCHMARK(rewrite_batch)->Name("rewrite/batch/mlperf")->Unit(benchmark::kMillisecond);

// Another batch in every call, by a plan: at most 20 us are wanted.
void apply_size_plan(benchmark::State& state) {
  const auto plan =
      value_of(SizePlan::batch(value_of(build_dlrm(value_of(dlrm_preset("mlperf"))))));
  SizePlan::Scratch scratch;
  std::int64_t batch = 0;
  for (auto _ : state) {
    batch = batch % 65536 + 37;
    if (const auto done = plan.apply(batch, scratch); !done) stop(done.error());
    benchmark::DoNotOptimize(scratch.graph().tensors.data());
  }
  state.counters["changes/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(apply_size_plan)->Name("size_plan/mlperf")->Unit(benchmark::kMicrosecond);

void make_size_plan(benchmark::State& state) {
  const auto graph = value_of(build_dlrm(value_of(dlrm_preset("mlperf"))));
  for (auto _ : state) benchmark::DoNotOptimize(value_of(SizePlan::batch(graph)).current());
}
BENCHMARK(make_size_plan)->Name("size_plan/make/mlperf")->Unit(benchmark::kMillisecond);

void rewrite_fused(benchmark::State& state) {
  const auto graph = value_of(build_dlrm(value_of(dlrm_preset("mlperf"))));
  rewrite_loop(state, graph, [](const auto& of) {
    return rewrite_optimizer(of, {.implementation = TrainingOptions::Implementation::kFused});
  });
}
BENCHMARK(rewrite_fused)->Name("rewrite/optimizer/mlperf")->Unit(benchmark::kMillisecond);

// Batches x optimizers x GPUs; each answer is a rewrite, a prediction and its critical path. 1,000
// on two threads: at most 5 s are wanted.
void ask_what_if(benchmark::State& state) {
  constexpr std::int64_t kBatches = 50;
  const auto graph = value_of(build_dlrm(value_of(dlrm_preset("mlperf"))));
  std::vector<Variant> variants;
  for (std::int64_t i = 1; i <= kBatches; ++i) {
    for (const bool fused : {false, true}) {
      Variant variant{.name = std::to_string(i)};
      variant.rewrites.push_back({"--batch", [i](const ExecutionGraph& of) {
                                    return set_batch_size(of, {.batch = 256 * i});
                                  }});
      if (fused) {
        variant.rewrites.push_back(
            {"--optimizer", [](const ExecutionGraph& of) {
               return rewrite_optimizer(
                   of, {.implementation = TrainingOptions::Implementation::kFused});
             }});
      }
      variants.push_back(std::move(variant));
    }
  }
  const OverheadTable table;
  std::vector<WhatIfTarget> targets;
  for (const char* name :
       {"a100-sxm-80gb", "h100-sxm-80gb", "v100-sxm2-16gb", "b200-sxm-180gb", "mi300x",
        "a100-sxm-40gb", "v100-sxm2-32gb", "t4", "rtx-2080-ti", "mi250"}) {
    targets.push_back({.gpu = gpu(name), .overheads = &table});
  }
  std::size_t answered = 0;
  for (auto _ : state) {
    const auto answers =
        what_if(graph, variants, targets, {.threads = static_cast<std::size_t>(state.range(0))});
    for (const WhatIfAnswer& answer : answers) {
      if (answer.error) stop(*answer.error);
    }
    answered += answers.size();
  }
  state.counters["answers"] =
      static_cast<double>(answered) / static_cast<double>(state.iterations());
  state.counters["answers/s"] =
      benchmark::Counter(static_cast<double>(answered), benchmark::Counter::kIsRate);
}
BENCHMARK(ask_what_if)
    ->Name("what_if/mlperf")
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// Predictions of rewritten graphs in a search on one core: at least 3,000 a second are wanted.
void search_advice(benchmark::State& state, const ExecutionGraph& graph) {
  const auto table = value_of(read_overheads(std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" /
                                             "overheads" / "reference.json"));
  const WhatIfTarget target{.gpu = gpu("a100-sxm-80gb"), .overheads = &table};
  std::size_t evaluations = 0;
  for (auto _ : state) {
    const auto advice =
        value_of(optimize(graph, target, {.objective = AdviceObjective::kSamplesPerS}));
    evaluations += advice.evaluations;
  }
  state.counters["predictions/s"] =
      benchmark::Counter(static_cast<double>(evaluations), benchmark::Counter::kIsRate);
}
void search_dlrm(benchmark::State& state) {
  search_advice(state, value_of(build_dlrm(value_of(dlrm_preset("mlperf")))));
}
void search_eager_dlrm(benchmark::State& state) {
  DlrmConfig config = value_of(dlrm_preset("default"));
  config.table_batched = false;
  search_advice(state, value_of(build_dlrm(config)));
}
BENCHMARK(search_dlrm)->Name("optimize/mlperf")->Unit(benchmark::kMillisecond);
BENCHMARK(search_eager_dlrm)->Name("optimize/default/eager")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace perfmodel::benchmarks
