#include "perfmodel/what_if.hpp"

#include <algorithm>
#include <iterator>

#include "base/each_name.hpp"
#include "memory/step_memory.hpp"
#include "perfmodel/detail/explanation.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/memory.hpp"
#include "predict/rewritten_times.hpp"
#include "rewrites/model_batch.hpp"
#include "study/answer_rows.hpp"

namespace perfmodel {
namespace {

void predict_on(const ExecutionGraph& graph, const WhatIfTarget& target, Launching launching,
                WhatIfAnswer& answer) {
  PredictOptions options = target.options;
  options.launching = launching;
  const auto prediction = predict(graph, target.gpu, *target.overheads, options);
  if (!prediction) {
    answer.error = prediction.error();
    return;
  }
  PERFMODEL_COPY(answer, (*prediction), e2e_us, e2e_low_us, e2e_high_us, energy_j, ranks, memory,
                 gpu_active_us, cpu_us);
  answer.exposed_communication_us = prediction->communication.exposed_us;
  answer.modelled_time_fraction = prediction->coverage.modelled_time_fraction;
  for (const auto& op : prediction->coverage.unmodelled_ops) {
    answer.unmodelled_ops.push_back(op.op);
  }
  answer.lacking_units = prediction->coverage.lacking_units;
  if (prediction->coverage.traced_kernels > 0) {
    std::ranges::copy_if(prediction->warnings, std::back_inserter(answer.rewrite_warnings),
                         [](const std::string& warning) {
                           return warning.find("the time that the trace measured") != warning.npos;
                         });
  }
  answer.ops = prediction->ops.size();
  for (const PredictedOp& op : prediction->ops) answer.kernels += op.kernels.size();
  if (prediction->critical_path.step_us > 0) {
    Explanation explained = explain(*prediction);
    answer.bound = std::move(explained.bound);
    answer.bound_share = explained.bound_share;
  }
}

// At the largest batch that fits.
void predict_largest(const ExecutionGraph& graph, const WhatIfTarget& target, Launching launching,
                     WhatIfAnswer& answer) {
  const auto most = largest_batch(graph, target.gpu);
  if (!most) {
    answer.error = most.error();
    return;
  }
  if (most->batch == 0) {
    answer.error = Error{.code = ErrorCode::kImpossible,
                         .message = "not one sample fits: " + memory_text(most->next)};
    return;
  }
  const auto resized = set_batch_size(graph, {.batch = most->batch});
  if (!resized) {
    answer.error = resized.error();
    return;
  }
  answer.batch = most->batch;
  predict_on(*resized, target, launching, answer);
}

/// The graphs of variants. A graph that begins like the last one starts where they part.
class VariantGraphs {
 public:
  VariantGraphs(const ExecutionGraph& graph, std::span<const Variant> variants)
      : graph_(graph), variants_(variants) {}

  /// The graph that the rewrites of a variant make; until the next call.
  Result<const ExecutionGraph*> of(std::size_t variant) {
    const std::span<const NamedRewrite> rewrites = variants_[variant].rewrites;
    PERFMODEL_TRY_TO(check_rewrites(graph_, rewrites));
    PERFMODEL_TRY_TO(begin_with(asked_batch(rewrites)));
    std::size_t done = shared_with_last(variant);
    while (done > 0 && !made_[done - 1]) --done;
    made_.resize(done);
    for (; done < rewrites.size(); ++done) {
      PERFMODEL_TRY(next, apply_rewrites(last(), rewrites.subspan(done, 1)));
      if (made_.size() * next->nodes.size() > kMostNodes) made_.assign(made_.size(), std::nullopt);
      made_.push_back(std::move(*next));
    }
    return &last();
  }

 private:
  // About 300 bytes each, with their tensors.
  static constexpr std::size_t kMostNodes = 1'000'000;

