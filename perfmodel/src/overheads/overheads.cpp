#include "perfmodel/overheads.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "extract_overheads.hpp"
#include "files/lower_case.hpp"
#include "host_chain.hpp"
#include "replay/device_starts.hpp"
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
    case GapClass::kList:
      return "list of tensors";
  }
  return "";
}

double OverheadStats::at_length(double tensors_asked, double base_us) const {
  if (tensors <= 0 || tensors_asked <= 0) return mean_us;
  const double base = std::min(mean_us, base_us);
  return base + (mean_us - base) * tensors_asked / tensors;
}

OverheadTerm::Found OverheadTerm::find(std::span<const std::uint64_t> contexts, std::uint64_t name,
                                       double tensors) const {
  const auto us = [&](const OverheadStats& stats) { return stats.at_length(tensors, all.mean_us); };
  for (std::uint64_t key : contexts) {
    if (const auto at = by_context.find(key); at != by_context.end()) {
      return {us(at->second), KeyLevel::kContext};
    }
  }
  const auto named = [&](std::uint64_t key) -> const OverheadStats* {
    const auto at = by_name.find(key);
    return at == by_name.end() ? nullptr : &at->second.stats;
  };
  const OverheadStats* stats = named(name);
  if (!stats && tensors > 0) stats = named(any_list_key());
  if (stats) return {us(*stats), KeyLevel::kName};
  if (all.count > 0) return {all.mean_us, KeyLevel::kAll};
  return {};
}

std::string canonical_call(std::string_view key) {
  constexpr std::string_view kHip = "hip";
  const std::string_view call = key.substr(0, key.find(' '));
  if (is_launch_call(call) && call.find("LaunchKernel") != call.npos) return "cudaLaunchKernel";
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
      return Unexpected{
          Error{.code = ErrorCode::kImpossible,
                .message = "expected device activity, found " +
                           (source.trace->unread.empty() ? "none" : source.trace->unread),
                .file = source.trace->source}};
    }
    if (!is_of_one_recording(*source.trace)) {
      return Unexpected{Error{.code = ErrorCode::kImpossible,
                              .message = "expected stamps of one recording, found some years apart",
                              .file = source.trace->source}};
    }
    table.sources.push_back(std::filesystem::path(source.trace->source).filename().string());
    if (auto warning = unrecorded_warning(*source.trace)) {
      table.warnings.push_back(table.sources.back() + ": " + *warning);
    }
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

void scale_host(OverheadTable& table, double factor) {
  const auto scale = [factor](OverheadStats& stats) {
    stats.mean_us *= factor;
    stats.std_us *= factor;
    stats.median_us *= factor;
  };
  for (OverheadTerm* term : {&table.t1, &table.t2, &table.t3, &table.t5, &table.tx}) {
    scale(term->all);
    for (auto& [key, named] : term->by_name) scale(named.stats);
    for (auto& [key, stats] : term->by_context) scale(stats);
  }
  for (auto& [call, stats] : table.t4) scale(stats);
  for (auto& [op, stats] : table.ops) scale(stats);
}

}  // namespace perfmodel
