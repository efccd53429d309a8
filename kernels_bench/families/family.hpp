#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "../core/cases.hpp"

namespace kernels_bench {

/// Limits on a point: larger ones are drawn again.
struct Limits {
  double flop = 4e12;
  double bytes = 8e9;     ///< memory
  double traffic = 2e11;  ///< bytes moved: 0.04 s at 5 TB/s
};

/// One family of kernels: a sweep and a table, one file each in this folder.
struct Family {
  std::string_view name;                      ///< also of the table: `<name>.csv`
  std::string_view what;                      ///< one line for people
  std::size_t points;                         ///< in the full campaign
  bool is_default;                            ///< part of a campaign that names no families
  std::span<const std::string_view> columns;  ///< its parameters

  /// Point `index` of the sweep: named workload shapes and random ones take turns. Nothing where
  /// a sweep is a list that has come to its end.
  std::optional<Case> (*draw)(std::uint64_t seed, std::uint64_t index, const Limits& limits);
};

/// In the order of a campaign: peaks first.
std::span<const Family* const> families();

/// Null for an unknown name.
const Family* find_family(std::string_view name);

/// The first `count` different points (fewer where the sweep ends before).
std::vector<Case> sweep(const Family& family, std::size_t count, std::uint64_t seed,
                        const Limits& limits);

bool within(const Case& point, const Limits& limits);

/// The first result of `make()` within the limits. Models' shapes are fixed, and small limits may
/// exclude all: then the last of many tries, which `sweep` drops.
template <class Make>
auto first_within(const Limits& limits, Make make) {
  constexpr int kTries = 1000;
  auto point = make();
  for (int i = 1; i < kTries && !within(point, limits); ++i) point = make();
  return point;
}

extern const Family kPeaksFamily, kGemmFamily, kBmmFamily, kEmbeddingFamily, kMemoryFamily,
    kVectorFamily, kConvolutionFamily, kHashedFamily;

}  // namespace kernels_bench
