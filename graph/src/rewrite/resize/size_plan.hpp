#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// The change of a graph's batch (or sequence) prepared once for many sizes: set_batch_size() in
/// microseconds.
///
/// The rules of the rewrite run once and record how each number of the new graph comes from the new
/// size X (sizes a * X^p + b rounded, strides and offsets as their sums and products), and the
/// answer to every comparison that decided anything. apply() computes the numbers, checks that all
/// answers are the same and writes the numbers into a copy of the graph. If an answer differs, it
/// tries a second recording (of X = 1, where dimensions drop out). If none fits, or ops would get
/// lists of another length, it does the whole rewrite. Result and errors always equal
/// set_batch_size()'s, byte for byte.
///
///   const auto plan = SizePlan::batch(graph);   // once
///   SizePlan::Scratch scratch;                  // one per thread
///   for (std::int64_t batch : asked) {
///     if (const auto done = plan->apply(batch, scratch); !done) ...
///     use(scratch.graph());
///   }
///
/// Plans do not change once made: threads may share one, and copies share what it holds. A plan
/// keeps the graph that it got. It throws only std::bad_alloc; plan and scratch may be used again
/// after it.
class SizePlan {
  struct Recorded;

 public:
  /// `current`: the size to replace, 0: inferred from the inputs. Errors: none or several such
  /// sizes, as set_batch_size() says it; a graph that refuses every other size gives a plan whose
  /// apply() says so.
  static Result<SizePlan> batch(ExecutionGraph graph, std::int64_t current = 0);
  /// As set_sequence_length().
  static Result<SizePlan> sequence(ExecutionGraph graph, std::int64_t current = 0);

  const ExecutionGraph& graph() const;  ///< as it was
  std::int64_t current() const;         ///< its batch or sequence

  /// A graph whose sizes plans change in place. Any plan may fill any scratch; one that it filled
  /// last time costs no copy.
  class Scratch {
   public:
    /// As the last apply() without an error left it; empty before.
    const ExecutionGraph& graph() const { return whole_ ? rewritten_ : copy_; }
    /// Per node: whether sizes of the last plan give its tensors other shapes. Null: any may have.
    const std::vector<bool>* reshaped() const;

   private:
    friend class SizePlan;
    std::shared_ptr<const Recorded> of_;  // whose graph `copy_` is, with other numbers
    ExecutionGraph copy_, rewritten_;
    bool whole_ = false;                 // the last one was a whole rewrite
    std::vector<std::int64_t> numbers_;  // results of the recording's steps; doubles as their bits
  };

  /// Afterwards `scratch.graph()` is set_batch_size(graph(), {size, current}). Errors: its own;
  /// the scratch then keeps its graph.
  Result<void> apply(std::int64_t size, Scratch& scratch) const;

  /// Whether apply(size) needs no whole rewrite.
  bool recorded(std::int64_t size) const;

 private:
  explicit SizePlan(std::shared_ptr<const Recorded> recorded) : recorded_(std::move(recorded)) {}
  static Result<SizePlan> make(ExecutionGraph graph, bool batch, std::int64_t current);

  std::shared_ptr<const Recorded> recorded_;
};

}  // namespace perfmodel
