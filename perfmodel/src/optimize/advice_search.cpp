#include "advice_search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

namespace perfmodel::advice {
namespace {

// Share of the best step so far: sequences that gain less are not searched.
constexpr double kLeastGain = 1e-4;
// Share of the best step: a change that adds less to a sequence is not worth its line.
constexpr double kLeastAdded = 3e-4;
// Rungs of a ladder that may be no better before a walk ends.
constexpr int kPatience = 3;
// Shares of a path are read off the points where it turns, a little off what they bound.
constexpr double kBoundSlack = 1.3;

std::size_t changes(const State& state) {
  return static_cast<std::size_t>(
      std::ranges::count_if(state, [](std::uint16_t choice) { return choice > 0; }));
}

}  // namespace

bool better(const Candidate& a, const Candidate& b) {
  if (a.fits != b.fits) return a.fits;
  if (!a.fits && a.priced.needed_bytes != b.priced.needed_bytes) {
    return a.priced.needed_bytes < b.priced.needed_bytes;
  }
  if (a.cost_us != b.cost_us) return a.cost_us < b.cost_us;
  const std::size_t of_a = changes(a.state), of_b = changes(b.state);
  return of_a != of_b ? of_a < of_b : a.state < b.state;
}

AdviceSearch::AdviceSearch(const std::vector<Axis>& axes, const Job& job,
                           const SearchLimits& limits, VariantPricer& pricer)
    : axes_(axes), job_(job), limits_(limits), pricer_(pricer) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].stage == Stage::kBatch) batch_axis_ = i;
  }
}

Result<void> AdviceSearch::begin() {
  const State as_it_is(axes_.size(), 0);
  const Candidate* given = find(as_it_is, Detail::kPath);
  if (!given) return fail(ErrorCode::kImpossible, known_.at(as_it_is).refusal.reason);
  baseline_ = best_ = *given;
  memory_matters_ = limits_.objective != AdviceObjective::kStep || !baseline_.fits;
  return {};
}

bool AdviceSearch::out_of_time() {
  if (!limits_.cancel.stop_requested() && std::chrono::steady_clock::now() < limits_.deadline) {
    return false;
  }
  complete_ = false;
  return true;
}

const Candidate* AdviceSearch::find(const State& state, Detail detail) {
  const auto before = known_.find(state);
  if (before != known_.end()) {
    const auto& candidate = before->second.candidate;
    if (!candidate || candidate->detail >= detail) return candidate ? &*candidate : nullptr;
  }
  const bool again = before != known_.end();
  Known& known = known_[state];
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (state[i] == 0) continue;
    const Choice& chosen = axes_[i].choices[state[i] - 1U];
    if (chosen.lacks.empty()) continue;
    known.refusal = {.why = LostMove::Why::kLacksUnits, .reason = chosen.lacks, .step_us = {}};
    return nullptr;
  }
  auto priced = pricer_.price(rewrites_of(axes_, state, job_), detail);
  if (priced && !again) ++evaluations_;
  if (limits_.progress && !again) limits_.progress(evaluations_);
  if (!priced) {
    known.refusal = {
        .why = LostMove::Why::kRefused, .reason = priced.error().message, .step_us = {}};
    return nullptr;
  }
  priced->batch = job_.batch;
  if (batch_axis_ && state[*batch_axis_] > 0) {
    priced->batch = axes_[*batch_axis_].choices[state[*batch_axis_] - 1U].batch;
  }
  Candidate made{.state = state, .priced = *priced, .cost_us = priced->e2e_us, .detail = detail};
  if (limits_.objective != AdviceObjective::kStep) {
    const auto& samples = baseline_.state.empty() ? priced->batch : baseline_.priced.batch;
    if (samples && priced->batch) {
      made.cost_us *= static_cast<double>(*samples) / static_cast<double>(*priced->batch);
    }
    if (limits_.objective == AdviceObjective::kSamplesPerS) {
      made.cost_us *=
          static_cast<double>(job_.world) / static_cast<double>(ranks_of(axes_, state, job_));
    }
  }
  made.fits = limits_.memory_bytes <= 0 || priced->needed_bytes <= limits_.memory_bytes;
  memory_refused_ |= !made.fits;
  known.candidate = std::move(made);
  return &*known.candidate;
}

