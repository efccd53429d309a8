#include "recording.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "call.hpp"

namespace perfmodel::resize {
namespace {

using Kind = Step::Kind;

IntegerStep taped_step(Tape& tape, const Number& number) {
  return {(number.step() ? number.step() : tape.constant(number.value()))->index};
}
RealStep taped_step(Tape& tape, const Real& real) {
  return {(real.step() ? real.step() : tape.real_constant(real.value()))->index};
}

// The last edit of a place holds.
template <class Place, class Edit>
std::vector<Place> by_place(Tape& tape, const std::vector<Edit>& edits) {
  std::map<std::uint32_t, Place> last;
  for (const Edit& edit : edits) last[edit.at] = {edit.at, taped_step(tape, edit.value)};
  std::vector<Place> places;
  for (const auto& [at, place] : last) places.push_back(place);
  return places;
}

std::vector<IntegerStep> steps_of(Tape& tape, const std::vector<Number>& numbers) {
  std::vector<IntegerStep> steps;
  for (const Number& number : numbers) steps.push_back(taped_step(tape, number));
  return steps;
}

StepEdits steps_of(Tape& tape, const Edits& edits) {
  StepEdits made{.sizes = by_place<StepEdits::Place>(tape, edits.sizes),
                 .numels = by_place<StepEdits::Place>(tape, edits.numels),
                 .offsets = by_place<StepEdits::Place>(tape, edits.offsets),
                 .shapes = {},
                 .integers = by_place<StepEdits::Place>(tape, edits.integers),
                 .lists = {},
                 .reals = by_place<StepEdits::FloatPlace>(tape, edits.reals)};
  for (const auto& [tensor, sizes] : edits.shapes) {
    made.shapes.push_back({tensor, steps_of(tape, sizes)});
  }
  for (const auto& [at, length, values] : edits.lists) {
    made.lists.push_back({at, taped_step(tape, length), steps_of(tape, values)});
  }
  return made;
}

// If two rules compute one argument in two ways, it keeps the first number when the second equals
// the old one: no step can express that.
bool one_way_each(Tape& tape, const std::vector<Edits::Place>& integers) {
  std::map<std::uint32_t, std::uint32_t> steps;
  for (const auto& [at, value] : integers) {
    const std::uint32_t step = taped_step(tape, value).step;
    if (steps.try_emplace(at, step).first->second != step) return false;
  }
  return true;
}

bool is_leaf(const Step& step) {
  return step.kind == Kind::kConstant || step.kind == Kind::kRealConstant ||
         step.kind == Kind::kSize;
}

double real(std::int64_t bits) { return std::bit_cast<double>(bits); }
std::int64_t bits(double real) { return std::bit_cast<std::int64_t>(real); }

std::int64_t result(const Step& step, std::int64_t size, const std::int64_t* results) {
  const std::int64_t a = results[step.a], b = results[step.b];  // a leaf has step 0, unused
  switch (step.kind) {
    case Kind::kConstant: return step.number;
    case Kind::kRealConstant: return bits(step.factor);
    case Kind::kSize:
      return size_after(step.factor, power_of(size, step.power), step.divisor, step.number);
    case Kind::kAdd: return added(a, b);
    case Kind::kSubtract: return subtracted(a, b);
    case Kind::kMultiply: return multiplied(a, b);
    case Kind::kAtLeastOne: return std::max<std::int64_t>(a, 1);
    case Kind::kReal: return bits(static_cast<double>(a));
    case Kind::kRealMultiply: return bits(real(a) * real(b));
    case Kind::kRealDivide: return bits(real(a) / real(b));
    case Kind::kMagnitude: return bits(std::abs(real(a)));
    case Kind::kRounded: return std::llround(real(a));
  }
  return 0;
}

bool answer(Asked asked, std::int64_t a, std::int64_t b) {
  if (asked == Asked::kEqual) return a == b;
  return asked == Asked::kLess ? a < b : real(a) < real(b);
}

}  // namespace

std::optional<Recording> Recording::make(const ExecutionGraph& graph, Seeds seeds,
                                         const std::vector<External>& externals) {
  Tape tape;
  Tracker tracker(graph, rules_of(graph), std::move(seeds), externals, &tape);
  if (!tracker.run()) return {};
  const auto edits = tracker.edits();
  if (!edits || !one_way_each(tape, edits->integers)) return {};
  Recording made;
  made.edits_ = steps_of(tape, *edits);
  made.steps_.assign(tape.steps().begin(), tape.steps().end());
  made.guards_ = tape.guards();
  return made;
}

bool Recording::compute(std::int64_t size, std::vector<std::int64_t>& numbers) const {
  numbers.resize(steps_.size());
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    numbers[i] = result(steps_[i], size, numbers.data());
  }
  return std::all_of(guards_.begin(), guards_.end(), [&](const Tape::Guard& guard) {
    return answer(guard.asked, numbers[guard.a], numbers[guard.b]) == guard.outcome;
  });
}

