#include "graph_comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <ostream>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace perfmodel {
namespace {

using Lines = std::vector<std::string>;

bool is_bookkeeping(std::string_view name) { return name.starts_with("[pytorch|profiler|"); }

std::string_view device_name(Device device) {
  switch (device.kind) {
    case Device::Kind::kNone:
      return "";
    case Device::Kind::kCpu:
      return "cpu:";
    case Device::Kind::kGpu:
      return "gpu:";
    case Device::Kind::kMeta:
      return "meta:";
    case Device::Kind::kOther:
      break;
  }
  return "other:";
}

class Signature {
 public:
  Signature(const ExecutionGraph& graph, const ComparisonOptions& options)
      : graph_(graph), options_(options) {}

  std::string text(const Node& node, std::size_t depth, std::int64_t first_sequence) const {
    std::string line(2 * depth, ' ');
    line += graph_.name(node);
    if (node.scope != Scope::kFunction) line += fmt::format(" s{}", static_cast<int>(node.scope));
    if (options_.sequence && node.seq_id >= 0) {
      line += fmt::format(" #{}", node.seq_id - first_sequence);
    }
    line += arguments(graph_.inputs(node)) + " -> " + arguments(graph_.outputs(node));
    if (options_.schemas) line += fmt::format(" {}", graph_.names.text(node.op_schema));
    return line;
  }

 private:
  std::string arguments(std::span<const Argument> values) const {
    std::string text = "(";
    for (const Argument& value : values) {
      const std::string part = argument(value);
      if (part.empty()) continue;
      if (text.size() > 1) text += ", ";
      text += part;
    }
    return text + ")";
  }

  std::string argument(const Argument& value) const {
    using Kind = Argument::Kind;
    if (value.kind == Kind::kTensor) return tensor(graph_.tensors[value.index]);
    if (value.kind == Kind::kList) return list(graph_.elements(value));
    if (!options_.scalars) return "";
    switch (value.kind) {
      case Kind::kNone:
        return "None";
      case Kind::kInt:
        return fmt::format("{}", value.integer);
      case Kind::kDouble:
        return fmt::format("{:g}", value.real);
      case Kind::kBool:
        return value.integer ? "True" : "False";
      default:
        return std::string(graph_.names.text(value.index));
    }
  }

  // A list without tensors is a scalar: its length may be what a version changed.
  std::string list(std::span<const Argument> elements) const {
    std::string text;
    for (const Argument& element : elements) {
      const std::string part = argument(element);
      if (part.empty()) continue;
      text += (text.empty() ? "" : " ") + part;
    }
    return text.empty() && !options_.scalars ? "" : "[" + text + "]";
  }

  std::string tensor(const Tensor& tensor) const {
    if (tensor.dtype == DType::kUnknown) return "undefined";
    const auto shape = graph_.shape(tensor);
    return fmt::format("{}{}[{}]", options_.devices ? device_name(tensor.device) : "",
                       to_string(tensor.dtype), fmt::join(shape.begin(), shape.end(), ","));
  }

  const ExecutionGraph& graph_;
  const ComparisonOptions& options_;
};

bool in_start_order(const Node& a, const Node& b) {
  const bool recorded = a.rf_id > 0 && b.rf_id > 0;
  return recorded && a.rf_id != b.rf_id ? a.rf_id < b.rf_id : a.id < b.id;
}

struct KeptNode {
  std::size_t index = 0, depth = 0;
};

// The nodes that are compared, in the order in which they started.
std::vector<KeptNode> kept_nodes(const ExecutionGraph& graph, const ComparisonOptions& options,
                                 std::size_t begin, std::size_t end) {
  constexpr std::size_t kLeftOut = static_cast<std::size_t>(-1);
  std::vector<std::size_t> order;
  for (std::size_t i = begin; i < end; ++i) {
    if (!is_bookkeeping(graph.name(graph.nodes[i]))) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return in_start_order(graph.nodes[a], graph.nodes[b]);
  });
  std::vector<KeptNode> kept;
  std::unordered_map<std::size_t, std::size_t> depth_below;  // depth of a node's children
  for (std::size_t i : order) {
    const Node& node = graph.nodes[i];
    const auto parent = depth_below.find(static_cast<std::size_t>(node.parent));
    const std::size_t depth = parent == depth_below.end() ? 0 : parent->second;
    if (depth == kLeftOut || (options.leave_out && options.leave_out(graph, node))) {
      depth_below[i] = kLeftOut;
    } else if (options.flatten && options.flatten(graph, node)) {
      depth_below[i] = depth;
    } else {
      depth_below[i] = depth + 1;
      kept.push_back({i, depth});
    }
  }
  return kept;
}

