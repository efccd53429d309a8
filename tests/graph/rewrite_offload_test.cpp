// Activations that leave for the host: what stays, and in which order copies stand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/detail/storage_lifetimes.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/training.hpp"

namespace perfmodel {
namespace rewrite_offload_test {

using testing::HasSubstr;

constexpr OffloadOptions kAll{.least_bytes = 1, .bytes_on_their_way = 0};

ExecutionGraph bert(std::int64_t layers = 6, std::int64_t batch = 2) {
  BertConfig config = bert_preset("bert-base").value();
  config.layers = layers;
  config.hidden = 68;
  config.heads = 4;
  config.feed_forward = 272;
  config.vocabulary = 100;
  config.batch = batch;
  config.sequence = 32;
  return build_bert(config).value();
}

ExecutionGraph good(Result<ExecutionGraph> graph) {
  if (graph) return std::move(*graph);
  ADD_FAILURE() << to_string(graph.error());
  return {};
}

std::int64_t kept_bytes(const ExecutionGraph& graph) {
  const StorageLifetimes lifetimes = storage_lifetimes(graph);
  std::int64_t sum = 0;
  for (const StorageLifetime& storage : lifetimes.storages) {
    const bool kept = storage.purpose == MemoryPurpose::kActivations &&
                      storage.made_by < lifetimes.forward_end &&
                      storage.freed_after >= lifetimes.forward_end;
    if (kept) sum += storage.bytes;
  }
  return sum;
}

std::int64_t largest_kept(const ExecutionGraph& graph) {
  std::int64_t largest = 0;
  for (const StorageLifetime& storage : storage_lifetimes(graph).storages) {
    if (storage.purpose == MemoryPurpose::kActivations) largest = std::max(largest, storage.bytes);
  }
  return largest;
}

std::size_t count(const ExecutionGraph& graph, std::string_view name) {
  return static_cast<std::size_t>(std::ranges::count_if(
      graph.nodes, [&](const Node& node) { return graph.name(node) == name; }));
}

// The window: what stays, and what is on its way to the host when the forward pass ends.
TEST(Offload, LeavesTwoWindows) {
  const ExecutionGraph plain = bert(), made = good(rewrite_offload(plain, kAll));
  const std::int64_t window = 2 * largest_kept(plain);
  EXPECT_LE(kept_bytes(made), 2 * window + largest_kept(plain));
  EXPECT_GT(kept_bytes(made), 0);
  EXPECT_GT(kept_bytes(plain), 8 * window);
  // More layers, no more bytes.
  EXPECT_EQ(kept_bytes(good(rewrite_offload(bert(12), kAll))), kept_bytes(made));
}

TEST(Offload, WhatLeavesComesBackBeforeItIsRead) {
  const ExecutionGraph made = good(rewrite_offload(bert(), kAll));
  EXPECT_EQ(count(made, "offload::to_host"), count(made, "offload::to_device"));
  EXPECT_EQ(count(made, "offload::to_host"), count(made, "offload::release"));
  std::set<std::int64_t> on_host, gone;
  std::map<std::int64_t, std::int64_t> of_host;  // storage on the host -> that on the device
  for (const Node& node : made.nodes) {
    const std::string_view name = made.name(node);
    for_each_tensor(made, made.inputs(node), [&](const Tensor& tensor) {
      EXPECT_FALSE(gone.contains(tensor.storage_id)) << name;
      const bool comes_back = name == "offload::to_device";
      EXPECT_TRUE(!comes_back || on_host.contains(tensor.storage_id)) << name;
      if (name == "offload::release") gone.insert(tensor.storage_id);
    });
    if (name != "offload::to_host") continue;
    for_each_tensor(made, made.outputs(node), [&](const Tensor& tensor) {
      EXPECT_TRUE(tensor.on_cpu());
      on_host.insert(tensor.storage_id);
    });
  }
  EXPECT_EQ(gone.size(), count(made, "offload::to_host"));
}

// The window of two largest storages grows with the batch.
TEST(Offload, BatchesBeforeAndBehindAreTheSame) {
  const auto twice = [](const ExecutionGraph& graph) {
    return good(set_batch_size(graph, {.batch = 4}));
  };
  const ExecutionGraph before = good(rewrite_offload(twice(bert()), kAll));
  const ExecutionGraph behind = twice(good(rewrite_offload(bert(), kAll)));
  ASSERT_EQ(before.nodes.size(), behind.nodes.size());
  EXPECT_EQ(kept_bytes(before), kept_bytes(behind));
  const auto copied = [](const ExecutionGraph& graph) {
    std::vector<std::int64_t> bytes;
    for (const Node& node : graph.nodes) {
      if (!graph.name(node).starts_with("offload::to_")) continue;
      for_each_tensor(graph, graph.outputs(node),
                      [&](const Tensor& tensor) { bytes.push_back(tensor.bytes()); });
    }
    return bytes;
  };
  EXPECT_EQ(copied(before), copied(behind));
}

TEST(Offload, SmallOnesStay) {
  const OffloadOptions large{.least_bytes = 50000, .bytes_on_their_way = 0};
  const ExecutionGraph made = good(rewrite_offload(bert(), large));
  for (const Node& node : made.nodes) {
    if (made.name(node) != "offload::to_host") continue;
    for_each_tensor(made, made.inputs(node),
                    [](const Tensor& tensor) { EXPECT_GE(tensor.bytes(), 50000); });
  }
}

// The input of each layer leaves; the repetition reads what came back.
TEST(Offload, BehindCheckpointsTakesTheirInputs) {
  const ExecutionGraph full = good(rewrite_checkpointing(bert(12), {}));
  const ExecutionGraph made = good(rewrite_offload(full, kAll));
  EXPECT_GT(count(made, "offload::to_host"), 4U);
  EXPECT_LT(kept_bytes(made), kept_bytes(full));
}

TEST(Offload, SaysWhyNot) {
  const auto refusal = [](const ExecutionGraph& graph, const OffloadOptions& options) {
    const auto made = rewrite_offload(graph, options);
    return made ? "none" : made.error().message;
  };
  EXPECT_THAT(refusal(bert(), {.least_bytes = std::int64_t{1} << 40}),
              HasSubstr("expected activations of at least 1099511627776 bytes"));
  EXPECT_THAT(refusal(bert(), {.least_bytes = 1}), HasSubstr("that stay on their way"));
  EXPECT_THAT(refusal({}, kAll), HasSubstr("expected a backward pass, found none"));
  const ExecutionGraph made = good(rewrite_offload(bert(), kAll));
  EXPECT_THAT(refusal(made, kAll), HasSubstr("offload-activations comes after this"));
  const auto checkpoints = rewrite_checkpointing(made, {});
  ASSERT_FALSE(checkpoints);
  EXPECT_THAT(checkpoints.error().message, HasSubstr("offload-activations comes after this"));
  const auto half = rewrite_precision(made, {.precision = PrecisionOptions::Precision::kBf16});
  ASSERT_FALSE(half);
  EXPECT_THAT(half.error().message, HasSubstr("change the precision first, then offload"));
}

}  // namespace rewrite_offload_test
}  // namespace perfmodel
