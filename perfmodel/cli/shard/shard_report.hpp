#pragma once

#include <string>
#include <string_view>

#include "perfmodel/result.hpp"
#include "sharding/study/priced_plans.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

std::string shard_text(const sharding::ShardReport& report, bool bold);
Json shard_json(const sharding::ShardReport& report);

/// Load and memory of every GPU under the first plan.
Result<std::string> shard_svg(const sharding::ShardReport& report);

}  // namespace perfmodel::cli
