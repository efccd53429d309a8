#include "random_sample.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace perfmodel {

std::size_t random_below(std::mt19937_64& random, std::size_t limit) {
  const std::uint64_t range = limit;
  const std::uint64_t accepted = std::mt19937_64::max() - std::mt19937_64::max() % range;
  std::uint64_t draw = random();
  while (draw >= accepted) draw = random();
  return static_cast<std::size_t>(draw % range);
}

std::vector<std::size_t> random_sample(std::size_t n, std::size_t k, std::uint64_t seed) {
  std::vector<std::size_t> rows(n);
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  std::mt19937_64 random(seed);
  k = std::min(k, n);
  for (std::size_t i = 0; i < k; ++i) std::swap(rows[i], rows[i + random_below(random, n - i)]);
  rows.resize(k);
  return rows;
}

}  // namespace perfmodel
