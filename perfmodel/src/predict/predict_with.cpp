#include "predict_with.hpp"

#include <algorithm>

#include "explain_job.hpp"
#include "perfmodel/detail/predict_options.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/prediction.hpp"
#include "perfmodel/predictors/detail/lower.hpp"
#include "pipeline.hpp"
#include "program/invariants.hpp"

namespace perfmodel {
namespace {

constexpr double kKernelExtraUs = 5;  // "+ 5 us" of the published code, for every predicted kernel
constexpr double kStreamGapUs = 1;

class Traversal {
 public:
  Traversal(const ExecutionGraph& graph, const Gpu& gpu, const OverheadTable& table,
            const PredictOptions& options)
      : graph_(graph),
        gpu_(gpu),
        table_(table),
        options_(options),
        lowering_(graph, gpu, &table.templates) {}

  Result<Prediction> run() {
    auto steps = iterations(graph_);
    if (options_.iterations) {
      const auto [first, last] = *options_.iterations;
      if (first >= last || last > steps.size()) {
        return decline("expected iterations within 0:" + std::to_string(steps.size()) + " of " +
                       graph_.source + ", found " + std::to_string(first) + ":" +
                       std::to_string(last));
      }
      steps = {steps.begin() + static_cast<std::ptrdiff_t>(first),
               steps.begin() + static_cast<std::ptrdiff_t>(last)};
    }
    for (const GraphIteration& step : steps) {
      const double begin = std::max({cpu_, compute_, comm_});
      cpu_ = compute_ = comm_ = front_ = begin;
      const double active_before = prediction_.gpu_active_us;
      for (std::int32_t node : top_level_ops(graph_)) {
        if (node < step.begin || node >= step.end) continue;
        op(node);
        const Node& at = graph_.node(node);
        PERFMODEL_TRY(good, check_time(cpu_ + compute_ + comm_, graph_.name(at), at));
      }
      const double end = std::max({cpu_, compute_, comm_});
      prediction_.iterations.push_back(
          {step.name, end - begin, prediction_.gpu_active_us - active_before});
    }
    const double count = std::max<std::size_t>(steps.size(), 1);
    for (const auto& iteration : prediction_.iterations) prediction_.e2e_us += iteration.e2e_us;
    for (double* total : {&prediction_.e2e_us, &prediction_.gpu_active_us, &prediction_.cpu_us,
                          &prediction_.compute_kernel_us, &prediction_.comm_kernel_us}) {
      *total /= count;
    }
    prediction_.e2e_low_us = prediction_.e2e_high_us = prediction_.e2e_us;
    for (double& term : prediction_.terms_us) term /= count;
    prediction_.kernel_sum_us = prediction_.compute_kernel_us + prediction_.comm_kernel_us;
    prediction_.gpu_idle_us = std::max(0.0, prediction_.e2e_us - prediction_.gpu_active_us);
    prediction_.phases.push_back({.label = "all", .host_us = prediction_.cpu_us});
    prediction_.warnings.push_back(
        "method lin: it waits only at aten::to and collectives, no steady state");
    return std::move(prediction_);
  }

 private:
  void host(Term term, double us) {
    cpu_ += us;
    prediction_.cpu_us += us;
    prediction_.terms_us[static_cast<std::size_t>(term)] += us;
  }

  void op(std::int32_t index) {
    const Node& node = graph_.node(index);
    const std::uint64_t name = graph_.names.hash(node.name);
    LoweredOp lowered = lowering_.lower(index);
    std::erase_if(lowered.calls, [](const LoweredCall& call) {
      return call.call->kind == TemplateCall::Kind::kSync;
    });
    host(Term::kT1, table_.t1.all.mean_us);
    if (lowered.calls.empty()) {  // the paper books the whole op under T5
      const auto found = table_.tx.by_name.find(name);
      if (found != table_.tx.by_name.end()) host(Term::kTx, found->second.stats.mean_us);
      return;
    }
    host(Term::kT2, of(table_.t2, name));
    for (std::size_t i = 0; i < lowered.calls.size(); ++i) {
      launch(lowered, lowered.calls[i], i);
      if (i + 1 < lowered.calls.size()) host(Term::kT5, of(table_.t5, name));
    }
    host(Term::kT3, of(table_.t3, name));
    front_ = std::max(compute_, comm_);
    if (graph_.name(node) == "aten::to") cpu_ = std::max(cpu_, compute_);
    if (std::any_of(lowered.calls.begin(), lowered.calls.end(),
                    [](const LoweredCall& call) { return call.call->collective; })) {
      waiting_ = true;
    } else if (waiting_) {
      compute_ = comm_ = front_;  // the next op reads the result of the collective
      waiting_ = false;
    }
  }

