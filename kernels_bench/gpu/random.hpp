#pragma once

#include <cmath>
#include <cstdint>

#include "../kernels/portability.hpp"

/// Counter-based random numbers: a number depends on its key and its place alone, so that any
/// launch shape gives the same data, and the CPU can compute them again.
namespace kernels_bench::gpu {

/// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
PM_HD inline std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

PM_HD inline std::uint64_t random_bits(std::uint64_t key, std::uint64_t place) {
  return mix(key ^ mix(place));
}

/// In [0, 1), 53 bits.
PM_HD inline double random_unit(std::uint64_t key, std::uint64_t place) {
  return static_cast<double>(random_bits(key, place) >> 11) * 0x1p-53;
}

PM_HD inline std::int64_t random_below(std::uint64_t key, std::uint64_t place, std::int64_t limit) {
  const auto k = static_cast<std::int64_t>(random_unit(key, place) * static_cast<double>(limit));
  return k < limit ? k : limit - 1;
}

/// A permutation of [0, size): four Feistel rounds over the next power of four, walked until the
/// number falls inside (four steps at most on average).
PM_HD inline std::int64_t shuffled(std::int64_t number, std::int64_t size, std::uint64_t key) {
  int half_bits = 1;
  while ((std::int64_t{1} << (2 * half_bits)) < size) ++half_bits;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  auto value = static_cast<std::uint64_t>(number);
  do {
    std::uint64_t left = value >> half_bits, right = value & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t next = left ^ (random_bits(key + round, right) & mask);
      left = right;
      right = next;
    }
    value = left << half_bits | right;
  } while (value >= static_cast<std::uint64_t>(size));
  return static_cast<std::int64_t>(value);
}

/// Ranks 1..n with probability ~ rank^-s, s > 0, by rejection-inversion: Hoermann, Derflinger,
/// "Rejection-inversion to generate variates from monotone discrete distributions", ACM TOMACS 6,
/// 1996. Under two tries on average whatever s and n.
struct ZipfSampler {
  double s = 1, n = 1;
  double upper = 0, lower = 0;  ///< bounds of the integral that is inverted
  double accept = 0;            ///< closer to the rank than this: taken without a second test

  PM_HD double density(double x) const { return exp(-s * log(x)); }
  PM_HD double integral(double x) const {
    const double t = 1 - s;
    return fabs(t) < 1e-9 ? log(x) : expm1(t * log(x)) / t;
  }
  PM_HD double inverse(double y) const {
    const double t = 1 - s;
    if (fabs(t) < 1e-9) return exp(y);
    const double scaled = t * y;  // above -1 except for rounding
    return exp(log1p(scaled > -1 ? scaled : -1 + 1e-16) / t);
  }

  PM_HD std::int64_t rank(std::uint64_t key, std::uint64_t place) const {
    for (std::uint64_t attempt = 0;; ++attempt) {
      const double u = upper + random_unit(key + attempt, place) * (lower - upper);
      const double x = inverse(u);
      double k = floor(x + 0.5);
      k = k < 1 ? 1 : k > n ? n : k;
      if (k - x <= accept || u >= integral(k + 0.5) - density(k)) {
        return static_cast<std::int64_t>(k);
      }
    }
  }
};

inline ZipfSampler make_zipf_sampler(double exponent, std::int64_t rows) {
  ZipfSampler zipf;
  zipf.s = exponent;
  zipf.n = static_cast<double>(rows);
  zipf.upper = zipf.integral(zipf.n + 0.5);
  zipf.lower = zipf.integral(1.5) - 1;
  zipf.accept = 2 - zipf.inverse(zipf.integral(2.5) - zipf.density(2));
  return zipf;
}

}  // namespace kernels_bench::gpu
