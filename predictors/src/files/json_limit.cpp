#include "json_limit.hpp"

#include <fmt/format.h>

#include <atomic>

#include "perfmodel/graph/detail/read_options.hpp"

namespace perfmodel {
namespace {

std::atomic<std::uint64_t> json_document_bytes = std::uint64_t{1} << 30;

}  // namespace

std::uint64_t json_document_limit() { return json_document_bytes.load(std::memory_order_relaxed); }

Result<void> set_json_document_limit(std::string_view text) {
  ReadLimits limits;  // its sizes have the same form
  if (!set_limit(limits, fmt::format("kept-bytes={}", text))) {
    return fail(ErrorCode::kFormat,
                fmt::format("expected a size of at least 1 byte such as 512MiB (units KiB, MiB, "
                            "GiB), found {}",
                            text));
  }
  json_document_bytes.store(limits.kept_bytes, std::memory_order_relaxed);
  return {};
}

}  // namespace perfmodel
