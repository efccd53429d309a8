#include "family.hpp"

/// Products with hashed weights and the gradients of these, by tiles (ROAST) and by elements
/// (HashedNet): the grid of ROAST's own benchmark, M 32, 128, 1024; K and N 1024, 10240; arrays of
/// 1 to 128 Mi elements.
namespace kernels_bench {
namespace {

constexpr std::int64_t kRowsOfX[] = {32, 128, 1024};
constexpr std::int64_t kSides[] = {1024, 10240};
constexpr std::int64_t kMebiElements[] = {1, 8, 16, 32, 64, 128};
constexpr std::uint64_t kPoints = 2ULL * 2 * std::size(kRowsOfX) * std::size(kSides) *
                                  std::size(kSides) * std::size(kMebiElements);

std::optional<Case> draw_hashed(std::uint64_t, std::uint64_t index, const Limits&) {
  if (index >= kPoints) return std::nullopt;
  const auto next = [&index](std::uint64_t count) {
    const std::uint64_t digit = index % count;
    index /= count;
    return digit;
  };
  HashedProductCase point;
  point.by_elements = next(2) == 1;
  point.weight_gradient = next(2) == 1;
  point.elements = kMebiElements[next(std::size(kMebiElements))] << 20;
  point.m = kRowsOfX[next(std::size(kRowsOfX))];
  point.k = kSides[next(std::size(kSides))];
  point.n = kSides[next(std::size(kSides))];
  return point;
}

constexpr std::string_view kHashedColumns[] = {"op", "dtype", "scheme",   "m",
                                               "n",  "k",     "elements", "direction"};

}  // namespace

const Family kHashedFamily = {
    "hashed", "products with hashed weights", kPoints, false, kHashedColumns, draw_hashed};

}  // namespace kernels_bench
