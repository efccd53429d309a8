#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <vector>

#include "fields/field.hpp"
#include "request.hpp"

namespace perfmodel::serve {

inline constexpr double kMaxSize = double(std::int64_t{1} << 40);

using RequestField = Field<Request, std::int64_t, bool, std::optional<ParallelStrategy>>;

/// The field of a key that is no part of a layout; nullptr: there is none.
const RequestField* find_request_field(std::string_view key);

/// An operation of the protocol.
struct RequestOp {
  std::string_view name;
  Op op;
  std::string_view help;  ///< one sentence; empty: an operation about the server itself
  std::vector<std::string_view> keys, needed;
};
const std::vector<RequestOp>& request_ops();

/// JSON schema of the object that an operation takes, made of its fields.
nlohmann::ordered_json request_schema(const RequestOp& op);

}  // namespace perfmodel::serve