  static double of(const OverheadTerm& term, std::uint64_t name) {
    const auto found = term.by_name.find(name);
    return found == term.by_name.end() ? 0 : found->second.stats.mean_us;
  }

  void launch(const LoweredOp& lowered, const LoweredCall& call, std::size_t ordinal) {
    const double t4 = table_.call_us(call.call->call).us;
    double& stream = call.call->collective ? comm_ : compute_;
    double start = std::max(stream + kStreamGapUs, cpu_ + t4);
    if (call.call->collective) start = std::max(start, compute_ + kStreamGapUs);
    const double us = kernel_us(lowered, call, ordinal);
    prediction_.gpu_active_us += std::clamp(start + us - front_, 0.0, us);
    stream = start + us;
    (call.call->collective ? prediction_.comm_kernel_us : prediction_.compute_kernel_us) += us;
    host(Term::kT4, t4);
  }

  double kernel_us(const LoweredOp& lowered, const LoweredCall& call, std::size_t) const {
    const KernelTimes::Time* traced =
        options_.kernel_times ? options_.kernel_times->find(call.node, call.ordinal) : nullptr;
    const bool all = options_.use == KernelTimes::Use::kAll;
    const bool unpriced = options_.use == KernelTimes::Use::kUnpriced && call.work < 0;
    if (traced && (all || unpriced || traced->collective)) {
      return traced->us + kKernelExtraUs;
    }
    KernelWork work;
    if (call.work >= 0) work = lowered.work[call.work];
    return options_.models->price(work, gpu_).time.count() + kKernelExtraUs;
  }

  const ExecutionGraph& graph_;
  const Gpu& gpu_;
  const OverheadTable& table_;
  const PredictOptions& options_;
  Lowering lowering_;
  double cpu_ = 0, compute_ = 0, comm_ = 0, front_ = 0;
  bool waiting_ = false;
  Prediction prediction_;
};

// Prediction as in the published code of Lin et al. (HiPC 2022): one CPU clock, a compute and a
// communication stream, one value per overhead and op name, 5 us added to every kernel, waits only
// after `aten::to` and at collectives' readers. Kept as the baseline that it is.
Result<Prediction> lin_traversal(const ExecutionGraph& graph, const Gpu& gpu,
                                 const OverheadTable& table, const PredictOptions& options) {
  return Traversal(graph, gpu, table, options).run();
}

}  // namespace

// Strategies follow gradients and parameters by their tensors. A recording of a machine without a
// GPU has no kernels to price, nor has a recording of an NPU, XPU or HPU kernels of CUDA or HIP.
// Graphs that do not say where their tensors are say nothing against a GPU.
Result<void> check_input(const ExecutionGraph& graph, const PredictOptions& options) {
  if (options.scale_out) PERFMODEL_TRY_TO(check_tensors_known(graph, "a strategy"));
  bool on_cpu = false, on_other = false, on_meta = false;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.on_gpu()) return {};
    on_cpu |= tensor.on_cpu();
    on_other |= tensor.device.kind == Device::Kind::kOther;
    on_meta |= tensor.on_meta();
  }
  if (!on_cpu && !on_other && !on_meta) return {};
  constexpr std::string_view kExpected = "expected tensors on a GPU, found ";
  return decline(std::string(kExpected) +
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
  PERFMODEL_TRY_TO(check_input(graph, options));
  if (table.method == OverheadMethod::kLin) {
    if (options.scale_out) {
      return decline("expected overheads of method context to scale a graph out, found method lin");
    }
    if (stages > 1) {
      return decline("expected overheads of method context for stages, found method lin");
    }
    if (options.host_scale != 1 || options.host_sensitivity) {
      return decline("expected overheads of method context to scale the host, found method lin");
    }
    if (options.launching != Launching::kEager) {
      return decline(
          "expected overheads of method context for captured graphs and compiled regions, found "
          "method lin");
    }
    PERFMODEL_TRY(prediction, lin_traversal(graph, gpu, table, options));
    PERFMODEL_TRY_TO(check_times(*prediction));
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
