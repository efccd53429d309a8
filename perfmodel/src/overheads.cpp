#include "perfmodel/overheads.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "extract_overheads.hpp"
#include "host_chain.hpp"
#include "statistics.hpp"

namespace perfmodel {

std::string_view to_string(OverheadMethod method) {
  switch (method) {
    case OverheadMethod::kRaw:
      return "raw";
    case OverheadMethod::kContext:
      return "context";
    case OverheadMethod::kLin:
      return "lin";
  }
  return "";
}

Result<OverheadMethod> parse_overhead_method(std::string_view name) {
  for (auto method : {OverheadMethod::kRaw, OverheadMethod::kContext, OverheadMethod::kLin}) {
    if (to_string(method) == name) return method;
  }
  return fail(ErrorCode::kUnknownName,
              fmt::format("expected method context, lin or raw, found {}", name));
}

std::string_view to_string(KeyLevel level) {
  switch (level) {
    case KeyLevel::kContext:
      return "context";
    case KeyLevel::kName:
      return "name";
    case KeyLevel::kAll:
      return "all";
    case KeyLevel::kMissing:
      return "missing";
  }
  return "";
}

std::string_view to_string(GapClass gap) {
  switch (gap) {
    case GapClass::kSibling:
      return "same parent";
    case GapClass::kLabel:
      return "label crossed";
    case GapClass::kThread:
      return "thread changed";
    case GapClass::kIteration:
      return "iteration border";
  }
  return "";
}

OverheadTerm::Found OverheadTerm::find(std::span<const std::uint64_t> contexts,
                                       std::uint64_t name) const {
  for (std::uint64_t key : contexts) {
    if (const auto at = by_context.find(key); at != by_context.end()) {
      return {at->second.mean_us, KeyLevel::kContext};
    }
  }
  if (const auto at = by_name.find(name); at != by_name.end()) {
    return {at->second.stats.mean_us, KeyLevel::kName};
  }
  if (all.count > 0) return {all.mean_us, KeyLevel::kAll};
  return {};
}

OverheadTerm::Found OverheadTable::call_us(const std::string& key) const {
  if (const auto at = t4.find(key); at != t4.end()) return {at->second.mean_us, KeyLevel::kContext};
  const std::string name = key.substr(0, key.find(' '));
  if (const auto at = t4.find(name); at != t4.end()) return {at->second.mean_us, KeyLevel::kName};
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

std::uint64_t subtree_key(const ExecutionGraph& graph, std::int32_t node) {
  std::uint64_t key =
      hash_mix(graph.names.hash(graph.nodes[static_cast<std::size_t>(node)].name), 11);
  std::vector<std::int32_t> stack;
  const auto push_children = [&](std::int32_t parent) {
    const auto children = graph.children(graph.nodes[static_cast<std::size_t>(parent)]);
    stack.insert(stack.end(), children.rbegin(), children.rend());
  };
  push_children(node);
  while (!stack.empty()) {
    const std::int32_t at = stack.back();
    stack.pop_back();
    key = hash_mix(key, graph.names.hash(graph.nodes[static_cast<std::size_t>(at)].name));
    push_children(at);
  }
  return key;
}

namespace {

// A table of longer times could not be read again.
bool is_of_one_recording(const Trace& trace) {
  constexpr double kMostNs = 365.0 * 24 * 3600 * 1e9;
  double first = 1e300, last = -1e300;
  const auto look = [&](const auto& event) {
    first = std::min(first, static_cast<double>(event.start_ns));
    last = std::max(last, static_cast<double>(event.end_ns()));
  };
  std::ranges::for_each(trace.host, look);
  std::ranges::for_each(trace.gpu, look);
  return last - first <= kMostNs;
}

}  // namespace

Result<OverheadTable> extract_overheads(std::span<const OverheadSource> sources,
                                        const OverheadOptions& options) {
  OverheadTable table;
  table.method = options.method;
  table.profiler_cost_us = options.profiler_cost_us;
  std::set<std::string> gpus;
  for (const OverheadSource& source : sources) {
    if (source.trace->gpu.empty()) {
      return Unexpected{Error{.code = ErrorCode::kImpossible,
                              .message = "expected device activity, found none",
                              .file = source.trace->source}};
    }
    if (!is_of_one_recording(*source.trace)) {
      return Unexpected{Error{.code = ErrorCode::kImpossible,
                              .message = "expected stamps of one recording, found some years apart",
                              .file = source.trace->source}};
    }
    table.sources.push_back(std::filesystem::path(source.trace->source).filename().string());
    gpus.insert(source.trace->gpu_name());
  }
  table.gpu = fmt::format("{}", fmt::join(gpus, ", "));
  const auto extract = options.method == OverheadMethod::kRaw   ? extract_raw
                       : options.method == OverheadMethod::kLin ? extract_lin
                                                                : extract_context;
  auto extracted = extract(sources, options, std::move(table));
  if (extracted && extracted->ops.empty()) {
    return Unexpected{Error{.code = ErrorCode::kImpossible,
                            .message = "expected at least one op, found none",
                            .file = sources.empty() ? "" : sources.front().trace->source}};
  }
  return extracted;
}

OverheadScaling scale_to_shared_ops(OverheadTable& table, const OverheadTable& reference) {
  // Both sides weigh an op by how often the reference runs it.
  double own = 0, wanted = 0, total = 0;
  for (const auto& [name, stats] : reference.ops) {
    const double weight = static_cast<double>(stats.count);
    total += weight * stats.mean_us;
    const auto shared = table.ops.find(name);
    if (shared == table.ops.end()) continue;
    own += weight * shared->second.mean_us;
    wanted += weight * stats.mean_us;
  }
  OverheadScaling scaling{.coverage = total > 0 ? wanted / total : 0};
  if (own <= 0 || wanted <= 0) return scaling;
  scaling.factor = wanted / own;
  const auto scale = [&](OverheadStats& stats) {
    stats.mean_us *= scaling.factor;
    stats.std_us *= scaling.factor;
    stats.median_us *= scaling.factor;
  };
  for (OverheadTerm* term : {&table.t1, &table.t2, &table.t3, &table.t5, &table.tx}) {
    scale(term->all);
    for (auto& [key, named] : term->by_name) scale(named.stats);
    for (auto& [key, stats] : term->by_context) scale(stats);
  }
  for (auto& [call, stats] : table.t4) scale(stats);
  for (auto& [op, stats] : table.ops) scale(stats);
  return scaling;
}

}  // namespace perfmodel
