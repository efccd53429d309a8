#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace perfmodel {

/// From 0 to limit - 1, each equally likely. Equal on every machine, which the distributions of
/// <random> are not.
std::size_t random_below(std::mt19937_64& random, std::size_t limit);

/// min(k, n) different rows, each set of rows equally likely, in the order they are drawn. Equal on
/// every machine, and a smaller k gives the beginning of the same list: curves over k are nested.
std::vector<std::size_t> random_sample(std::size_t n, std::size_t k, std::uint64_t seed);

}  // namespace perfmodel
