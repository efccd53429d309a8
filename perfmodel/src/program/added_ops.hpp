#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "host_program.hpp"

namespace perfmodel {

/// Ops that a strategy adds to a program. They cost the host as much as such ops cost in the table,
/// and belong to thread, phase and step of the item that they are `like`.
class AddedOps {
 public:
  using Place = std::vector<Instruction>;

  AddedOps(const Gpu& gpu, const OverheadTable& table, LoweredProgram& program);

  Place& before(std::int32_t item) { return before_[item]; }
  Place& after(std::int32_t item) { return after_[item]; }

  /// `count` ops of one name that launch nothing.
  void add_host_ops(std::int32_t like, std::string_view title, std::string_view op,
                    std::size_t count, Place& place);
  /// An op with one kernel on the main stream.
  void add_kernel(std::int32_t like, std::string_view title, std::string_view op, KernelWork work,
                  Place& place);
  /// A collective as PyTorch launches one, on a stream of its own. `how` describes its waits.
  /// Returns its number, for `add_wait`.
  std::int64_t add_collective(std::int32_t like, std::string_view title, KernelWork work,
                              CollectiveLaunch how, Place& place);
  void add_wait(std::int32_t like, std::int64_t sequence, Place& place) const;
  void add_mark(std::int32_t like, std::int32_t number, Place& place) const;

  std::size_t collectives() const { return collectives_; }  ///< added so far

  /// Puts all of them between the program's own instructions.
  void splice();

 private:
  std::int32_t add_item(std::int32_t like, std::string_view title);
  void add(std::int32_t item, decltype(Instruction::what) what, Place& place) const;
  void add_gap(std::int32_t item, double ops, Place& place) const;
  void add_launching_op(std::int32_t like, std::string_view title, std::string_view op,
                        Launch launch, PredictedKernel kernel, KernelQuestion question,
                        Place& place);

  const Gpu& gpu_;
  const OverheadTable& table_;
  LoweredProgram& lowered_;
  std::int32_t collective_stream_ = 1;
  std::size_t collectives_ = 0;
  std::vector<Place> before_, after_;  // per item of the program as it was
};

}  // namespace perfmodel
