#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "../core/cases.hpp"

/// The kernels' correct results, in double precision and one row at a time. Plain on purpose:
/// tests and the checks on the device compare with these.
namespace kernels_bench::reference {

using Row = std::vector<double>;

inline double elementwise(ElementwiseCase::Op op, double a, double b, double c) {
  using Op = ElementwiseCase::Op;
  switch (op) {
    case Op::kRelu: return std::max(a, 0.0);
    case Op::kGelu: return a * 0.5 * std::erfc(-a / std::sqrt(2.0));
    case Op::kTanh: return std::tanh(a);
    case Op::kSigmoid: return 1 / (1 + std::exp(-a));
    case Op::kExp: return std::exp(a);
    case Op::kAddScalar: return a + 0.5;
    case Op::kAdd: return a + b;
    case Op::kMul: return a * b;
    case Op::kAddcmul: return a + 0.5 * b * c;
  }
  return std::nan("");
}

inline double sum(const Row& row) {
  double total = 0;
  for (const double value : row) total += value;
  return total;
}

inline double max(const Row& row) { return *std::max_element(row.begin(), row.end()); }

inline Row softmax(const Row& x) {
  const double highest = max(x);
  Row y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = std::exp(x[i] - highest);
  const double total = sum(y);
  for (double& value : y) value /= total;
  return y;
}

inline Row softmax_gradient(const Row& y, const Row& dy) {
  double dot = 0;
  for (std::size_t i = 0; i < y.size(); ++i) dot += y[i] * dy[i];
  Row dx(y.size());
  for (std::size_t i = 0; i < y.size(); ++i) dx[i] = y[i] * (dy[i] - dot);
  return dx;
}

/// mean and 1 / sqrt(variance + 1e-5), biased variance.
struct Statistics {
  double mean = 0, rstd = 0;
};

inline Statistics statistics(const Row& x) {
  const auto count = static_cast<double>(x.size());
  const double mean = sum(x) / count;
  double squares = 0;
  for (const double value : x) squares += (value - mean) * (value - mean);
  return {mean, 1 / std::sqrt(squares / count + 1e-5)};
}

inline Row layer_norm(const Row& x, const Row& weight, const Row& bias) {
  const Statistics s = statistics(x);
  Row y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = (x[i] - s.mean) * s.rstd * weight[i] + bias[i];
  return y;
}

inline Row layer_norm_gradient(const Row& x, const Row& dy, const Row& weight, Statistics s) {
  const auto count = static_cast<double>(x.size());
  double sum_g = 0, sum_gx = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double g = dy[i] * weight[i];
    sum_g += g;
    sum_gx += g * (x[i] - s.mean) * s.rstd;
  }
  Row dx(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double g = dy[i] * weight[i], xhat = (x[i] - s.mean) * s.rstd;
    dx[i] = s.rstd * (g - sum_g / count - xhat * sum_gx / count);
  }
  return dx;
}

/// Sums over one channel: sum(dy) and sum(dy xhat).
struct BatchNormSums {
  double dbias = 0, dweight = 0;
};

inline BatchNormSums batch_norm_sums(const Row& x, const Row& dy, Statistics s) {
  BatchNormSums sums;
  for (std::size_t i = 0; i < x.size(); ++i) {
    sums.dbias += dy[i];
    sums.dweight += dy[i] * (x[i] - s.mean) * s.rstd;
  }
  return sums;
}

inline double batch_norm_gradient(double x, double dy, double weight, Statistics s,
                                  BatchNormSums sums, double count) {
  const double xhat = (x - s.mean) * s.rstd;
  return weight * s.rstd * (dy - sums.dbias / count - xhat * sums.dweight / count);
}

/// Word `index` of Philox4x32-10, written from the paper's round function.
inline std::uint32_t philox_word(std::uint64_t key, std::uint64_t counter, int index) {
  std::uint32_t left0 = static_cast<std::uint32_t>(counter), right0 = counter >> 32;
  std::uint32_t left1 = 0, right1 = 0;
  for (std::uint32_t round = 0; round < 10; ++round) {
    const std::uint32_t key0 = static_cast<std::uint32_t>(key) + round * 0x9E3779B9U;
    const std::uint32_t key1 = static_cast<std::uint32_t>(key >> 32) + round * 0xBB67AE85U;
    const std::uint64_t product0 = 0xD2511F53ULL * left0, product1 = 0xCD9E8D57ULL * left1;
    const auto next_left0 = static_cast<std::uint32_t>(product1 >> 32) ^ right0 ^ key0;
    const auto next_left1 = static_cast<std::uint32_t>(product0 >> 32) ^ right1 ^ key1;
    right0 = static_cast<std::uint32_t>(product1);
    right1 = static_cast<std::uint32_t>(product0);
    left0 = next_left0;
    left1 = next_left1;
  }
  const std::uint32_t words[] = {left0, right0, left1, right1};
  return words[index];
}

inline bool dropout_keeps(std::uint64_t seed, std::int64_t element) {
  const auto counter = static_cast<std::uint64_t>(element / 4);
  return philox_word(seed, counter, static_cast<int>(element % 4)) >= 0x80000000U;
}

/// Row-wise Adagrad of one row whose gradient is already summed over its lookups.
inline void adagrad(Row& row, double& state, const Row& gradient, double learning_rate,
                    double epsilon) {
  double squares = 0;
  for (const double g : gradient) squares += g * g;
  state += squares / static_cast<double>(gradient.size());
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i] -= learning_rate * gradient[i] / (std::sqrt(state) + epsilon);
  }
}

}  // namespace kernels_bench::reference
