#pragma once

#include <string>

#include "sharding/study/priced_plans.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

std::string shard_text(const sharding::ShardReport& report, bool bold);
Json shard_json(const sharding::ShardReport& report);

}  // namespace perfmodel::cli
