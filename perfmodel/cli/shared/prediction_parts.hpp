#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/predict.hpp"

/// What the short and the full text of a prediction share.
namespace perfmodel::cli {

/// One unit for the whole report, so that columns compare.
class TimeUnit {
 public:
  explicit TimeUnit(double us) : milliseconds_(us >= 1000) {}

  std::string name() const { return milliseconds_ ? "ms" : "µs"; }
  std::string operator()(double us) const;

 private:
  bool milliseconds_;
};

/// The name of an op without the autograd engine's prefix, which would leave little room for what
/// tells its ops apart.
std::string op_title(std::string_view name);

/// Counts are whole unless the iterations of a graph differ.
std::string count_text(double count);

/// "a, b and 3 more".
std::string joined(const std::vector<std::string>& list, std::size_t limit);

/// "1.23" or "12,345".
std::string rate_text(double rate);

/// "412 of 700 W, 1.65 J; the limit adds 3.1 % to the step"; empty for a GPU without a limit.
std::string power_text(const Prediction& prediction, const Gpu& gpu);

}  // namespace perfmodel::cli
