#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "../predictors/graph_fixture.hpp"
#include "perfmodel/predict.hpp"
#include "tiny_run.hpp"

namespace perfmodel::test_support {

inline TemplateCall kernel_call(std::int16_t stream = 0) {
  TemplateCall call{.stream = stream};
  call.call = "cudaLaunchKernel";
  return call;
}
inline TemplateCall sync_call(SyncKind kind = SyncKind::kStream, std::int16_t stream = 0) {
  TemplateCall call{.kind = TemplateCall::Kind::kSync, .sync = kind, .stream = stream};
  call.call = kind == SyncKind::kDevice ? "cudaDeviceSynchronize" : "cudaStreamSynchronize";
  return call;
}
inline TemplateCall blocking_copy_call() {
  TemplateCall call{.kind = TemplateCall::Kind::kCopy,
                    .copy = CopyKind::kDeviceToHost,
                    .pageable = true,
                    .blocking = true};
  call.call = "cudaMemcpyAsync";
  return call;
}
inline TemplateCall collective_call() {
  TemplateCall call{.collective = true, .stream = 1};
  call.call = "cudaLaunchKernelExC";
  call.kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
  return call;
}

// T1 3, T2 2, T3 1, T5 6, TX 7, every launch 4, a synchronise 2 us; so an op with one launch takes
// 3 + 2 + 4 + 1 = 10 us of the host, one without calls 3 + 7. A kernel starts 1.5 us after its call
// on an idle stream and 1 us after its predecessor on a busy one.
inline OverheadTable literal_table() {
  OverheadTable table;
  table.t1.all = exactly(3);
  table.t2.all = exactly(2);
  table.t3.all = exactly(1);
  table.t5.all = exactly(6);
  table.tx.all = exactly(7);
  table.t4["cudaLaunchKernel"] = exactly(4);
  table.t4["cudaLaunchKernelExC"] = exactly(4);
  table.t4["cudaStreamSynchronize"] = exactly(2);
  table.t4["cudaDeviceSynchronize"] = exactly(2);
  table.t4["cudaMemcpyAsync DtoH blocking"] = exactly(5);
  table.device = {.launch_latency_us = 1.5,
                  .collective_latency_us = 1.5,
                  .copy_latency_us = 2,
                  .blocking_read_latency_us = 10,
                  .blocking_write_latency_us = 12,
                  .kernel_gap_us = 1,
                  .event_gap_us = 2.5};
  teach(table, "a", {kernel_call()});
  teach(table, "b", {kernel_call()});
  teach(table, "item", {sync_call()});
  teach(table, "drain", {sync_call(SyncKind::kDevice)});
  teach(table, "copy_", {blocking_copy_call()});
  teach(table, "side", {kernel_call(1)});
  teach(table, "allreduce", {collective_call()});
  return table;
}

// A graph of these ops on the main thread, all kernels with the given time.
struct Case {
  ExecutionGraph graph;
  KernelTimes times;
  OverheadTable table = literal_table();

  Case(const std::vector<std::string>& ops, double kernel_us) {
    TinyRun run;
    for (const std::string& op : ops) run.op(op, [] {});
    graph = run.graph();
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      for (std::uint32_t ordinal = 0; ordinal < 4; ++ordinal) {
        times.add(static_cast<std::int32_t>(i), ordinal, kernel_us, false);
      }
    }
  }
  Case(TinyRun& run, double kernel_us) : Case(std::vector<std::string>{}, 0) {
    graph = run.graph();
    times = {};
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      for (std::uint32_t ordinal = 0; ordinal < 4; ++ordinal) {
        times.add(static_cast<std::int32_t>(i), ordinal, kernel_us, false);
      }
    }
  }

  Prediction predict(PredictOptions options = {}) const {
    options.kernel_times = &times;
    auto prediction = perfmodel::predict(graph, round_gpu(), table, options);
    if (!prediction) {
      ADD_FAILURE() << to_string(prediction.error());
      return {};
    }
    return std::move(*prediction);
  }
};

}  // namespace perfmodel::test_support
