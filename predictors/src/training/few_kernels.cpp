#include "few_kernels.hpp"

#include <Eigen/Dense>
#include <array>
#include <cmath>

#include "base/random_sample.hpp"
#include "outcomes.hpp"

namespace perfmodel::training {

using learned::Correction;

namespace {

/// Standard deviations of a log ratio: the part that similar kernels share, and a kernel's own.
struct Spread {
  double alike = 0, own = 0;
};
// Softmax and norms of three GPUs left out chose the first and the next line (A100, P4, MI210).
constexpr Spread kSpreads[] = {{.alike = 0.2, .own = 0.05}, {.alike = 0, .own = 0.3}};
constexpr std::array kVariances = {0.25, 0.04, 0.04};  // per term: level, two slopes
constexpr std::size_t kMostKernels = 500;              // their matrix is inverted

struct MeasuredKernel {
  std::array<double, Correction::kTerms> terms;
  std::vector<double> axes;
  double log_ratio = 0;
};

double covariance(const MeasuredKernel& a, const MeasuredKernel& b, double alike) {
  double sum = alike * alike * Correction::likeness(a.axes, b.axes);
  for (std::size_t t = 0; t < a.terms.size(); ++t) sum += kVariances[t] * a.terms[t] * b.terms[t];
  return sum;
}

FewKernels fitted(const std::vector<MeasuredKernel>& kernels, const Spread& spread) {
  const auto count = static_cast<Eigen::Index>(kernels.size());
  const Eigen::MatrixXd one = Eigen::MatrixXd::Identity(count, count);
  Eigen::MatrixXd gram = spread.own * spread.own * one;
  Eigen::VectorXd ratios(count);
  for (Eigen::Index i = 0; i < count; ++i) {
    ratios[i] = kernels[i].log_ratio;
    for (Eigen::Index j = 0; j < count; ++j) {
      gram(i, j) += covariance(kernels[i], kernels[j], spread.alike);
    }
  }
  const Eigen::MatrixXd inverse = gram.llt().solve(one);
  const Eigen::VectorXd shares = inverse * ratios;
  FewKernels made;
  for (Eigen::Index i = 0; i < count; ++i) {
    for (std::size_t t = 0; t < kVariances.size(); ++t) {
      made.correction.weights[t] += kVariances[t] * shares[i] * kernels[i].terms[t];
    }
    if (spread.alike > 0) {
      made.correction.anchors.push_back({kernels[i].axes, spread.alike * spread.alike * shares[i]});
    }
    made.error += std::abs(shares[i] / inverse(i, i)) / static_cast<double>(count);
    made.error_without += std::abs(ratios[i]) / static_cast<double>(count);
  }
  return made;
}

}  // namespace

std::vector<JudgedRow> judged_rows(const learned::LearnedModel& model, const Samples& samples) {
  std::vector<JudgedRow> rows;
  for (const Sample& sample : samples) {
    const Outcome outcome = outcome_of(model, sample);
    learned::FeatureRow features;
    const Price base = KernelModels::heuristic().price(sample.row->work, *sample.gpu);
    if (!outcome.above_floor ||
        !model.features().fill(sample.row->work, *sample.gpu, base, features)) {
      continue;
    }
    rows.push_back({sample, features, std::log(outcome.kernel_us / outcome.price.time.count())});
  }
  return rows;
}

FewKernels correction_of(const learned::LearnedModel& model, const std::string& gpu,
                         const Samples& few) {
  Samples drawn;
  for (const std::size_t i : random_sample(few.size(), kMostKernels, 1)) drawn.push_back(few[i]);
  const learned::FeatureSet& set = model.features();
  std::vector<MeasuredKernel> kernels;
  for (const JudgedRow& row : judged_rows(model, drawn)) {
    kernels.push_back(
        {Correction::terms(set, row.features), Correction::axes(set, row.features), row.log_ratio});
  }
  FewKernels alike = fitted(kernels, kSpreads[0]), linear = fitted(kernels, kSpreads[1]);
  FewKernels made = alike.error <= linear.error ? std::move(alike) : std::move(linear);
  made.given = drawn.size();
  made.correction.gpu = gpu;
  made.correction.rows = static_cast<int>(kernels.size());
  return made;
}

}  // namespace perfmodel::training