const Refusal* AdviceSearch::refusal(const State& state) const {
  const auto known = known_.find(state);
  return known == known_.end() || known->second.candidate ? nullptr : &known->second.refusal;
}

bool AdviceSearch::keeps_numbers(const State& state) const {
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    if (state[axis] > 0 && !axes_[axis].choices[state[axis] - 1U].same_numbers) return false;
  }
  return true;
}

const Candidate& AdviceSearch::best_of_same_numbers() const {
  const Candidate* best = &baseline_;
  for (const auto& [state, known] : known_) {
    if (known.candidate && keeps_numbers(state) && better(*known.candidate, *best)) {
      best = &*known.candidate;
    }
  }
  return *best;
}

double AdviceSearch::bound_us(const Candidate& from, const Axis& axis) const {
  const double scale = from.priced.e2e_us > 0 ? from.cost_us / from.priced.e2e_us : 1;
  return scale * from.priced.path.touched_us(axis.touch);
}

// If nothing fits, or batches may grow, more than the path counts.
bool AdviceSearch::worth_it(const Candidate& from, const Axis& axis) const {
  if (axis.frees_memory) return memory_matters_;
  // A larger batch in one pass is as good, as long as it fits.
  if (axis.stage == Stage::kAccumulate && !memory_refused_) return false;
  if (!from.fits || axis.stage == Stage::kBatch) return true;
  return from.cost_us - kBoundSlack * bound_us(from, axis) <
         best_.cost_us - kLeastGain * best_.cost_us;
}

const Candidate* AdviceSearch::with(const Candidate& from, std::size_t axis, std::size_t choice) {
  State state = from.state;
  state[axis] = static_cast<std::uint16_t>(choice);
  if (!known_.contains(state) && out_of_time()) return nullptr;
  return find(state);
}

// From the present rung to both sides, until three rungs in a row are no better than the best
// before them: buckets that do not divide the gradients make the way rough.
void AdviceSearch::walk(const Candidate& from, std::size_t axis,
                        std::vector<const Candidate*>& found) {
  const Axis& ladder = axes_[axis];
  // Rungs in rising order, the step's own among them.
  std::vector<std::size_t> rungs;
  for (std::size_t i = 0; i < ladder.below; ++i) rungs.push_back(i + 1);
  rungs.push_back(0);
  for (std::size_t i = ladder.below; i < ladder.choices.size(); ++i) rungs.push_back(i + 1);
  const auto at = static_cast<std::size_t>(std::ranges::find(rungs, std::size_t{from.state[axis]}) -
                                           rungs.begin());
  const auto go = [&](auto next) {
    Candidate least = from;
    int worse = 0;  // in a row
    for (std::size_t rung = next(at); rung < rungs.size() && worse < kPatience; rung = next(rung)) {
      const Candidate* there = with(least, axis, rungs[rung]);
      if (!there) return;
      found.push_back(there);
      if (better(*there, least)) {
        least = *there;
        worse = 0;
      } else {
        ++worse;
      }
    }
  };
  go([](std::size_t rung) { return rung + 1; });
  go([](std::size_t rung) { return rung - 1; });  // below 0: beyond the end
}

// A rewrite that frees memory is worth the gain of the larger batch.
void AdviceSearch::open_batch(const Candidate& from, std::vector<const Candidate*>& found) {
  if (!batch_axis_) return;
  const Candidate start = from;
  walk(start, *batch_axis_, found);
}

void AdviceSearch::neighbours(const Candidate& start, std::vector<const Candidate*>& found) {
  const Candidate from = *find(start.state, Detail::kPath);
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    if (!worth_it(from, axes_[axis])) {
      if (changes(from.state) > 0) continue;
      for (std::size_t choice = 1; choice <= axes_[axis].choices.size(); ++choice) {
        State state = from.state;
        state[axis] = static_cast<std::uint16_t>(choice);
        if (!known_.contains(state)) pruned_[state] = bound_us(from, axes_[axis]);
      }
      continue;
    }
    if (axes_[axis].is_ladder) {
      walk(from, axis, found);
      continue;
    }
    for (std::size_t choice = 0; choice <= axes_[axis].choices.size(); ++choice) {
      if (choice == from.state[axis]) continue;
      const Candidate* there = with(from, axis, choice);
      if (!there) continue;
      found.push_back(there);
      if (choice > 0 && memory_matters_ && there->priced.needed_bytes < from.priced.needed_bytes) {
        open_batch(*there, found);
      }
    }
  }
}

