#include "chakra_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/secrets.hpp"

namespace perfmodel {

std::string_view to_string(ChakraNodeType type) {
  switch (type) {
    case ChakraNodeType::kMetadata: return "metadata";
    case ChakraNodeType::kMemoryLoad: return "memory load";
    case ChakraNodeType::kMemoryStore: return "memory store";
    case ChakraNodeType::kCompute: return "compute";
    case ChakraNodeType::kSend: return "send";
    case ChakraNodeType::kReceive: return "receive";
    case ChakraNodeType::kCollective: return "collective";
  }
  return "unknown";
}

std::string_view to_string(ChakraCollective collective) {
  constexpr std::array<std::string_view, 10> kNames = {
      "all_reduce", "reduce",         "all_gather",           "gather", "scatter", "broadcast",
      "all_to_all", "reduce_scatter", "reduce_scatter_block", "barrier"};
  const auto index = static_cast<std::size_t>(collective);
  return index < kNames.size() ? kNames[index] : "unknown";
}

ChakraAttribute ChakraAttribute::integer(std::string name, std::int64_t value) {
  return {.name = std::move(name), .type = ChakraValueType::kInt64, .value = value};
}
ChakraAttribute ChakraAttribute::real(std::string name, double value) {
  return {.name = std::move(name), .type = ChakraValueType::kDouble, .value = value};
}
ChakraAttribute ChakraAttribute::flag(std::string name, bool value) {
  return {.name = std::move(name),
          .type = ChakraValueType::kBool,
          .value = static_cast<std::uint64_t>(value)};
}
ChakraAttribute ChakraAttribute::text(std::string name, std::string value) {
  return {.name = std::move(name), .type = ChakraValueType::kString, .value = std::move(value)};
}

std::int64_t chakra_comm_size(ChakraCollective collective, std::int64_t buffer_bytes,
                              std::int64_t group_size) {
  PERFMODEL_CHECK(buffer_bytes >= 0 && group_size > 0);
  if (collective != ChakraCollective::kAllGather) return buffer_bytes;
  return buffer_bytes / group_size + (buffer_bytes % group_size != 0 ? 1 : 0);
}

namespace chakra {

std::optional<Known> known_attribute(std::string_view name) {
  for (std::size_t i = 0; i < kKnownNames.size(); ++i) {
    if (kKnownNames[i] == name) return static_cast<Known>(i);
  }
  return {};
}

Layout layout_of(ChakraValueType type) {
  constexpr std::array<Layout, 15> kLayouts = {
      Layout::kDouble,   Layout::kFloat,    Layout::kSigned,   Layout::kSigned,  Layout::kUnsigned,
      Layout::kUnsigned, Layout::kZigzag,   Layout::kZigzag,   Layout::kFixed32, Layout::kFixed64,
      Layout::kSfixed32, Layout::kSfixed64, Layout::kUnsigned, Layout::kText,    Layout::kRaw};
  const auto number = static_cast<std::size_t>(type);
  return number < 3 || number > 32 ? Layout::kNone : kLayouts[(number - 3) / 2];
}

std::string_view to_string(ChakraValueType type) {
  constexpr std::array<std::string_view, 15> kNames = {
      "a double",    "a float",     "an int32",  "an int64",  "a uint32",
      "a uint64",    "an sint32",   "an sint64", "a fixed32", "a fixed64",
      "an sfixed32", "an sfixed64", "a bool",    "a string",  "bytes"};
  const auto number = static_cast<std::size_t>(type);
  if (number < 3 || number > 32) return "no value";
  return is_list(type) ? "a list" : kNames[(number - 3) / 2];
}

std::string describe(const ChakraNode& node) {
  return fmt::format("id {}, \"{}\"", node.id, shown_text(node.name));
}

namespace {

constexpr std::uint32_t kNowhere = ~std::uint32_t{0};

// Index of a node by id: an array where the ids are dense, as most writers make them, else a hash.
class IdTable {
 public:
  explicit IdTable(std::span<const ChakraNode> nodes) {
    const auto [low, high] =
        std::minmax_element(nodes.begin(), nodes.end(),
                            [](const ChakraNode& a, const ChakraNode& b) { return a.id < b.id; });
    first_ = low->id;
    if (high->id - low->id < 4 * nodes.size() + 1024) {
      dense_.assign(high->id - low->id + 1, kNowhere);
    } else {
      sparse_.reserve(nodes.size());
    }
  }

  // The index that has the id already, or kNowhere.
  std::uint32_t add(std::uint64_t id, std::uint32_t index) {
    if (dense_.empty()) {
      const auto [at, is_new] = sparse_.try_emplace(id, index);
      return is_new ? kNowhere : at->second;
    }
    return std::exchange(dense_[id - first_], index);
  }

  std::uint32_t find(std::uint64_t id) const {
    if (dense_.empty()) {
      const auto at = sparse_.find(id);
      return at == sparse_.end() ? kNowhere : at->second;
    }
    return id - first_ < dense_.size() ? dense_[id - first_] : kNowhere;
  }

