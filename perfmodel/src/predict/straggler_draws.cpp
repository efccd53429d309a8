#include "predict/straggler_draws.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "base/decimal_number.hpp"
#include "base/impossible.hpp"

namespace perfmodel::sync {
namespace {

using Kind = Straggler::Kind;

constexpr std::int64_t kMostDrawnSingly = 1024;

// splitmix64 (Steele et al. 2014): equal on every machine.
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Two numbers between 0 and 1, borders excluded.
std::pair<double, double> uniform_pair(std::uint64_t seed, std::uint64_t worker,
                                       std::uint64_t step) {
  const std::uint64_t one = mixed(mixed(mixed(seed) ^ worker) ^ step), two = mixed(one);
  const auto unit = [](std::uint64_t bits) {
    return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
  };
  return {unit(one), unit(two)};
}

double normal(const std::pair<double, double>& uniform) {
  return std::sqrt(-2 * std::log(uniform.first)) * std::cos(2 * std::numbers::pi * uniform.second);
}

double drawn_factor(const Straggler& straggler, const std::pair<double, double>& uniform) {
  const double s = straggler.spread;
  switch (straggler.kind) {
    case Kind::kNone: return 1;
    case Kind::kLognormal: return std::exp(s * normal(uniform) - s * s / 2);
    case Kind::kUniform: return 1 - s + 2 * s * uniform.first;
    case Kind::kExponential: return 1 - s * std::log(uniform.first);
    case Kind::kPause: return uniform.first < s ? straggler.factor : 1;
  }
  return 1;
}

double variance_of(const Straggler& straggler) {
  const double s = straggler.spread;
  switch (straggler.kind) {
    case Kind::kNone: return 0;
    case Kind::kLognormal: return std::exp(s * s) - 1;
    case Kind::kUniform: return s * s / 3;
    case Kind::kExponential: return s * s;
    case Kind::kPause: return s * (1 - s) * (straggler.factor - 1) * (straggler.factor - 1);
  }
  return 0;
}

std::optional<double> number_in(std::string_view text) {
  double value = 0;
  if (!read_decimal(text, value) || !std::isfinite(value)) return std::nullopt;
  return value;
}

struct NamedKind {
  std::string_view name;
  Kind kind;
  double most;  // largest spread
};
constexpr std::array<NamedKind, 4> kKinds = {{{"lognormal", Kind::kLognormal, 5},
                                              {"uniform", Kind::kUniform, 0.999},
                                              {"exponential", Kind::kExponential, 1000},
                                              {"pause", Kind::kPause, 1}}};

}  // namespace

Result<Straggler> Straggler::parse(std::string_view text) {
  if (text == "none") return Straggler{};
  std::vector<std::string_view> parts;
  for (std::string_view rest = text;;) {
    const std::size_t colon = rest.find(':');
    parts.push_back(rest.substr(0, colon));
    if (colon == std::string_view::npos) break;
    rest.remove_prefix(colon + 1);
  }
  for (const NamedKind& known : kKinds) {
    if (parts.front() != known.name) continue;
    if (parts.size() != (known.kind == Kind::kPause ? 3U : 2U)) break;
    Straggler made{.kind = known.kind};
    const auto spread = number_in(parts[1]);
    const auto factor = parts.size() == 3 ? number_in(parts[2]) : std::optional(1.0);
    if (!spread || *spread < 0 || *spread > known.most || !factor || *factor < 1) break;
    made.spread = *spread;
    made.factor = *factor;
    return made;
  }
  return impossible(
      "none, lognormal:DEVIATION (to 5), uniform:SHARE (below 1), exponential:SHARE or "
      "pause:PROBABILITY:FACTOR (from 1)",
      fmt::format("\"{}\"", text));
}

double Straggler::mean() const {
  switch (kind) {
    case Kind::kExponential: return 1 + spread;
    case Kind::kPause: return 1 + spread * (factor - 1);
    default: return 1;
  }
}

double steps_us(const Worker& worker, std::size_t index, std::uint64_t seed, std::int64_t first,
                std::int64_t count) {
  const Straggler& straggler = worker.straggler;
  if (straggler.kind == Kind::kNone) return worker.step_us * static_cast<double>(count);
  const auto drawn = [&](std::int64_t step) {
    return uniform_pair(seed, index, static_cast<std::uint64_t>(step));
  };
  const auto n = static_cast<double>(count);
  if (count > kMostDrawnSingly) {
    const double sum =
        n * straggler.mean() + std::sqrt(n * variance_of(straggler)) * normal(drawn(first));
    return worker.step_us * std::max(sum, n * 1e-3);
  }
  double sum = 0;
  for (std::int64_t k = 0; k < count; ++k) sum += drawn_factor(straggler, drawn(first + k));
  return worker.step_us * sum;
}

}  // namespace perfmodel::sync
