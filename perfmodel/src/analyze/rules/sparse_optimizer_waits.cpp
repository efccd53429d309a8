#include "analyze/rules.hpp"

namespace perfmodel::findings {
namespace sparse_optimizer_waits {
namespace {

constexpr double kLeastShare = 0.01;  // as rule blocking-waits

struct Optimizer {
  std::size_t tables = 0, read_backs = 0;  ///< in all steps
  std::string where;                       ///< the first wait
  double waited_us = 0;
  std::set<std::size_t> waits;
};

void find_sparse_optimizer_waits(const StepFacts& step, const Gpu*, std::vector<Suspicion>& found) {
  std::map<std::string_view, Optimizer> optimizers;
  for (std::size_t i = 0; i < step.waits.size(); ++i) {
    const std::int32_t op = step.waits[i].op;
    if (!is_sparse_update(step, op)) continue;
    Optimizer& one = optimizers[step.optimizer_around(op)];
    if (one.waits.empty()) one.where = step.path(op);
    one.waits.insert(i);
    one.waited_us += step.waits[i].wait_us;
  }
  for (std::size_t i = 0; i < step.ops.size(); ++i) {
    if (step.ops[i].name != "aten::coalesce") continue;
    const auto at = optimizers.find(step.optimizer_around(static_cast<std::int32_t>(i)));
    if (at != optimizers.end()) ++at->second.tables;
  }
  for (const KernelFact& kernel : step.kernels) {
    if (kernel.copy != CopyKind::kDeviceToHost || !is_sparse_update(step, kernel.op)) continue;
    const auto at = optimizers.find(step.optimizer_around(kernel.op));
    if (at != optimizers.end()) ++at->second.read_backs;
  }
  for (auto& [name, one] : optimizers) {
    if (one.waited_us < kLeastShare * step.span_us || one.tables == 0) continue;
    const auto read_backs = static_cast<double>(one.read_backs);
    const double of_table = read_backs / static_cast<double>(one.tables);
    Suspicion made{
        .title = fmt::format(
            "{} reads {:.0f} number{} per table back, {:.0f} per step ({} of "
            "waiting)",
            name.empty() ? "The sparse optimizer" : name, of_table, of_table < 1.5 ? "" : "s",
            read_backs / static_cast<double>(step.steps), per_step(one.waited_us, step)),
        .where = one.where,
        .share_us = one.waited_us,
        .confidence = Confidence::kMedium,
        .advice =
            "Update the tables inside of the backward pass, which reads nothing back: "
            "fbgemm_gpu's SplitTableBatchedEmbeddingBagsCodegen(..., "
            "optimizer=OptimType.ADAM), or torchrec's apply_optimizer_in_backward. "
            "PyTorch 2 reads one number per table, 1.13 two more per sparse tensor"};
    made.repair.waits = std::move(one.waits);
    found.push_back(std::move(made));
  }
}

}  // namespace
}  // namespace sparse_optimizer_waits

bool is_sparse_update(const StepFacts& step, std::int32_t op) {
  for (; op >= 0; op = step.ops[op].parent) {
    const std::string_view name = step.ops[op].name;
    if (name == "aten::coalesce" || name == "aten::sparse_coo_tensor") return true;
  }
  return false;
}

const Rule kSparseOptimizerWaits = {
    {"sparse-optimizer-waits",
     "merges of sparse gradients and checks of their indices wait for 1 % of the step"},
    sparse_optimizer_waits::find_sparse_optimizer_waits};

}  // namespace perfmodel::findings
