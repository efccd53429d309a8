#pragma once

#include <span>
#include <string_view>

#include "fields/field.hpp"
#include "perfmodel/result.hpp"
#include "shard_question.hpp"

namespace perfmodel::sharding {

using ShardField = Field<ShardQuestion, bool, std::uint64_t, std::vector<std::string>,
                         std::optional<std::vector<std::int64_t>>>;

/// All fields but the file of tables and the kernel models, in the order of the help.
std::span<const ShardField> shard_fields();

/// Errors (kImpossible): a word that is no value of its field, by the name of its flag.
Result<void> check_words(const ShardQuestion& question);

/// The inputs that a sweep may change, in alphabetical order: fields by the names of their flags,
/// and factors of bandwidths and of pooling factors.
std::span<const ShardField> sweep_axes();

}  // namespace perfmodel::sharding
