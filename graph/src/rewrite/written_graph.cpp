#include "written_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "step/nesting.hpp"

namespace perfmodel {
namespace {

/// A tensor as nodes mention it, or all that lie in its memory. Recordings use ids again, so that a
/// tensor's id alone tells nothing.
using Name = std::uint64_t;
Name name_of(const Tensor& tensor) {
  constexpr int kBits = 32;  // no recording needs more bits for its storages
  return std::rotl(static_cast<Name>(tensor.storage_id), kBits) + static_cast<Name>(tensor.id);
}
Name memory_of(const Tensor& tensor) { return static_cast<std::uint64_t>(tensor.storage_id); }

// PyTorch wraps a number on the way into an op: no op makes it.
bool is_wrapped_number(const Tensor& tensor) { return tensor.rank == 0 && !tensor.on_gpu(); }

/// A set of at most `most` names, none of which is removed.
class NameSet {
 public:
  explicit NameSet(std::size_t most) : slots_(std::bit_ceil(2 * most + 1)) {}

  /// Whether the name is new.
  bool insert(Name name) {
    const std::size_t mask = slots_.size() - 1;
    const Name kept = name + 1;  // 0: a free slot
    const std::size_t first = name + (name >> 32) * 0x9E3779B1;
    for (std::size_t at = first & mask;; at = (at + 1) & mask) {
      if (slots_[at] == kept) return false;
      if (slots_[at] == 0) return slots_[at] = kept, true;
    }
  }

 private:
  std::vector<Name> slots_;
};

// Names that nothing makes before they are read, with the first node that reads each.
std::unordered_map<Name, const Node*> read_first(const ExecutionGraph& graph,
                                                 Name (*name)(const Tensor&)) {
  NameSet mentioned(graph.tensors.size());
  std::unordered_map<Name, const Node*> found;
  for (const Node& node : graph.nodes) {
    for_each_tensor(graph, graph.inputs(node), [&](const Tensor& tensor) {
      const bool is_first = mentioned.insert(name(tensor));
      if (is_first && !is_wrapped_number(tensor)) found.emplace(name(tensor), &node);
    });
    for_each_tensor(graph, graph.outputs(node),
                    [&](const Tensor& tensor) { mentioned.insert(name(tensor)); });
  }
  return found;
}

// A node that reads a tensor that `source` makes and `made` does not; null: none.
const Node* reader_of_lost(const ExecutionGraph& source, const ExecutionGraph& made,
                           Name (*name)(const Tensor&)) {
  auto open = read_first(made, name);
  const Node* reader = nullptr;
  for (const Node& node : source.nodes) {
    for_each_tensor(source, source.inputs(node),
                    [&](const Tensor& tensor) { open.erase(name(tensor)); });
    for_each_tensor(source, source.outputs(node), [&](const Tensor& tensor) {
      const auto lost = open.find(name(tensor));
      if (lost == open.end()) return;
      if (!reader && tensor.storage_id != 0) reader = lost->second;
      open.erase(lost);
    });
    if (reader || open.empty()) break;
  }
  return reader;
}

// Ids in recordings of a CPU are addresses, which tensors that autograd unpacks may share with
// others: there an id does not tell whether its maker is lost.
bool has_own_ids(const ExecutionGraph& graph) {
  return std::ranges::any_of(graph.tensors, &Tensor::on_gpu);
}

const Node* reader_of_lost(const ExecutionGraph& source, const ExecutionGraph& made) {
  if (!has_own_ids(source)) return nullptr;
  const Node* reader = reader_of_lost(source, made, name_of);
  return reader ? reader : reader_of_lost(source, made, memory_of);
}

}  // namespace

Result<void> check_written(const ExecutionGraph& source, const ExecutionGraph& made) {
  if (const Node* reader = reader_of_lost(source, made)) {
    return fail(ErrorCode::kImpossible,
                fmt::format("the graph contradicts itself: {} would read what no op makes",
                            made.name(*reader)));
  }
  if (!check_nesting(source)) return {};
  if (const auto nested = check_nesting(made); !nested) {
    return fail(ErrorCode::kImpossible, "the graph contradicts itself: " + nested.error().message);
  }
  return {};
}

}  // namespace perfmodel
