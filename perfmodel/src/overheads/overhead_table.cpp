#include "perfmodel/detail/overhead_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/enum_name.hpp"
#include "files/lower_case.hpp"

namespace perfmodel {

std::string_view to_string(OverheadMethod method) {
  static constexpr std::string_view kNames[] = {"raw", "context", "lin"};
  return enum_name(kNames, method);
}

Result<OverheadMethod> parse_overhead_method(std::string_view name) {
  for (auto method : {OverheadMethod::kRaw, OverheadMethod::kContext, OverheadMethod::kLin}) {
    if (to_string(method) == name) return method;
  }
  return fail(ErrorCode::kUnknownName,
              fmt::format("expected method context, lin or raw, found {}", name));
}

std::string_view to_string(KeyLevel level) {
  static constexpr std::string_view kNames[] = {"context", "name", "kind", "all", "missing"};
  return enum_name(kNames, level);
}

std::string_view to_string(Collector collector) {
  static constexpr std::string_view kNames[] = {"not known",
                                                "none",
                                                "profiler without shapes",
                                                "profiler",
                                                "profiler with stacks",
                                                "profiler and execution trace observer"};
  return enum_name(kNames, collector);
}

std::string_view to_string(GapClass gap) {
  static constexpr std::string_view kNames[] = {"same parent", "label crossed", "thread changed",
                                                "iteration border", "list of tensors"};
  return enum_name(kNames, gap);
}

double OverheadStats::at_length(double tensors_asked, double base_us, double fixed_share) const {
  if (tensors <= 0 || tensors_asked <= 0) return mean_us;
  const double base = std::min(mean_us, std::max(base_us, fixed_share * mean_us));
  return base + (mean_us - base) * tensors_asked / tensors;
}

OverheadTerm::Found OverheadTerm::find(std::span<const std::uint64_t> contexts, std::uint64_t name,
                                       std::uint64_t kind, double tensors,
                                       double fixed_share) const {
  const auto us = [&](const OverheadStats& stats) {
    return stats.at_length(tensors, all.mean_us, fixed_share);
  };
  for (std::uint64_t key : contexts) {
    if (const auto at = by_context.find(key); at != by_context.end()) {
      return {us(at->second), KeyLevel::kContext};
    }
  }
  const std::pair<std::uint64_t, KeyLevel> wider[] = {{name, KeyLevel::kName},
                                                      {kind, KeyLevel::kKind}};
  for (const auto& [key, level] : wider) {
    if (const auto at = by_name.find(key); at != by_name.end()) {
      return {us(at->second.stats), level};
    }
  }
  if (all.count > 0) return {all.mean_us, KeyLevel::kAll};
  return {};
}

std::string canonical_call(std::string_view key) {
  constexpr std::string_view kHip = "hip";
  const std::string_view call = key.substr(0, key.find(' '));
  if (call.find("LaunchKernel") != call.npos) return "cudaLaunchKernel";
  if (!call.starts_with(kHip)) return std::string(key);
  std::string made = "cuda" + std::string(key.substr(kHip.size()));
  // HIP copies pageable memory with a call of its own.
  constexpr std::string_view kWithStream = "cudaMemcpyWithStream";
  if (made.starts_with(kWithStream)) made.replace(0, kWithStream.size(), "cudaMemcpyAsync");
  return made;
}

OverheadTerm::Found OverheadTable::call_us(const std::string& key) const {
  const std::string name = key.substr(0, key.find(' '));
  const std::pair<std::string, KeyLevel> keys[] = {{key, KeyLevel::kContext},
                                                   {canonical_call(key), KeyLevel::kContext},
                                                   {name, KeyLevel::kName},
                                                   {canonical_call(name), KeyLevel::kName}};
  for (const auto& [known_as, level] : keys) {
    if (const auto at = t4.find(known_as); at != t4.end()) return {at->second.mean_us, level};
  }
  double sum = 0, count = 0;
  for (const auto& [call, stats] : t4) {
    if (!is_launch_call(call)) continue;  // plain launches only: copies and waits differ
    sum += stats.mean_us * static_cast<double>(stats.count);
    count += static_cast<double>(stats.count);
  }
  if (count > 0) return {sum / count, KeyLevel::kAll};
  return {};
}

std::string call_key(const TemplateCall& call) {
  if (call.kind != TemplateCall::Kind::kCopy) return call.call;
  constexpr std::array<std::string_view, 4> kKinds = {"HtoD", "DtoH", "DtoD", "PtoP"};
  return fmt::format("{} {}{}", call.call, kKinds[static_cast<std::size_t>(call.copy)],
                     call.blocking ? " blocking" : "");
}

std::uint64_t gap_context(std::uint64_t label, std::uint64_t previous, std::uint64_t next) {
  return hash_mix(hash_mix(hash_mix(21, label), previous), next);
}

std::uint64_t gap_class_key(GapClass gap) { return hash_text(to_string(gap)); }

bool walks_list(std::string_view name) {
  constexpr std::string_view kPrefixes[] = {"aten::_foreach_", "aten::_fused_",
                                            "aten::_amp_foreach_"};
  return std::ranges::any_of(kPrefixes,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::uint64_t any_list_key() {
  static const std::uint64_t key = hash_text(kAnyList);
  return key;
}

double list_length(const ExecutionGraph& graph, const Node& node) {
  if (!walks_list(graph.name(node))) return 0;
  std::uint32_t longest = 0;
  for (const Argument& argument : graph.inputs(node)) {
    if (argument.kind == Argument::Kind::kList) longest = std::max(longest, argument.count);
  }
  return longest;
}

// A table may come from several GPUs: "A, B".
bool recorded_beside(const OverheadTable& table, const Gpu& gpu) {
  const std::string& names = table.gpu;
  for (std::size_t begin = 0; begin < names.size();) {
    const std::size_t end = std::min(names.find(", ", begin), names.size());
    const std::string name = lower_case(names.substr(begin, end - begin));
    if (name == gpu.name || name == lower_case(gpu.title) ||
        std::ranges::any_of(gpu.aliases,
                            [&](const auto& alias) { return lower_case(alias) == name; })) {
      return true;
    }
    begin = end + 2;
  }
  return false;
}

std::uint64_t subtree_key(const ExecutionGraph& graph, std::int32_t node) {
  std::uint64_t key = hash_mix(graph.names.hash(graph.node(node).name), 11);
  std::vector<std::int32_t> stack;
  const auto push_children = [&](std::int32_t parent) {
    const auto children = graph.children(parent);
    stack.insert(stack.end(), children.rbegin(), children.rend());
  };
  push_children(node);
  while (!stack.empty()) {
    const std::int32_t at = stack.back();
    stack.pop_back();
    key = hash_mix(key, graph.names.hash(graph.node(at).name));
    push_children(at);
  }
  return key;
}

}  // namespace perfmodel
