#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <iosfwd>
#include <string>

namespace perfmodel {

/// While it lives, this thread begins no bars: its terminal is another program's.
class QuietProgress {
 public:
  QuietProgress();
  ~QuietProgress();
  QuietProgress(const QuietProgress&) = delete;
  QuietProgress& operator=(const QuietProgress&) = delete;

 private:
  const bool outer_;
};

/// One line that shows how far a long computation is:
///
///   fit gemm [#######.................]  30 %  1 min 10 s left
///
/// or, for bytes that are read, from one second on:
///
///   rank0.json [#######.................]  30 %  412 MB/s  4 s left
///
/// or, for the tries of a search, whose number is not known, from one second on:
///
///   optimize 57 tried  3 s
///
/// It is redrawn at most ten times a second and erased at the end, so that what is printed next
/// starts on a clean line. The remaining time assumes that steps take equally long; it is shown
/// from one second on. For one thread.
class ProgressBar {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;

  /// The unit of the steps. kBytes: shows the rate, and nothing in the first second; 0 bytes in all
  /// means that their number is not known. kTries: their number is not known, nor shown at first.
  enum class Unit { kSteps, kBytes, kTries };

  /// On stderr if that is a terminal that can return to the start of a line; else nothing is
  /// written.
  ProgressBar(std::string label, std::size_t steps, Unit unit = Unit::kSteps);

  /// `out` may be nullptr: nothing is written.
  ProgressBar(std::string label, std::size_t steps, std::ostream* out, Clock clock,
              Unit unit = Unit::kSteps);

  ~ProgressBar() { finish(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `done` of the steps are done.
  void update(std::size_t done);

  /// One step more is done.
  void advance() { update(done_ + 1); }

  /// Erases the line; later calls write nothing.
  void finish();

 private:
  std::string line(std::chrono::duration<double> elapsed) const;
  std::string rate(std::chrono::duration<double> elapsed) const;

  std::string label_;
  std::size_t steps_ = 0, done_ = 0;
  Unit unit_ = Unit::kSteps;
  std::ostream* out_ = nullptr;
  Clock clock_;
  std::chrono::steady_clock::time_point start_, drawn_;
  std::size_t width_ = 0;  ///< characters on the line now
};

}  // namespace perfmodel