std::int64_t first_sequence(const ExecutionGraph& graph, const std::vector<KeptNode>& nodes) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const KeptNode& kept : nodes) {
    const std::int64_t sequence = graph.nodes[kept.index].seq_id;
    if (sequence >= 0) first = std::min(first, sequence);
  }
  return first;
}

// One list of lines per thread, in the order in which the threads appear.
std::vector<Lines> lines_of(const ExecutionGraph& graph, const ComparisonOptions& options,
                            std::size_t begin, std::size_t end) {
  const std::vector<KeptNode> nodes = kept_nodes(graph, options, begin, end);
  const std::int64_t sequence = first_sequence(graph, nodes);
  const Signature signature(graph, options);
  std::map<std::int32_t, std::size_t> threads;
  std::vector<Lines> lines;
  for (const KeptNode& kept : nodes) {
    const Node& node = graph.nodes[kept.index];
    const auto [thread, is_new] = threads.try_emplace(node.thread, threads.size());
    if (is_new) lines.emplace_back();
    lines[thread->second].push_back(signature.text(node, kept.depth, sequence));
  }
  return lines;
}

enum class Side : std::uint8_t { kBoth, kFirst, kSecond };

// Shortest edit script from a to b (Myers, "An O(ND) difference algorithm", 1986), forward version
// with the furthest points of every number of edits kept for the way back.
std::vector<Side> edit_script(const std::vector<int>& a, const std::vector<int>& b) {
  const auto n = static_cast<std::ptrdiff_t>(a.size()), m = static_cast<std::ptrdiff_t>(b.size());
  const auto at = [](std::ptrdiff_t edits, std::ptrdiff_t diagonal) {
    return static_cast<std::size_t>(edits + diagonal);
  };
  std::vector<std::vector<std::ptrdiff_t>> furthest;  // [edits][edits + diagonal] = x
  const auto comes_down = [&](std::ptrdiff_t edits, std::ptrdiff_t diagonal) {
    if (diagonal == -edits) return true;
    if (diagonal == edits) return false;
    const auto& before = furthest[static_cast<std::size_t>(edits - 1)];
    return before[at(edits - 1, diagonal - 1)] < before[at(edits - 1, diagonal + 1)];
  };
  const auto start = [&](std::ptrdiff_t edits, std::ptrdiff_t diagonal) -> std::ptrdiff_t {
    if (edits == 0) return 0;
    const auto& before = furthest[static_cast<std::size_t>(edits - 1)];
    return comes_down(edits, diagonal) ? before[at(edits - 1, diagonal + 1)]
                                       : before[at(edits - 1, diagonal - 1)] + 1;
  };
  std::ptrdiff_t edits = -1;
  for (bool arrived = false; !arrived;) {
    ++edits;
    std::vector<std::ptrdiff_t> row(static_cast<std::size_t>(2 * edits + 1));
    for (std::ptrdiff_t k = -edits; k <= edits; k += 2) {
      std::ptrdiff_t x = start(edits, k);
      while (x < n && x - k < m && x - k >= 0 &&
             a[static_cast<std::size_t>(x)] == b[static_cast<std::size_t>(x - k)]) {
        ++x;
      }
      row[at(edits, k)] = x;
      arrived |= k == n - m && x >= n;
    }
    furthest.push_back(std::move(row));
  }
  std::vector<Side> script;
  std::ptrdiff_t x = n, k = n - m;
  for (; edits >= 0; --edits) {
    const std::ptrdiff_t from = start(edits, k);
    for (; x > from; --x) script.push_back(Side::kBoth);
    if (edits == 0) break;
    const bool down = comes_down(edits, k);
    script.push_back(down ? Side::kSecond : Side::kFirst);
    x -= down ? 0 : 1;
    k += down ? 1 : -1;
  }
  std::reverse(script.begin(), script.end());
  return script;
}

