#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "priced_plans.hpp"
#include "shard_question.hpp"

namespace perfmodel::sharding {

struct SweepQuestion {
  ShardQuestion base;
  std::string axis;                 ///< a name in sweep_axes()
  std::vector<std::string> values;  ///< values of the axis
  std::string plan;                 ///< a file; empty: the best plan for each value
};

struct SweepRow {
  std::string value;
  std::shared_ptr<const LoadedStudy> loaded;  ///< `report` points to it
  std::string error = {};                     ///< why there is no report
  std::optional<ShardReport> report = {};     ///< with one plan
};

/// The best plan for each value, or the given plan under it. Errors (kImpossible): an unknown axis,
/// text that is no value of it; load_study()'s; no value has a report.
Result<std::vector<SweepRow>> sweep_study(const SweepQuestion& asked,
                                          const SearchWatch& watch = {});

}  // namespace perfmodel::sharding
