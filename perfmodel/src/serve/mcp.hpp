#pragma once

#include <cstddef>
#include <string>

#include "perfmodel/result.hpp"
#include "service.hpp"

namespace perfmodel::serve {

/// The answer to one message of the Model Context Protocol (JSON-RPC 2.0; versions 2024-11-05 to
/// 2025-06-18), without a newline; empty for notifications and answers. Tools are the operations of
/// the service, with schemas made of its fields. A tool that fails answers with `isError`; messages
/// that are no requests get the codes of JSON-RPC.
std::string answer_mcp(Service& service, const std::string& message);

/// Serves one client on standard input and output, a message per line, until standard input ends.
/// A line of more than `max_request` bytes is refused. Error: standard output cannot be written.
Result<void> serve_mcp(Service& service, std::size_t max_request);

}  // namespace perfmodel::serve