void AdviceSearch::try_singles() {
  std::vector<const Candidate*> found;
  neighbours(baseline_, found);
  for (const Candidate* one : found) {
    if (better(*one, best_)) best_ = *one;
  }
}

void AdviceSearch::combine() {
  std::vector<Candidate> beam = {baseline_};
  std::set<State> expanded = {baseline_.state};
  // A change without an effect of its own would take the place of one that needs another change.
  const auto is_idle = [&](const Candidate& one) {
    return one.fits == baseline_.fits &&
           std::abs(one.cost_us - baseline_.cost_us) <= kLeastGain * baseline_.cost_us;
  };
  for (const auto& [state, known] : known_) {
    if (known.candidate && changes(state) > 0 && !is_idle(*known.candidate)) {
      beam.push_back(*known.candidate);
    }
  }
  for (;;) {
    std::ranges::sort(beam, better);
    beam.resize(std::min(beam.size(), std::max<std::size_t>(limits_.beam, 1)));
    std::vector<const Candidate*> found;
    for (const Candidate& from : beam) {
      if (!expanded.insert(from.state).second) continue;
      neighbours(from, found);
    }
    const std::size_t before = beam.size();
    for (const Candidate* one : found) {
      if (std::ranges::find(beam, one->state, &Candidate::state) == beam.end()) {
        beam.push_back(*one);
      }
    }
    best_ = *std::ranges::min_element(beam, better);
    if (beam.size() == before || !complete_) break;
  }
  drop_idle();
  keep_numbers();
}

// A choice that changes numbers gives way to one of its axis that keeps them, unless it gains
// `kChangedNumbersTimes` as much.
void AdviceSearch::keep_numbers() {
  for (std::size_t axis = 0; axis < axes_.size(); ++axis) {
    if (best_.state[axis] == 0) continue;
    const std::vector<Choice>& choices = axes_[axis].choices;
    if (choices[best_.state[axis] - 1U].same_numbers) continue;
    State state = best_.state;
    state[axis] = 0;
    const Candidate* without = find(state);
    if (!without) continue;
    const double without_us = without->cost_us, changed_gain = without_us - best_.cost_us;
    for (std::size_t choice = 1; choice <= choices.size(); ++choice) {
      if (!choices[choice - 1].same_numbers) continue;
      state[axis] = static_cast<std::uint16_t>(choice);
      const Candidate* kept = find(state);
      if (!kept || (best_.fits && !kept->fits)) continue;
      const double worth = worth_us(without_us - kept->cost_us, true);
      if (worth >= worth_us(changed_gain, false) && kept->cost_us < without_us) {
        best_ = *kept;
        break;
      }
    }
  }
}

void AdviceSearch::drop_idle() {
  for (bool dropped = true; dropped;) {
    dropped = false;
    for (std::size_t axis = 0; axis < axes_.size() && !dropped; ++axis) {
      if (best_.state[axis] == 0) continue;
      // Earlier choices of an axis are simpler; of a ladder only none is.
      const std::size_t simpler = axes_[axis].is_ladder ? 1 : best_.state[axis];
      for (std::size_t choice = 0; choice < simpler && !dropped; ++choice) {
        State state = best_.state;
        state[axis] = static_cast<std::uint16_t>(choice);
        const Candidate* there = find(state);
        if (!there || there->fits != best_.fits) continue;
        if (there->cost_us > best_.cost_us + kLeastAdded * best_.cost_us) continue;
        if (!best_.fits && better(best_, *there)) continue;
        if (keeps_numbers(best_.state) && !keeps_numbers(state)) continue;
        best_ = *there;
        dropped = true;
      }
    }
  }
}

}  // namespace perfmodel::advice
