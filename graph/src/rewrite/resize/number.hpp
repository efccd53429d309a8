#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

namespace perfmodel::resize {

class Tape;

/// One step of a computation; `a` and `b` are the numbers of earlier steps.
struct Step {
  enum class Kind : std::uint8_t {
    kConstant,      ///< `number`
    kRealConstant,  ///< `factor`
    kSize,          ///< the new size of a dimension: see size_after()
    kAdd,
    kSubtract,
    kMultiply,
    kAtLeastOne,  ///< max(a, 1)
    kReal,        ///< a as a double; the next three are of doubles, kRounded gives an integer
    kRealMultiply,
    kRealDivide,
    kMagnitude,
    kRounded
  } kind = Kind::kConstant;
  std::int32_t power = 0;
  std::uint32_t a = 0, b = 0;
  std::int64_t number = 0;  ///< kSize: what is added
  double factor = 0, divisor = 1;
  Tape* tape = nullptr;
  std::uint32_t index = 0;  ///< its own number on the tape
};

/// The comparison of two numbers that a rule asked for.
enum class Asked : std::uint8_t { kEqual, kLess, kRealLess };

/// factor * X^power / divisor + offset, rounded: what a dimension becomes.
std::int64_t size_after(double factor, double x_to_power, double divisor, std::int64_t offset);
double power_of(std::int64_t base, int power);

// As two's complement wraps: products beyond 64 bits are refused later, by their doubles.
constexpr std::int64_t added(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
constexpr std::int64_t subtracted(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}
constexpr std::int64_t multiplied(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
}

/// An integer after the change. While a tape runs, the number remembers how it was computed from
/// the new size, and the tape notes every comparison with its outcome.
class Number {
 public:
  Number(std::int64_t constant = 0) : value_(constant) {}  // NOLINT: a number is a number
  Number(std::int64_t value, const Step* step) : value_(value), step_(step) {}

  /// The bare number, of which a tape learns nothing: to store it, not to decide by it.
  std::int64_t value() const { return value_; }
  const Step* step() const { return step_; }  ///< null: a constant

  friend Number operator+(const Number& a, const Number& b) {
    const std::int64_t value = added(a.value_, b.value_);
    return a.step_ || b.step_ ? made(Step::Kind::kAdd, a, b, value) : Number(value);
  }
  friend Number operator-(const Number& a, const Number& b) {
    const std::int64_t value = subtracted(a.value_, b.value_);
    return a.step_ || b.step_ ? made(Step::Kind::kSubtract, a, b, value) : Number(value);
  }
  friend Number operator*(const Number& a, const Number& b) {
    const std::int64_t value = multiplied(a.value_, b.value_);
    return a.step_ || b.step_ ? made(Step::Kind::kMultiply, a, b, value) : Number(value);
  }
  Number& operator+=(const Number& other) { return *this = *this + other; }
  Number& operator*=(const Number& other) { return *this = *this * other; }
  friend Number at_least_one(const Number& a) {
    const std::int64_t value = std::max<std::int64_t>(a.value_, 1);
    return a.step_ ? made(Step::Kind::kAtLeastOne, a, a, value) : Number(value);
  }

  friend bool operator==(const Number& a, const Number& b) {
    const bool equal = a.value_ == b.value_;
    if (a.step_ || b.step_) note(Asked::kEqual, a, b, equal);
    return equal;
  }
  friend bool operator<(const Number& a, const Number& b) {
    const bool less = a.value_ < b.value_;
    if (a.step_ || b.step_) note(Asked::kLess, a, b, less);
    return less;
  }

 private:
  static Number made(Step::Kind kind, const Number& a, const Number& b, std::int64_t value);
  static void note(Asked asked, const Number& a, const Number& b, bool outcome);

  std::int64_t value_ = 0;
  const Step* step_ = nullptr;
};

/// A double after the change, likewise.
class Real {
 public:
  Real(double constant) : value_(constant) {}  // NOLINT
  Real(double value, const Step* step) : value_(value), step_(step) {}
  explicit Real(const Number& number);

  double value() const { return value_; }
  const Step* step() const { return step_; }

  Real& operator*=(const Real& other);
  Real& operator/=(const Real& other);
  friend Real magnitude(const Real& real);
  friend Number rounded(const Real& real);
  friend bool operator<(const Real& a, const Real& b);

 private:
  double value_ = 0;
  const Step* step_ = nullptr;
};

/// Records how numbers come from the new size, and each comparison on the way. For every size with
/// the same answers the steps give the numbers of another run.
class Tape {
 public:
  struct Guard {
    Asked asked = Asked::kEqual;
    bool outcome = false;
    std::uint32_t a = 0, b = 0;
  };

  const Step* size(double factor, int power, double divisor, std::int64_t offset);
  const Step* constant(std::int64_t number);
  const Step* real_constant(double number);
  const Step* step(Step::Kind kind, const Step* a, const Step* b);
  void guard(Asked asked, const Step* a, const Step* b, bool outcome);

  const std::deque<Step>& steps() const { return steps_; }  ///< operands in front
  const std::vector<Guard>& guards() const { return guards_; }

 private:
  const Step* one_of(Step step);

  std::deque<Step> steps_;  // addresses stay
  std::unordered_multimap<std::uint64_t, const Step*> known_;
  std::vector<Guard> guards_;
  std::unordered_multimap<std::uint64_t, std::size_t> known_guards_;
};

}  // namespace perfmodel::resize