  std::size_t shared_with_last(std::size_t variant) {
    std::size_t shared = made_.size();
    const bool follows = last_variant_ < variant;
    for (std::size_t i = last_variant_ + 1; i <= variant && follows; ++i) {
      shared = std::min(shared, variants_[i].shared);
    }
    last_variant_ = variant;
    return follows ? shared : 0;
  }
  // A known model is built with the batch that the variant asks for; 0: its own.
  Result<void> begin_with(std::int64_t batch) {
    if (batch == batch_ || !is_known_model(graph_)) return {};
    made_.clear();
    built_.reset();
    batch_ = 0;
    auto built = model_with_batch(graph_, batch);
    if (!built) return {};
    if (!*built) return Unexpected{built->error()};
    built_ = std::move(**built);
    built_->warnings = graph_.warnings;  // they would name every batch
    batch_ = batch;
    return {};
  }
  const ExecutionGraph& last() const {
    if (!made_.empty()) return *made_.back();
    return built_ ? *built_ : graph_;
  }

  const ExecutionGraph& graph_;
  std::int64_t batch_ = 0;               // 0: the graph's own
  std::optional<ExecutionGraph> built_;  // with `batch_`
  std::span<const Variant> variants_;
  std::size_t last_variant_ = 0;
  std::vector<std::optional<ExecutionGraph>> made_;  // large ones only while they are the last
};

/// Whether the answer is the memory of the graph's one rank, which does not fit.
bool ends_with_memory(const ExecutionGraph& graph, const WhatIfTarget& target,
                      const WhatIfOptions& options, WhatIfAnswer& answer) {
  if (!options.only_fitting || options.largest_batch || target.options.scale_out) return false;
  answer.memory = step_memory(memory_plan(graph), graph, {}, &target.gpu);
  return !answer.memory.fits();
}

void answer_variant(const ExecutionGraph& graph, const Result<const ExecutionGraph*>& rewritten,
                    Launching launching, std::span<const WhatIfTarget> targets,
                    const WhatIfOptions& options, std::span<WhatIfAnswer> answers) {
  if (!rewritten) {
    for (WhatIfAnswer& answer : answers) answer.error = rewritten.error();
    return;
  }
  const ExecutionGraph& asked = **rewritten;
  std::optional<Result<std::int64_t>> batch;  // found when needed, which takes its time
  std::vector<std::string> warnings;
  std::ranges::copy_if(asked.warnings, std::back_inserter(warnings), [&](const auto& warning) {
    return std::ranges::find(graph.warnings, warning) == graph.warnings.end();
  });
  for (std::size_t i = 0; i < targets.size(); ++i) {
    answers[i].rewrite_warnings = warnings;
    if (ends_with_memory(asked, targets[i], options, answers[i])) continue;
    WhatIfTarget target = targets[i];
    KernelTimes collectives;
    const auto left_out = fit_kernel_times(graph, asked, target.options, collectives);
    if (!left_out) {
      answers[i].error = left_out.error();
      continue;
    }
    if (!left_out->empty()) answers[i].rewrite_warnings.push_back(*left_out);
    if (options.largest_batch) {
      predict_largest(asked, target, launching, answers[i]);
      continue;
    }
    if (!batch) batch = samples_per_step(asked);
    if (*batch) answers[i].batch = **batch;
    predict_on(asked, target, launching, answers[i]);
  }
}

}  // namespace

std::vector<WhatIfAnswer> what_if(const ExecutionGraph& graph, std::span<const Variant> variants,
                                  std::span<const WhatIfTarget> targets,
                                  const WhatIfOptions& options) {
  std::vector<WhatIfAnswer> answers(variants.size() * targets.size());
  for (std::size_t i = 0; i < answers.size(); ++i) {
    answers[i].variant = i / targets.size();
    answers[i].target = i % targets.size();
  }
  answer_rows(variants.size(), options.threads, options.progress, [&] {
    return [&, graphs = VariantGraphs(graph, variants)](std::size_t i) mutable {
      answer_variant(graph, graphs.of(i), launching_of(variants[i].rewrites), targets, options,
                     std::span(answers).subspan(i * targets.size(), targets.size()));
      return true;
    };
  });
  return answers;
}

}  // namespace perfmodel
