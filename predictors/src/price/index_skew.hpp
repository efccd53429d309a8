#pragma once

#include <array>

#include "perfmodel/result.hpp"

/// Skew of a table's row reads, and its effect on caches and duplicate indices.
namespace perfmodel {

/// Shifted Zipf law: row k is drawn with p(k) proportional to (k + shift)^-exponent, k = 1..rows;
/// exponent 0 is uniform. FBGEMM's request generator uses shift 2.75, exponent 0.89 as its example.
struct ZipfLaw {
  double rows = 1;      ///< >= 1
  double exponent = 0;  ///< >= 0
  double shift = 0;     ///< > -1
};

/// An error that names the parameter which is out of its range.
Result<ZipfLaw> check_zipf_law(const ZipfLaw& law);

/// Expectations over independent draws from one law.
///
/// Sums over rows run over the first 128 rows one by one, then over nodes of a 4-point Gauss rule
/// in ln(k + shift) with the weights of the midpoint form of Euler-Maclaurin (relative error below
/// 1e-5), so that 1e9 rows cost the same 100 microseconds as 1e4; uniform laws have closed forms
/// and cost nanoseconds. Objects own no memory on the heap and are immutable: share them between
/// threads freely.
class IndexSkew {
 public:
  /// `law` must satisfy `check_zipf_law`.
  explicit IndexSkew(const ZipfLaw& law);

  const ZipfLaw& law() const { return law_; }
  bool is_uniform() const { return law_.exponent == 0 || law_.rows == 1; }

  /// Rows that are read at least once by `lookups` draws: sum over k of 1 - (1 - p_k)^lookups.
  double unique_rows(double lookups) const;

  /// Share of draws that fall on the `rows` most frequent rows: the hit rate of a cache that holds
  /// just them.
  double top_mass(double rows) const;

  /// A least-recently-used cache of whole rows, by Che's approximation (within 0.002 of exact
  /// simulation over 25 laws with exponents 0 to 1.45): the cache holds the rows read within the
  /// last T draws, T from sum 1 - exp(-p_k T) = cache_rows; hit = sum p_k (1 - exp(-p_k T)).
  struct Lru {
    double hit_rate = 0;      ///< long-run share of draws that hit
    double fill_lookups = 0;  ///< T: draws until an empty cache is full; infinite if it never is
  };
  Lru lru(double cache_rows) const;

  /// Expected misses of `lookups` draws into an LRU cache that starts empty: each distinct row once
  /// until the cache is full (T draws), then the long-run rate:
  ///   misses = unique(lookups) if lookups <= T, else cache_rows + (lookups - T) (1 - hit)
  /// and never below unique(lookups).
  double lru_misses(double lookups, double cache_rows) const;

 private:
  static constexpr int kExactRows = 128;
  static constexpr int kMaxBlocks = 96;
  static constexpr int kNodesPerBlock = 4;

  template <class Function>
  double sum(Function of_probability) const;

  ZipfLaw law_;
  int size_ = 0;
  std::array<double, kExactRows + kMaxBlocks * kNodesPerBlock> probability_, weight_;
};

}  // namespace perfmodel
