#include "lin_traversal.hpp"

#include <algorithm>

#include "perfmodel/predictors/detail/lower.hpp"
#include "program/host_program.hpp"

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
        return fail(ErrorCode::kImpossible,
                    "expected iterations within 0:" + std::to_string(steps.size()) + " of " +
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

}  // namespace

Result<Prediction> lin_traversal(const ExecutionGraph& graph, const Gpu& gpu,
                                 const OverheadTable& table, const PredictOptions& options) {
  return Traversal(graph, gpu, table, options).run();
}

}  // namespace perfmodel
