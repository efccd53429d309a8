#pragma once

#include "sharding/study/shard_question.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// All `shard` commands take these.
struct ShardArguments : sharding::ShardQuestion {
  bool json = false;
};

void add_shard_options(CommandParser app, ShardArguments& arguments);

}  // namespace perfmodel::cli