 private:
  std::uint64_t first_ = 0;
  std::vector<std::uint32_t> dense_;
  std::unordered_map<std::uint64_t, std::uint32_t> sparse_;
};

template <class Visit>
void for_each_dependency(const ChakraNode& node, Visit&& visit) {
  for (std::uint64_t id : node.ctrl_deps) visit(id, "control");
  for (std::uint64_t id : node.data_deps) visit(id, "data");
}

// Fills the table.
std::optional<Defect> repeated_id(std::span<const ChakraNode> nodes, IdTable& ids) {
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    if (const std::uint32_t other = ids.add(nodes[i].id, i); other != kNowhere) {
      return Defect{i, fmt::format("expected an id of its own, found {}, the id of node {}",
                                   nodes[i].id, other)};
    }
  }
  return {};
}

// Kahn's algorithm; of what it leaves, every node leads to a cycle by its dependencies.
std::optional<Defect> find_cycle(std::span<const ChakraNode> nodes, const IdTable& ids) {
  const auto count = static_cast<std::uint32_t>(nodes.size());
  std::vector<std::uint32_t> open(count, 0), begin(count + 1, 0);
  for (std::uint32_t i = 0; i < count; ++i) {
    for_each_dependency(nodes[i], [&](std::uint64_t id, const char*) {
      ++open[i];
      ++begin[ids.find(id) + 1];
    });
  }
  for (std::uint32_t i = 0; i < count; ++i) begin[i + 1] += begin[i];
  std::vector<std::uint32_t> successors(begin[count]), fill(begin.begin(), begin.end() - 1);
  for (std::uint32_t i = 0; i < count; ++i) {
    for_each_dependency(
        nodes[i], [&](std::uint64_t id, const char*) { successors[fill[ids.find(id)]++] = i; });
  }
  std::vector<std::uint32_t> ready;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (open[i] == 0) ready.push_back(i);
  }
  std::size_t done = 0;
  while (!ready.empty()) {
    const std::uint32_t node = ready.back();
    ready.pop_back();
    ++done;
    for (std::uint32_t at = begin[node]; at < begin[node + 1]; ++at) {
      if (--open[successors[at]] == 0) ready.push_back(successors[at]);
    }
  }
  if (done == count) return {};

  auto node = static_cast<std::uint32_t>(
      std::find_if(open.begin(), open.end(), [](std::uint32_t left) { return left > 0; }) -
      open.begin());
  std::vector<std::uint32_t> path, place(count, kNowhere);
  while (place[node] == kNowhere) {
    place[node] = static_cast<std::uint32_t>(path.size());
    path.push_back(node);
    std::uint32_t next = kNowhere;
    for_each_dependency(nodes[node], [&](std::uint64_t id, const char*) {
      const std::uint32_t dependency = ids.find(id);
      if (next == kNowhere && open[dependency] > 0) next = dependency;
    });
    node = next;
  }
  constexpr std::size_t kShown = 8;
  const std::span<const std::uint32_t> cycle = std::span(path).subspan(place[node]);
  std::string text;
  for (std::size_t i = 0; i < std::min(cycle.size(), kShown); ++i) {
    text += fmt::format("{} needs ", nodes[cycle[i]].id);
  }
  if (cycle.size() > kShown) text += fmt::format("... ({} nodes) needs ", cycle.size());
  text += std::to_string(nodes[node].id);
  return Defect{node,
                fmt::format("expected dependencies without a cycle, found that node {}", text)};
}

}  // namespace

std::optional<Defect> find_repeated_id(std::span<const ChakraNode> nodes) {
  if (nodes.empty()) return {};
  if (nodes.size() >= kNowhere) return Defect{0, "expected fewer than 2^32 - 1 nodes"};
  IdTable ids(nodes);
  return repeated_id(nodes, ids);
}

std::optional<Defect> find_dependency_defect(std::span<const ChakraNode> nodes) {
  if (nodes.empty()) return {};
  if (nodes.size() >= kNowhere) return Defect{0, "expected fewer than 2^32 - 1 nodes"};
  IdTable ids(nodes);
  if (auto repeated = repeated_id(nodes, ids)) return repeated;
  bool backwards = true;  // every dependency on an earlier node: no cycle
  std::size_t edges = 0;
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    std::optional<Defect> defect;
    for_each_dependency(nodes[i], [&](std::uint64_t id, const char* kind) {
      const std::uint32_t other = ids.find(id);
      if (other == kNowhere && !defect) {
        defect = Defect{i, fmt::format("expected dependencies on nodes of the file, found a {} "
                                       "dependency on id {}, which no node has",
                                       kind, id)};
      }
      backwards = backwards && other < i;
      ++edges;
    });
    if (defect) return defect;
  }
  if (backwards) return {};
  if (edges >= kNowhere) return Defect{0, "expected fewer than 2^32 - 1 dependencies"};
  return find_cycle(nodes, ids);
}

}  // namespace chakra
}  // namespace perfmodel
