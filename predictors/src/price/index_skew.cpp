#include "index_skew.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace perfmodel {
namespace {

/// Integral of x^-s from a to b, stable where s is near 1.
double power_integral(double a, double b, double s) {
  const double ratio = std::log(b / a), e = 1 - s;
  const double growth = std::abs(e * ratio) < 1e-12 ? ratio : std::expm1(e * ratio) / e;
  return std::pow(a, e) * growth;
}

/// Sum of ((k + shift) / (1 + shift))^-s over k = 1..n, n not necessarily whole (the last row
/// counts in part). The divisor keeps every term in (0, 1].
double power_sum(double n, double s, double shift, int exact_rows) {
  const double unit = 1 + shift;
  const auto term = [&](double k) { return std::pow((k + shift) / unit, -s); };
  double total = 0;
  const double whole = std::floor(n);
  const int exact = static_cast<int>(std::min(whole, static_cast<double>(exact_rows)));
  for (int k = 1; k <= exact; ++k) total += term(k);
  if (whole > exact) {
    // Midpoint form of Euler-Maclaurin: sum = integral over [a, b] - (f'(b) - f'(a)) / 24.
    const double a = (exact + 0.5 + shift) / unit, b = (whole + 0.5 + shift) / unit;
    const double slope = -s / unit * (std::pow(b, -s - 1) - std::pow(a, -s - 1));
    total += unit * power_integral(a, b, s) - slope / 24;
  }
  if (n > whole) total += (n - whole) * term(whole + 1);
  return total;
}

}  // namespace

Result<ZipfLaw> check_zipf_law(const ZipfLaw& law) {
  const auto bad = [](const char* name, const char* range, double value) {
    return decline(std::string("Zipf law: expected ") + name + " " + range + ", found " +
                   std::to_string(value));
  };
  if (!(law.rows >= 1) || !std::isfinite(law.rows)) return bad("rows", ">= 1", law.rows);
  if (!(law.exponent >= 0) || !std::isfinite(law.exponent)) {
    return bad("exponent", ">= 0", law.exponent);
  }
  if (!(law.shift > -1) || !std::isfinite(law.shift)) return bad("shift", "> -1", law.shift);
  return law;
}

IndexSkew::IndexSkew(const ZipfLaw& law) : law_(law) {
  PERFMODEL_CHECK(check_zipf_law(law).has_value());
  if (is_uniform()) return;
  const double s = law.exponent, q = law.shift;
  // Powers relative to the first row: nothing overflows for large exponents.
  const auto relative = [&](double k_plus_q) { return std::pow(k_plus_q / (1 + q), -s); };
  const double last = std::floor(law.rows);
  const int exact = static_cast<int>(std::min(last, static_cast<double>(kExactRows)));
  double total = 0;
  for (int k = 1; k <= exact; ++k) {
    probability_[size_] = relative(k + q);
    weight_[size_++] = 1;
  }
  if (last > exact) {
    constexpr std::array<double, kNodesPerBlock> kNode = {-0.8611363115940526, -0.3399810435848563,
                                                          0.3399810435848563, 0.8611363115940526};
    constexpr std::array<double, kNodesPerBlock> kWeight = {0.3478548451374538, 0.6521451548625461,
                                                            0.6521451548625461, 0.3478548451374538};
    const double begin = std::log(exact + 0.5 + q), end = std::log(last + 0.5 + q);
    // 1 - exp(-p T) climbs within a few 1/s of ln k.
    const double wanted = std::ceil((end - begin) * std::max(3.0, 2.5 * s));
    const int blocks = static_cast<int>(std::clamp(wanted, 1.0, double{kMaxBlocks}));
    const double half = 0.5 * (end - begin) / blocks;
    for (int block = 0; block < blocks; ++block) {
      const double middle = begin + (2 * block + 1) * half;
      for (std::size_t i = 0; i < kNodesPerBlock; ++i) {
        const double x = std::exp(middle + half * kNode[i]);
        probability_[size_] = relative(x);
        weight_[size_++] = half * kWeight[i] * x;
      }
    }
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(size_); ++i) {
    total += weight_[i] * probability_[i];
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(size_); ++i) probability_[i] /= total;
}

template <class Function>
double IndexSkew::sum(Function of_probability) const {
  double total = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(size_); ++i) {
    total += weight_[i] * of_probability(probability_[i]);
  }
  return total;
}

double IndexSkew::unique_rows(double lookups) const {
  if (!(lookups > 0)) return 0;
  if (law_.rows == 1) return std::min(1.0, lookups);
  // Fewer than one draw reads no more than itself, whatever the powers say.
  if (is_uniform()) {
    return std::min(lookups, -law_.rows * std::expm1(lookups * std::log1p(-1 / law_.rows)));
  }
  return std::min(
      lookups, sum([&](double p) { return p < 1 ? -std::expm1(lookups * std::log1p(-p)) : 1.0; }));
}

double IndexSkew::top_mass(double rows) const {
  if (!(rows > 0)) return 0;
  if (rows >= law_.rows) return 1;
  if (is_uniform()) return rows / law_.rows;
  const double s = law_.exponent, q = law_.shift;
  return power_sum(rows, s, q, kExactRows) / power_sum(std::floor(law_.rows), s, q, kExactRows);
}

IndexSkew::Lru IndexSkew::lru(double cache_rows) const {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  if (!(cache_rows > 0)) return {0, 0};
  if (cache_rows >= law_.rows * (1 - 1e-12)) return {1, kNever};
  if (is_uniform()) {
    const double share = cache_rows / law_.rows;
    return {share, -law_.rows * std::log1p(-share)};
  }
  // Newton in ln T on ln(filled rows), which is nearly straight; a bracket catches the rest.
  double low = std::log(cache_rows), high = kNever;  // filled(T) <= T
  double x = low;
  for (int step = 0; step < 200; ++step) {
    const double t = std::exp(x);
    double filled = 0, slope = 0;  // slope = d filled / d ln T
    for (std::size_t i = 0; i < static_cast<std::size_t>(size_); ++i) {
      const double pt = probability_[i] * t, miss = std::exp(-pt);
      filled += weight_[i] * (pt < 1e-5 ? pt * (1 - 0.5 * pt) : 1 - miss);
      slope += weight_[i] * pt * miss;
    }
    (filled < cache_rows ? low : high) = x;
    double next = x + filled * std::log(cache_rows / filled) / slope;
    if (!(next > low && next < high)) {
      next = std::isfinite(high) ? 0.5 * (low + high) : low + 1;
    }
    const bool done = std::abs(next - x) < 1e-10 || x > 700;
    x = next;
    if (done) break;
  }
  const double t = std::exp(std::min(x, 700.0));
  const double hit = sum([&](double p) { return -p * std::expm1(-p * t); });
  return {std::clamp(hit, 0.0, 1.0), t};
}

double IndexSkew::lru_misses(double lookups, double cache_rows) const {
  if (!(lookups > 0)) return 0;
  const double unique = unique_rows(lookups);
  const Lru cache = lru(cache_rows);
  if (lookups <= cache.fill_lookups) return unique;
  const double misses = cache_rows + (lookups - cache.fill_lookups) * (1 - cache.hit_rate);
  return std::clamp(misses, unique, lookups);
}

}  // namespace perfmodel
