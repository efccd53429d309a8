#include "predict_with.hpp"

#include <algorithm>

#include "explain_job.hpp"
#include "lin_traversal.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "pipeline.hpp"
#include "program/invariants.hpp"

namespace perfmodel {

// Strategies follow gradients and parameters by their tensors. A recording of a machine without a
// GPU has no kernels to price, nor has a recording of an NPU, XPU or HPU kernels of CUDA or HIP.
// Graphs that do not say where their tensors are say nothing against a GPU.
Result<void> check_input(const ExecutionGraph& graph, const PredictOptions& options) {
  if (options.scale_out) {
    if (auto known = check_tensors_known(graph, "a strategy"); !known) return known;
  }
  bool on_cpu = false, on_other = false, on_meta = false;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.on_gpu()) return {};
    on_cpu |= tensor.on_cpu();
    on_other |= tensor.device.kind == Device::Kind::kOther;
    on_meta |= tensor.on_meta();
  }
  if (!on_cpu && !on_other && !on_meta) return {};
  constexpr std::string_view kExpected = "expected tensors on a GPU, found ";
  return fail(ErrorCode::kImpossible,
              std::string(kExpected) +
                  (on_meta    ? "a captured graph: --retarget nvidia (or amd) makes it a GPU's"
                   : on_other ? "a graph of another device (NPU, XPU, HPU, ...): only CUDA and "
                                "HIP devices have kernel models"
                              : "a graph of a machine without one: --retarget nvidia (or amd) "
                                "predicts the same program on a GPU"),
              graph.source);
}

Result<Prediction> predict_with(const ExecutionGraph& graph, const Gpu& gpu,
                                const OverheadTable& table, const HostFacts* facts,
                                const PredictOptions& options, std::optional<double> added_bytes,
                                std::int64_t stages, bool memory, JobMemory* last) {
  if (auto good = check_input(graph, options); !good) return Unexpected{good.error()};
  if (table.method == OverheadMethod::kLin) {
    if (options.scale_out) {
      return fail(ErrorCode::kImpossible,
                  "expected overheads of method context to scale a graph out, found method lin");
    }
    if (stages > 1) {
      return fail(ErrorCode::kImpossible,
                  "expected overheads of method context for stages, found method lin");
    }
    if (options.host_scale != 1 || options.host_sensitivity) {
      return fail(ErrorCode::kImpossible,
                  "expected overheads of method context to scale the host, found method lin");
    }
    if (options.launching != Launching::kEager) {
      return fail(ErrorCode::kImpossible,
                  "expected overheads of method context for captured graphs and compiled regions, "
                  "found method lin");
    }
    auto prediction = lin_traversal(graph, gpu, table, options);
    if (!prediction) return prediction;
    if (auto good = check_times(*prediction); !good) return Unexpected{good.error()};
    for (const CommRecord& record : graph.comm_records) {
      prediction->ranks = std::max(prediction->ranks, record.group_size);
    }
    if (memory) report_memory(facts ? *facts->memory : memory_plan(graph), graph, gpu, *prediction);
    return prediction;
  }
  const RankInput rank{.graph = &graph, .table = &table, .options = options};
  PERFMODEL_TRY(
      job, predict_ranks({&rank, 1}, gpu, {.stages = stages}, facts, added_bytes, memory, last));
  Prediction slowest = std::move(*std::ranges::max_element(job->ranks, {}, &Prediction::e2e_us));
  slowest.warnings.insert(slowest.warnings.begin(), job->warnings.begin(), job->warnings.end());
  return slowest;
}

}  // namespace perfmodel
