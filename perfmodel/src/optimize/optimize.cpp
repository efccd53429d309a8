#include "perfmodel/optimize.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "advice_search.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "rewrites/model_batch.hpp"
#include "table_plan.hpp"

namespace perfmodel {
namespace {

using advice::AdviceSearch;
using advice::Axis;
using advice::Candidate;
using advice::Choice;
using advice::Job;
using advice::State;
using Clock = std::chrono::steady_clock;

constexpr double kGibibyte = 1024.0 * 1024 * 1024;
constexpr double kLeastAdvised = 1e-3;  // share of the step: the steady state is no more exact

Job job_of(const ExecutionGraph& graph, const OptimizeOptions& options) {
  Job job{.world = options.world,
          .batch = {},
          .from_trace = is_from_trace(graph),
          .nodes = graph.nodes.size()};
  if (const auto batch = batch_size(graph)) job.batch = *batch;
  for (const Node& node : graph.nodes) {
    const std::string_view name = graph.name(node);
    job.batch_statistics |= name == "aten::batch_norm";
    constexpr std::string_view kStep = "Optimizer.step#";
    if (node.is_label && name.starts_with(kStep)) {
      job.optimizer = name.substr(kStep.size(), name.rfind('.') - kStep.size());
    }
    if (!name.ends_with("AccumulateGrad")) continue;
    for_each_tensor(graph, graph.inputs(node), [&](const Tensor& gradient) {
      job.largest_gradient_bytes =
          std::max(job.largest_gradient_bytes, static_cast<double>(gradient.bytes()));
    });
  }
  return job;
}

Result<void> check_options(const ExecutionGraph& graph, const OptimizeOptions& options) {
  if (options.world < 1) {
    return decline(fmt::format("expected at least 1 rank, found {}", options.world));
  }
  if (options.memory_limit_bytes && !(*options.memory_limit_bytes > 0)) {
    return decline(
        fmt::format("expected a limit of memory above 0, found {}", *options.memory_limit_bytes));
  }
  if (!(options.time_budget_s > 0)) {
    return decline(
        fmt::format("expected a time budget above 0 s, found {}", options.time_budget_s));
  }
  if (options.objective != AdviceObjective::kStep) {
    if (const auto batch = batch_size(graph); !batch) {
      return decline(fmt::format("objective {}: expected a graph whose inputs tell the batch: {}",
                                 to_string(options.objective), batch.error().message));
    }
  }
  return {};
}

std::string command_of(const std::vector<NamedRewrite>& rewrites, const OptimizeOptions& options) {
  std::string flags;
  for (const NamedRewrite& rewrite : rewrites) flags += " " + rewrite.name;
  return fmt::format("perfpredict predict {}{}{}", options.graph_file, options.predict_flags,
                     flags);
}

/// Inputs for the parts of an answer.
struct Searched {
  const std::vector<Axis>& axes;
  const Job& job;
  const OptimizeOptions& options;
  AdviceSearch& search;
  Candidate given = {};  ///< the given step, with its parts

