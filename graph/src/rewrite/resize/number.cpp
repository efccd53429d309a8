#include "number.hpp"

#include <bit>
#include <cmath>

#include "perfmodel/graph/detail/string_pool.hpp"

namespace perfmodel::resize {
namespace {

const Step* step_of(Tape& tape, const Number& number) {
  return number.step() ? number.step() : tape.constant(number.value());
}
const Step* step_of(Tape& tape, const Real& real) {
  return real.step() ? real.step() : tape.real_constant(real.value());
}

template <class Value>
Tape& tape_of(const Value& a, const Value& b) {
  return *(a.step() ? a.step() : b.step())->tape;
}

bool same(const Step& a, const Step& b) {
  return a.kind == b.kind && a.power == b.power && a.a == b.a && a.b == b.b &&
         a.number == b.number &&
         std::bit_cast<std::uint64_t>(a.factor) == std::bit_cast<std::uint64_t>(b.factor) &&
         a.divisor == b.divisor;
}

bool same(const Tape::Guard& a, const Tape::Guard& b) {
  return a.asked == b.asked && a.outcome == b.outcome && a.a == b.a && a.b == b.b;
}

}  // namespace

double power_of(std::int64_t base, int power) {
  const auto x = static_cast<double>(base);
  return power == 1 ? x : std::pow(x, power);
}

std::int64_t size_after(double factor, double x_to_power, double divisor, std::int64_t offset) {
  return added(std::llround(factor * x_to_power / divisor), offset);
}

Number Number::made(Step::Kind kind, const Number& a, const Number& b, std::int64_t value) {
  // An operation that changes nothing is no step.
  if (kind == Step::Kind::kMultiply && !a.step_ && a.value_ == 1) return b;
  if (kind == Step::Kind::kMultiply && !b.step_ && b.value_ == 1) return a;
  if (kind == Step::Kind::kMultiply && ((!a.step_ && a.value_ == 0) || (!b.step_ && b.value_ == 0)))
    return 0;
  if (kind == Step::Kind::kAdd && !a.step_ && a.value_ == 0) return b;
  if (kind != Step::Kind::kMultiply && !b.step_ && b.value_ == 0) return a;
  Tape& tape = tape_of(a, b);
  return {value, tape.step(kind, step_of(tape, a), step_of(tape, b))};
}

void Number::note(Asked asked, const Number& a, const Number& b, bool outcome) {
  Tape& tape = tape_of(a, b);
  tape.guard(asked, step_of(tape, a), step_of(tape, b), outcome);
}

Real::Real(const Number& number) : value_(static_cast<double>(number.value())) {
  if (const Step* of = number.step()) step_ = of->tape->step(Step::Kind::kReal, of, of);
}

Real& Real::operator*=(const Real& other) {
  if (!step_ && value_ == 1) return *this = other;
  if (step_ || other.step_) {
    Tape& tape = tape_of(*this, other);
    step_ = tape.step(Step::Kind::kRealMultiply, step_of(tape, *this), step_of(tape, other));
  }
  value_ *= other.value_;
  return *this;
}

Real& Real::operator/=(const Real& other) {
  if (step_ || other.step_) {
    Tape& tape = tape_of(*this, other);
    step_ = tape.step(Step::Kind::kRealDivide, step_of(tape, *this), step_of(tape, other));
  }
  value_ /= other.value_;
  return *this;
}

Real magnitude(const Real& real) {
  const double value = std::abs(real.value_);
  if (!real.step_) return value;
  return {value, real.step_->tape->step(Step::Kind::kMagnitude, real.step_, real.step_)};
}

bool operator<(const Real& a, const Real& b) {
  const bool less = a.value_ < b.value_;
  if (a.step_ || b.step_) {
    Tape& tape = tape_of(a, b);
    tape.guard(Asked::kRealLess, step_of(tape, a), step_of(tape, b), less);
  }
  return less;
}

Number rounded(const Real& real) {
  const std::int64_t value = std::llround(real.value_);
  if (!real.step_) return value;
  return {value, real.step_->tape->step(Step::Kind::kRounded, real.step_, real.step_)};
}

const Step* Tape::one_of(Step step) {
  std::uint64_t key = hash_mix(static_cast<std::uint64_t>(step.kind), step.a);
  key = hash_mix(key, step.b);
  key = hash_mix(key, static_cast<std::uint64_t>(step.number));
  key = hash_mix(key, std::bit_cast<std::uint64_t>(step.factor));
  const auto [begin, end] = known_.equal_range(key);
  for (auto at = begin; at != end; ++at) {
    if (same(*at->second, step)) return at->second;
  }
  step.tape = this;
  step.index = static_cast<std::uint32_t>(steps_.size());
  steps_.push_back(step);
  known_.emplace(key, &steps_.back());
  return &steps_.back();
}

const Step* Tape::size(double factor, int power, double divisor, std::int64_t offset) {
  return one_of({.kind = Step::Kind::kSize,
                 .power = power,
                 .number = offset,
                 .factor = factor,
                 .divisor = divisor});
}

const Step* Tape::constant(std::int64_t number) {
  return one_of({.kind = Step::Kind::kConstant, .number = number});
}

const Step* Tape::real_constant(double number) {
  return one_of({.kind = Step::Kind::kRealConstant, .factor = number});
}

const Step* Tape::step(Step::Kind kind, const Step* a, const Step* b) {
  return one_of({.kind = kind, .a = a->index, .b = b->index});
}

void Tape::guard(Asked asked, const Step* a, const Step* b, bool outcome) {
  const Guard made{.asked = asked, .outcome = outcome, .a = a->index, .b = b->index};
  const std::uint64_t key = hash_mix(made.a, made.b);
  const auto [begin, end] = known_guards_.equal_range(key);
  for (auto at = begin; at != end; ++at) {
    if (same(guards_[at->second], made)) return;
  }
  guards_.push_back(made);
  known_guards_.emplace(key, guards_.size() - 1);
}

}  // namespace perfmodel::resize