IntegerStep Recording::constant(std::int64_t number) {
  steps_.push_back({.kind = Kind::kConstant, .number = number});
  return {static_cast<std::uint32_t>(steps_.size() - 1)};
}

RealStep Recording::constant(double number) {
  steps_.push_back({.kind = Kind::kRealConstant, .factor = number});
  return {static_cast<std::uint32_t>(steps_.size() - 1)};
}

bool Recording::is(IntegerStep of, std::int64_t number) const {
  const Step& step = steps_[of.step];
  return step.kind == Kind::kConstant && step.number == number;
}

bool Recording::is(RealStep of, double number) const {
  const Step& step = steps_[of.step];
  return step.kind == Kind::kRealConstant && bits(step.factor) == bits(number);
}

template <class Kind, class Original>
void Recording::complete(std::span<Recording> recordings, Kind StepEdits::*kind,
                         Original&& original) {
  std::set<std::uint32_t> changed;
  for (const Recording& recording : recordings) {
    for (const auto& [at, value] : recording.edits_.*kind) {
      if (!recording.is(value, original(at))) changed.insert(at);
    }
  }
  for (Recording& recording : recordings) {
    const Kind known = std::move(recording.edits_.*kind);
    Kind all;
    auto next = known.begin();
    for (std::uint32_t at : changed) {
      while (next != known.end() && next->at < at) ++next;
      const bool has = next != known.end() && next->at == at;
      all.push_back({at, has ? next->value : recording.constant(original(at))});
    }
    recording.edits_.*kind = std::move(all);
  }
}

void Recording::finish(std::span<Recording> recordings, const ExecutionGraph& graph) {
  complete(recordings, &StepEdits::sizes, [&](auto at) { return graph.shape_pool[at]; });
  complete(recordings, &StepEdits::numels, [&](auto at) { return graph.tensors[at].numel; });
  complete(recordings, &StepEdits::offsets, [&](auto at) { return graph.tensors[at].offset; });
  complete(recordings, &StepEdits::integers, [&](auto at) { return graph.arguments[at].integer; });
  complete(recordings, &StepEdits::reals, [&](auto at) { return graph.arguments[at].real; });
  for (Recording& recording : recordings) recording.compact();
}

template <class Visit>
void Recording::each_result(Visit&& visit) {
  for (auto* places : {&edits_.sizes, &edits_.numels, &edits_.offsets, &edits_.integers}) {
    for (auto& place : *places) visit(place.value.step);
  }
  for (auto& shape : edits_.shapes) {
    for (IntegerStep& size : shape.sizes) visit(size.step);
  }
  for (auto& list : edits_.lists) {
    visit(list.length.step);
    for (IntegerStep& value : list.values) visit(value.step);
  }
  for (auto& place : edits_.reals) visit(place.value.step);
  for (Tape::Guard& guard : guards_) {
    visit(guard.a);
    visit(guard.b);
  }
}

// Leaves come first, for they wait for nothing.
void Recording::compact() {
  std::vector<bool> needed(steps_.size(), false);
  each_result([&](std::uint32_t step) { needed[step] = true; });
  for (std::size_t i = steps_.size(); i-- > 0;) {
    if (needed[i] && !is_leaf(steps_[i])) needed[steps_[i].a] = needed[steps_[i].b] = true;
  }
  std::vector<Step> kept;
  std::vector<std::uint32_t> now(steps_.size());
  for (bool leaves : {true, false}) {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      if (!needed[i] || is_leaf(steps_[i]) != leaves) continue;
      now[i] = static_cast<std::uint32_t>(kept.size());
      Step step = steps_[i];
      step.tape = nullptr;
      step.index = now[i];
      if (!leaves) step.a = now[step.a], step.b = now[step.b];
      kept.push_back(step);
    }
  }
  steps_ = std::move(kept);
  each_result([&](std::uint32_t& step) { step = now[step]; });
}

}  // namespace perfmodel::resize
