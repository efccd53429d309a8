#include "base/budget.hpp"

#include <fmt/format.h>

#include <atomic>

#include "base/decimal_number.hpp"

namespace perfmodel {
namespace {

std::atomic<std::size_t> most_nodes = 2'000'000;

}  // namespace

std::size_t node_limit() { return most_nodes.load(std::memory_order_relaxed); }

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

void growth_point(std::size_t nodes) {
  stop_point();
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
