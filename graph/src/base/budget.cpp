#include "base/budget.hpp"

#include <fmt/format.h>

#include <atomic>

#include "base/decimal_number.hpp"
#include "perfmodel/graph/detail/read_options.hpp"

namespace perfmodel {
namespace {

std::atomic<std::size_t> most_nodes = 2'000'000;
std::atomic<std::uint64_t> most_graph_bytes = std::uint64_t{288} << 20;
std::atomic<std::uint64_t> most_json_bytes = std::uint64_t{1} << 30;

Result<void> set_bytes(std::atomic<std::uint64_t>& most, std::string_view text) {
  ReadLimits limits;  // its sizes have the same form
  if (!set_limit(limits, fmt::format("kept-bytes={}", text))) {
    return fail(ErrorCode::kFormat,
                fmt::format("expected a size of at least 1 byte such as 512MiB (units KiB, MiB, "
                            "GiB), found {}",
                            text));
  }
  most.store(limits.kept_bytes, std::memory_order_relaxed);
  return {};
}

}  // namespace

std::size_t node_limit() { return most_nodes.load(std::memory_order_relaxed); }
std::uint64_t graph_memory_limit() { return most_graph_bytes.load(std::memory_order_relaxed); }
std::uint64_t json_document_limit() { return most_json_bytes.load(std::memory_order_relaxed); }

Result<void> set_graph_memory_limit(std::string_view text) {
  return set_bytes(most_graph_bytes, text);
}
Result<void> set_json_document_limit(std::string_view text) {
  return set_bytes(most_json_bytes, text);
}

Result<void> set_node_limit(std::string_view text) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;  // nodes are numbered with 32 bits
  std::int64_t nodes = 0;
  if (!read_decimal(text, nodes) || nodes < 1 || nodes > kMost) {
    return fail(ErrorCode::kFormat,
                fmt::format("expected a number of nodes from 1 to 2^31, found {}", text));
  }
  most_nodes.store(static_cast<std::size_t>(nodes), std::memory_order_relaxed);
  return {};
}

void growth_point(std::size_t nodes, std::uint64_t bytes) {
  stop_point();
  if (bytes > graph_memory_limit()) {
    throw OverBudget(fmt::format(
        "expected a graph of at most {:.6g} MiB in memory (perfpredict --graph-memory SIZE COMMAND "
        "raises it), found one that grows beyond",
        static_cast<double>(graph_memory_limit()) / (1 << 20)));
  }
  if (nodes <= node_limit()) return;
  throw OverBudget(fmt::format(
      "expected a graph of at most {} nodes (perfpredict --node-limit N COMMAND raises it), found "
      "one that grows beyond",
      node_limit()));
}

void events_growth_point(std::size_t events) {
  constexpr std::size_t kEventsOfNode = 8;
  stop_point();
  if (events <= kEventsOfNode * node_limit()) return;
  throw OverBudget(fmt::format(
      "expected a trace of at most {} events, {} for each node that a graph may have (perfpredict "
      "--node-limit N COMMAND raises it), found more",
      kEventsOfNode * node_limit(), kEventsOfNode));
}

}  // namespace perfmodel