struct Numbering {
  std::unordered_map<std::string_view, int> known;
  std::vector<int> operator()(const Lines& lines) {
    std::vector<int> numbers;
    for (const std::string& line : lines) {
      numbers.push_back(known.try_emplace(line, static_cast<int>(known.size())).first->second);
    }
    return numbers;
  }
};

class Report {
 public:
  Report(GraphComparison& comparison, const ComparisonOptions& options)
      : comparison_(comparison), options_(options) {}

  void thread(std::size_t number, const Lines& first, const Lines& second) {
    Numbering number_of;
    const std::vector<int> numbers = number_of(first);
    const std::vector<Side> script = edit_script(numbers, number_of(second));
    const std::vector<bool> shown = near_differences(script);
    std::size_t a = 0, b = 0;
    bool gap = true;
    for (std::size_t i = 0; i < script.size(); ++i) {
      const bool both = script[i] == Side::kBoth, from_first = script[i] != Side::kSecond;
      ++(both ? comparison_.equal : from_first ? comparison_.only_first : comparison_.only_second);
      if (shown[i] && gap) add(fmt::format("@@ thread {}, {} | {} @@", number + 1, a + 1, b + 1));
      gap = !shown[i];
      if (shown[i]) {
        const std::string& line = from_first ? first[a] : second[b];
        add((both ? "  " : from_first ? "- " : "+ ") + line);
      }
      a += from_first;
      b += script[i] != Side::kFirst;
    }
  }

 private:
  std::vector<bool> near_differences(const std::vector<Side>& script) const {
    std::vector<bool> shown(script.size(), false);
    for (std::size_t i = 0; i < script.size(); ++i) {
      if (script[i] == Side::kBoth) continue;
      const std::size_t begin = i - std::min(i, options_.context);
      const std::size_t end = std::min(script.size(), i + options_.context + 1);
      std::fill(shown.begin() + static_cast<std::ptrdiff_t>(begin),
                shown.begin() + static_cast<std::ptrdiff_t>(end), true);
    }
    return shown;
  }

  void add(const std::string& line) {
    if (lines_++ < options_.longest_report) comparison_.report += line + "\n";
    if (lines_ == options_.longest_report + 1) comparison_.report += "...\n";
  }

  GraphComparison& comparison_;
  const ComparisonOptions& options_;
  std::size_t lines_ = 0;
};

}  // namespace

GraphComparison compare_graphs(const ExecutionGraph& first, const ExecutionGraph& second,
                               const ComparisonOptions& options) {
  const bool part = options.range.end > 0;
  std::vector<Lines> a =
      lines_of(first, options, part ? static_cast<std::size_t>(options.range.begin) : 0,
               part ? static_cast<std::size_t>(options.range.end) : first.nodes.size());
  std::vector<Lines> b = lines_of(second, options, 0, second.nodes.size());
  const std::size_t threads = std::max(a.size(), b.size());
  a.resize(threads);
  b.resize(threads);
  GraphComparison comparison;
  Report report(comparison, options);
  for (std::size_t i = 0; i < threads; ++i) report.thread(i, a[i], b[i]);
  return comparison;
}

std::ostream& operator<<(std::ostream& out, const GraphComparison& comparison) {
  return out << comparison.equal << " nodes equal, " << comparison.only_first
             << " only in the first graph (-), " << comparison.only_second
             << " only in the second (+)\n"
             << comparison.report;
}

}  // namespace perfmodel
