// Chains of several steps against a look at every node, which takes the square of the steps.
#include "overheads/host_chain.hpp"

#include <gtest/gtest.h>

#include <string>

#include "perfmodel/graph/detail/link.hpp"
#include "tiny_run.hpp"

namespace perfmodel {
namespace host_chain_test {

using test_support::TinyRun;

// Two threads, ops in ops, a launch between ops, a wait that ends after its op, one outside of all.
void step(TinyRun& run, int number) {
  run.label("ProfilerStep#" + std::to_string(number), [&] {
    run.op("a", [&] {
      run.launch(4, 30);
      run.op("b", [&] { run.launch(2, 5); });
      run.launch(1, 5);
    });
    run.launch(3, 5);
    run.on_thread(1, [&] { run.op("c", [&] { run.op("d", [&] { run.launch(2, 5); }); }); });
    run.op("e", [] {});
    run.sync(2);
  });
  run.spend(3);
  run.launch(1, 2);
}

// The last node in start order that began before the call and ends no earlier; -1: none.
std::int32_t around(const Trace& trace, const GraphOccurrence& occurrence, std::int32_t call) {
  const HostEvent& event = trace.host[call];
  std::int32_t found = -1;
  for (std::size_t n = 0; n < occurrence.event_of_node.size(); ++n) {
    const std::int32_t at = occurrence.event_of_node[n];
    if (at < 0 || trace.host[at].thread != event.thread) continue;
    const HostEvent& node = trace.host[at];
    if (node.start_ns <= event.start_ns && node.end_ns() >= event.end_ns()) {
      found = static_cast<std::int32_t>(n);
    }
  }
  return found;
}

TEST(HostChain, EachStepsCallsBelongToTheInnermostNodeAround) {
  TinyRun run;
  constexpr int kSteps = 5;
  for (int i = 0; i < kSteps; ++i) step(run, i);
  const GraphLink links = link(run.graph(), run.trace()).value();
  ASSERT_EQ(links.occurrences.size(), 1U);
  const auto chains =
      host_chains({.trace = &run.trace(), .graph = &run.graph()}, std::nullopt, nullptr).value();
  ASSERT_EQ(chains.size(), static_cast<std::size_t>(kSteps));
  for (const HostChain& chain : chains) {
    std::size_t calls = 0;
    const auto check = [&](const ChainCall& call) {
      ++calls;
      const std::int32_t expected = around(run.trace(), links.occurrences[0], call.event);
      if (expected >= 0) {
        EXPECT_EQ(call.node, expected) << call.event;
      }
    };
    ASSERT_EQ(chain.ops.size(), 3U);
    EXPECT_EQ(chain.ops[0].calls.size(), 3U);
    EXPECT_EQ(chain.ops[1].calls.size(), 1U);
    for (const ChainOp& op : chain.ops) std::ranges::for_each(op.calls, check);
    std::ranges::for_each(chain.loose_calls, check);
    EXPECT_GE(calls, 5U);
  }
}

}  // namespace host_chain_test
}  // namespace perfmodel
