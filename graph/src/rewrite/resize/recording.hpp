#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "edits.hpp"
#include "number.hpp"
#include "tracker.hpp"

namespace perfmodel::resize {

/// Numbers of steps.
struct IntegerStep {
  std::uint32_t step = 0;
};
struct RealStep {
  std::uint32_t step = 0;
};
using StepEdits = EditsOf<IntegerStep, RealStep>;

/// Results of all steps, for make_edits(); doubles as their bits.
struct Results {
  const std::vector<std::int64_t>& numbers;
  std::int64_t operator()(IntegerStep of) const { return numbers[of.step]; }
  double operator()(RealStep of) const { return std::bit_cast<double>(numbers[of.step]); }
};

/// One run of the tracker for one size, good for every size that answers all its questions alike. A
/// run without steps changes nothing and is good for any.
class Recording {
 public:
  /// Nothing where that size is refused.
  static std::optional<Recording> make(const ExecutionGraph& graph, Seeds seeds,
                                       const std::vector<External>& externals);

  /// Results of all steps for that size. False: it answers otherwise.
  bool compute(std::int64_t size, std::vector<std::int64_t>& numbers) const;

  const StepEdits& edits() const { return edits_; }

  /// Recordings of one graph write the same places, so that a copy that they share keeps nothing of
  /// another size: a place that one of them changes is set back by the others. Steps that are
  /// needed no more are left out.
  static void finish(std::span<Recording> recordings, const ExecutionGraph& graph);

 private:
  template <class Kind, class Original>
  static void complete(std::span<Recording> recordings, Kind StepEdits::*kind, Original&& original);
  IntegerStep constant(std::int64_t number);
  RealStep constant(double number);
  bool is(IntegerStep step, std::int64_t number) const;
  bool is(RealStep step, double number) const;
  template <class Visit>
  void each_result(Visit&& visit);
  void compact();

  std::vector<Step> steps_;  // operands in front
  std::vector<Tape::Guard> guards_;
  StepEdits edits_;
};

}  // namespace perfmodel::resize