  const Candidate& baseline() const { return given; }
  double share(double us) const { return baseline().cost_us > 0 ? us / baseline().cost_us : 0; }
  /// Both with their parts.
  double error_us(const Candidate& before, const Candidate& after) const {
    const double scale = after.priced.e2e_us > 0 ? after.cost_us / after.priced.e2e_us : 1;
    return gain_error_us(before.priced.parts, after.priced.parts, scale);
  }
  State single(std::size_t axis, std::size_t choice) const {
    State state(axes.size(), 0);
    state[axis] = static_cast<std::uint16_t>(choice);
    return state;
  }
};

std::string gibibytes(double bytes) { return fmt::format("{:.1f} GiB", bytes / kGibibyte); }

// Adds singles that gain; for memory's sake also those that fit if the given step does not.
// `best_choice`: of a ladder, else the choice.
void add_single(const Searched& of, std::size_t axis, std::size_t choice, std::size_t best_choice,
                Advice& advice) {
  const State state = of.single(axis, choice);
  const std::string text = choice_text(of.axes, state, axis, of.job);
  const std::string& family = of.axes[axis].family;
  const auto lose = [&](LostMove::Why why, std::string reason, std::optional<double> step_us) {
    advice.lost.push_back({.rewrite = text,
                           .family = family,
                           .why = why,
                           .reason = std::move(reason),
                           .step_us = step_us});
  };
  if (const auto pruned = of.search.pruned().find(state); pruned != of.search.pruned().end()) {
    const bool memory = of.axes[axis].frees_memory;
    lose(LostMove::Why::kCannotGain,
         memory
             ? "frees memory alone, which this step has"
             : fmt::format("what it touches holds {:.1f} us of the critical path", pruned->second),
         {});
    return;
  }
  if (const auto* refusal = of.search.refusal(state)) {
    lose(refusal->why, refusal->reason, refusal->step_us);
    return;
  }
  if (!of.search.knows(state)) return;  // a walk turned before it, or the time was over
  Candidate tried = *of.search.find(state);
  const Candidate& given = of.baseline();
  const double gain = given.cost_us - tried.cost_us;
  if (!tried.fits && given.fits) {
    lose(LostMove::Why::kTooLarge, fmt::format("needs {}", gibibytes(tried.priced.needed_bytes)),
         tried.priced.e2e_us);
    return;
  }
  const bool opens = tried.fits && !given.fits;
  if (!opens && gain < kLeastAdvised * given.cost_us) {
    lose(LostMove::Why::kSlower,
         gain < 0   ? fmt::format("takes {:.1f} us longer", -gain)
         : gain > 0 ? "gains less than 0.1 %"
                    : "changes nothing",
         tried.priced.e2e_us);
    return;
  }
  if (choice != best_choice) {
    lose(LostMove::Why::kSlower,
         fmt::format("gains {:.1f} %, another size gains more", 100 * of.share(gain)),
         tried.priced.e2e_us);
    return;
  }
  tried = *of.search.find(state, advice::Detail::kParts);
  const double error = of.error_us(given, tried);
  advice.steps.push_back({.rewrite = text,
                          .family = family,
                          .command = command_of(rewrites_of(of.axes, state, of.job), of.options),
                          .code = of.axes[axis].choices[choice - 1].code,
                          .step_us = tried.priced.e2e_us,
                          .batch = tried.priced.batch,
                          .needed_bytes = tried.priced.needed_bytes,
                          .gain_us = gain,
                          .gain_share = of.share(gain),
                          .error_us = error,
                          .within_error = gain <= error,
                          .same_numbers = of.axes[axis].choices[choice - 1].same_numbers});
}

// Only one rung of a ladder is advice.
std::size_t best_rung(const Searched& of, std::size_t axis) {
  std::size_t best = 0;
  Candidate least = of.baseline();
  for (std::size_t choice = 1; choice <= of.axes[axis].choices.size(); ++choice) {
    const State state = of.single(axis, choice);
    if (!of.search.knows(state) || of.search.refusal(state)) continue;
    const Candidate* there = of.search.find(state);
    if (!better(*there, least)) continue;
    best = choice;
    least = *there;
  }
  return best;
}

void add_singles(const Searched& of, Advice& advice) {
  for (std::size_t axis = 0; axis < of.axes.size(); ++axis) {
    const bool ladder = of.axes[axis].is_ladder;
    const std::size_t rung = ladder ? best_rung(of, axis) : 0;
    for (std::size_t choice = 1; choice <= of.axes[axis].choices.size(); ++choice) {
      add_single(of, axis, choice, ladder ? rung : choice, advice);
    }
  }
  std::ranges::stable_sort(advice.steps, [](const AdvisedStep& a, const AdvisedStep& b) {
    return advice::worth_us(a.gain_us, a.same_numbers) >
           advice::worth_us(b.gain_us, b.same_numbers);
  });
}

// Without a rewrite that others build on, they go too; true if there are such.
bool drop_refused(const Searched& of, State& state) {
  bool dropped = false;
  for (std::size_t axis = 0; axis < state.size() && !of.search.find(state); ++axis) {
    dropped = true;
    if (state[axis] == 0) continue;
    State fewer = state;
    fewer[axis] = 0;
    if (of.search.find(fewer)) state = fewer;
  }
  if (!of.search.find(state)) state.assign(state.size(), 0);
  return dropped;
}

CombinedStep combined_step(const Searched& of, const Candidate& combined, std::size_t axis) {
  const State& best = combined.state;
  const Choice& chosen = of.axes[axis].choices[best[axis] - 1U];
  CombinedStep step{.rewrite = choice_text(of.axes, best, axis, of.job),
                    .family = of.axes[axis].family,
                    .code = chosen.code,
                    .same_numbers = chosen.same_numbers};
  State without = best;
  without[axis] = 0;
  step.others_need_it = drop_refused(of, without);
  const Candidate rest = *of.search.find(without, advice::Detail::kParts);
  step.adds_us = rest.cost_us - combined.cost_us;
  step.adds_share = of.share(step.adds_us);
  step.error_us = of.error_us(rest, combined);
  step.within_error = step.adds_us <= step.error_us;
  return step;
}

// The parts of the best combination by worth; a part that others need comes before them.
void add_combination(const Searched& of, Advice& advice) {
  const Candidate* full = of.search.find(of.search.best().state, advice::Detail::kParts);
  if (!full) return;
  const Candidate combined = *full;
  std::vector<std::pair<std::size_t, CombinedStep>> left;
  for (std::size_t axis = 0; axis < of.axes.size(); ++axis) {
    if (combined.state[axis] > 0) left.emplace_back(axis, combined_step(of, combined, axis));
  }
  const auto worth = [](const auto& part) {
    return advice::worth_us(part.second.adds_us, part.second.same_numbers);
  };
  std::ranges::stable_sort(left, std::greater<>(), worth);
  State so_far(of.axes.size(), 0);
  while (!left.empty()) {
    const auto with = [&](const auto& part) {
      State state = so_far;
      state[part.first] = combined.state[part.first];
      return of.search.find(state);
    };
    auto next = std::ranges::find_if(left, with);
    if (next == left.end()) next = left.begin();
    if (const Candidate* there = with(*next)) next->second.then_us = there->cost_us;
    so_far[next->first] = combined.state[next->first];
    advice.combination.push_back(std::move(next->second));
    left.erase(next);
  }
}

void describe_ends(const Searched& of, Advice& advice) {
  const Candidate& given = of.baseline();
  const Candidate best = *of.search.find(of.search.best().state, advice::Detail::kParts);
  advice.baseline_us = given.cost_us;
  advice.best_us = best.cost_us;
  advice.best_step_us = best.priced.e2e_us;
  advice.same_numbers_us = of.search.best_of_same_numbers().cost_us;
  advice.baseline_batch = given.priced.batch;
  advice.best_batch = best.priced.batch;
  advice.baseline_ranks = of.job.world;
  advice.best_ranks = ranks_of(of.axes, best.state, of.job);
  advice.baseline_bytes = given.priced.needed_bytes;
  advice.best_bytes = best.priced.needed_bytes;
  advice.baseline_command = command_of(rewrites_of(of.axes, given.state, of.job), of.options);
  advice.best_command = command_of(rewrites_of(of.axes, best.state, of.job), of.options);
  advice.best_error_us = of.error_us(given, best);
  advice.best_within_error = advice.baseline_us - advice.best_us <= advice.best_error_us;
}

Result<Ceiling> ceiling_of(const ExecutionGraph& graph, const WhatIfTarget& target,
                           const std::vector<NamedRewrite>& job) {
  if (job.empty()) return step_ceiling(graph, target);
  PERFMODEL_TRY(made, rewrite_model(graph, job));
  return step_ceiling(*made, target);
}

}  // namespace

Result<Advice> optimize(const ExecutionGraph& graph, const WhatIfTarget& target,
                        const OptimizeOptions& options) {
  const Clock::time_point begin = Clock::now();
  PERFMODEL_TRY_TO(check_options(graph, options));
  const Job job = job_of(graph, options);
  PERFMODEL_TRY(axes, rewrite_axes(target.gpu, job, options));

  advice::VariantPricer pricer(graph, target);
  advice::SearchLimits limits{
      .objective = options.objective,
      .memory_bytes = options.memory_limit_bytes.value_or(target.gpu.usable_memory().value),
      .beam = options.beam,
      .deadline = begin + std::chrono::duration_cast<Clock::duration>(
                              std::chrono::duration<double>(std::min(options.time_budget_s, 1e9))),
      .cancel = options.cancel,
      .progress = options.progress};
  AdviceSearch search(*axes, job, limits, pricer);
  PERFMODEL_TRY_TO(search.begin());
  search.try_singles();
  search.combine();
  if (options.cancel.stop_requested()) return fail(ErrorCode::kCancelled, "cancelled");

  Advice made{.memory_limit_bytes = limits.memory_bytes, .objective = options.objective};
  const Searched searched{*axes, job, options, search,
                          *search.find(search.baseline().state, advice::Detail::kParts)};
  if (!search.best().fits) {
    const std::string least =
        fmt::format("expected a sequence that fits into {}, found none: the least needs {} with {}",
                    gibibytes(limits.memory_bytes), gibibytes(search.best().priced.needed_bytes),
                    command_of(rewrites_of(*axes, search.best().state, job), options));
    if (options.memory_limit_bytes) return decline(least);
    made.warnings.push_back(least);
  } else if (!search.baseline().fits) {
    made.warnings.push_back(fmt::format(
        "the step as it is needs {} of {}: what fits comes before what is faster",
        gibibytes(search.baseline().priced.needed_bytes), gibibytes(limits.memory_bytes)));
  }
  made.evaluations = search.evaluations();
  add_singles(searched, made);
  add_combination(searched, made);
  describe_ends(searched, made);
  PERFMODEL_TRY(ceiling,
                ceiling_of(graph, target, rewrites_of(*axes, search.baseline().state, job)));
  made.ceiling = std::move(*ceiling);
  const bool plans =
      options.allow.empty() || std::ranges::find(options.allow, "sharding") != options.allow.end();
  if (std::string why; plans) {
    made.table_plan = advice::table_plan(graph, target, options, why);
    if (!options.allow.empty() && !why.empty()) {
      made.lost.push_back({.rewrite = "(a plan of tables)",
                           .family = "sharding",
                           .why = LostMove::Why::kRefused,
                           .reason = why,
                           .step_us = {}});
    }
  }
  made.complete = search.complete();
  made.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  made.warnings.insert(made.warnings.end(), pricer.warnings().begin(), pricer.warnings().end());
  return made;
}

}  // namespace perfmodel
