#include "checkpoint_segments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "ops/catalogue.hpp"
#include "step/layers.hpp"
#include "step/tree_walk.hpp"

namespace perfmodel {
namespace {

Result<std::vector<Segment>> read_all(const SegmentReader& reader,
                                      const std::vector<Trees>& parts) {
  std::vector<Segment> segments;
  for (const Trees& part : parts) {
    auto segment = reader.read(part);
    if (!segment) return refuse_checkpointing(segment.error().message);
    segments.push_back(std::move(*segment));
  }
  return segments;
}

// Before 2.0 a region makes a tensor in front of itself; -1: no such op.
std::int32_t handle_of(const ExecutionGraph& graph, std::int32_t region) {
  if (graph.node(region).parent < 0) return -1;
  const auto siblings = graph.children(graph.node(region).parent);
  const auto at = std::ranges::lower_bound(siblings, region);
  if (at == siblings.begin() || !is_zeros(graph.name(*(at - 1)))) return -1;
  bool is_handle = false;
  for_each_tensor(graph, graph.outputs(*(at - 1)), [&](const Tensor& tensor) {
    is_handle = tensor.on_cpu() && tensor.numel == 1 && tensor.rank == 1;
  });
  return is_handle ? *(at - 1) : -1;
}

// Regions inside of others are part of these.
std::vector<Trees> labelled_parts(const StepView& step, std::string_view text) {
  const ExecutionGraph& graph = step.graph();
  std::vector<Trees> parts;
  std::int32_t end = 0;  // end of the last one
  const std::int32_t all = forward_end(step.backward());
  for (std::int32_t i = 0; i < all; ++i) {
    const Node& node = graph.node(i);
    if (i < end || !node.is_label || node.is_structural || node.children_count == 0) continue;
    if (graph.name(node).find(text) == std::string_view::npos) continue;
    const std::int32_t handle = handle_of(graph, i);
    parts.push_back(handle < end ? Trees{i} : Trees{handle, i});
    end = last_below(graph, i) + 1;
  }
  return parts;
}

std::vector<Trees> merge_layers(const LayerStack& layers, int every) {
  const auto root = std::lround(std::sqrt(static_cast<double>(layers.size())));
  const auto count = static_cast<std::size_t>(every > 0 ? every : root);
  std::vector<Trees> parts;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    if (layer % count == 0) parts.emplace_back();
    parts.back().insert(parts.back().end(), layers[layer].begin(), layers[layer].end());
  }
  return parts;
}

Result<std::vector<Segment>> segments_of_layers(const StepView& step, const SegmentReader& reader,
                                                const CheckpointOptions& options) {
  auto stacks = layers(step, reader);
  if (!stacks) return refuse_checkpointing(stacks.error().message);
  std::size_t found = 0;
  for (const LayerStack& stack : *stacks) found += stack.size();
  std::size_t wanted = options.layers ? static_cast<std::size_t>(*options.layers) : found;
  std::vector<Trees> parts;
  for (LayerStack& stack : *stacks) {
    stack.resize(std::min(stack.size(), wanted));
    wanted -= stack.size();
    for (Trees& part : merge_layers(stack, options.every)) parts.push_back(std::move(part));
  }
  auto segments = read_all(reader, parts);
  if (wanted == 0 || !segments) return segments;
  return refuse_checkpointing(fmt::format("expected at most the {} layers that there are, found {}",
                                          found, *options.layers));
}

}  // namespace

Unexpected refuse_checkpointing(std::string message) {
  return fail(ErrorCode::kImpossible, "checkpointing: " + std::move(message));
}

Result<std::vector<Segment>> checkpoint_segments(const StepView& step,
                                                 const CheckpointOptions& options) {
  const SegmentReader reader(step);
  if (options.label.empty()) return segments_of_layers(step, reader, options);
  if (options.layers) {
    return refuse_checkpointing("expected a number of layers or regions, found both");
  }
  const std::vector<Trees> parts = labelled_parts(step, options.label);
  if (!parts.empty()) return read_all(reader, parts);
  return refuse_checkpointing(
      fmt::format("expected a region of the forward pass whose name contains \"{}\", found none",
                  options.label));
}

Result<std::vector<Segment>> checkpoint_segments(const StepView& step,
                                                 const std::vector<Trees>& parts) {
  const SegmentReader reader(step);
  std::vector<Segment> segments;
  std::optional<Error> reason;
  for (const Trees& part : parts) {
    auto segment = reader.read(part);
    if (segment) {
      segments.push_back(std::move(*segment));
    } else if (!reason) {
      reason = segment.error();
    }
  }
  if (segments.empty() && reason) return refuse_checkpointing(reason->message);
  return segments;
}

Result<std::vector<bool>> nodes_of_layers(const StepView& step, FirstLayers layers) {
  std::vector<bool> nodes(step.graph().nodes.size(), !layers.count);
  if (!layers.count) return nodes;
  PERFMODEL_TRY(segments, checkpoint_segments(step, {.layers = layers.count}));
  for (const Segment& segment : *segments) {
    std::fill(nodes.begin() + segment.begin, nodes.begin() + segment.end, true);
  }
  return nodes;
}

}  // namespace perfmodel
