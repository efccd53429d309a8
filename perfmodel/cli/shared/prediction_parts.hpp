#pragma once

#include <string>
#include <vector>

#include "predict/prediction_report.hpp"

/// Parts that the short and the full text of a prediction share.
namespace perfmodel::cli {

/// One unit for the whole report, so that columns compare.
class TimeUnit {
 public:
  explicit TimeUnit(double us) : milliseconds_(us >= 1000) {}

  std::string name() const { return milliseconds_ ? "ms" : "µs"; }
  std::string operator()(double us) const;
  std::string with_name(double us) const { return (*this)(us) + " " + name(); }

 private:
  bool milliseconds_;
};

/// The cells of a family of kernels: name, count, time, share of all kernels, low, high, bound and
/// model.
std::vector<std::string> family_cells(const FamilyTotal& family, const TimeUnit& time,
                                      double all_us);

/// "aten::foo (3)" of each op without a model.
std::vector<std::string> unmodelled_ops(const Prediction::Coverage& coverage);

/// Counts are whole unless the iterations of a graph differ.
std::string count_text(double count);

/// "a, b and 3 more".
std::string joined(const std::vector<std::string>& list, std::size_t limit);

/// "1.23" or "12,345".
std::string rate_text(double rate);

/// "412 of 700 W, 1.65 J; the limit adds 3.1 % to the step"; empty for a GPU without a limit.
std::string power_text(const Prediction& prediction, const Gpu& gpu);

/// A paragraph that names ops without a model; empty without any.
std::string unmodelled_text(const std::vector<std::string>& ops);

}  // namespace perfmodel::cli
