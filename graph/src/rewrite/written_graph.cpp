#include "written_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
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

/// Knows, for each name that a graph mentions, the first node that reads it, if nothing makes it
/// before.
class FirstReaders {
 public:
  FirstReaders(const ExecutionGraph& graph, Name (*name)(const Tensor&))
      : names_(std::bit_ceil(2 * graph.tensors.size() + 1)), readers_(names_.size(), kNone) {
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const auto node = static_cast<std::int32_t>(i);
      for_each_tensor(graph, graph.inputs(node), [&](const Tensor& tensor) {
        insert(name(tensor), is_wrapped_number(tensor) ? kNone : node);
      });
      for_each_tensor(graph, graph.outputs(node),
                      [&](const Tensor& tensor) { insert(name(tensor), kNone); });
    }
  }

  bool empty() const { return size_ == 0; }
  /// Forgets the first node that reads a name and returns it, or kNone.
  std::int32_t take(Name name) {
    const std::size_t at = place(name);
    if (names_[at] == 0 || readers_[at] == kNone) return kNone;
    --size_;
    return std::exchange(readers_[at], kNone);
  }
  static constexpr std::int32_t kNone = -1;

 private:
  // Where the name is, or the free place (0) where it would be.
  std::size_t place(Name name) const {
    const std::size_t mask = names_.size() - 1;
    std::size_t at = (name + (name >> 32) * 0x9E3779B1) & mask;
    while (names_[at] != name + 1 && names_[at] != 0) at = (at + 1) & mask;
    return at;
  }
  void insert(Name name, std::int32_t reader) {
    const std::size_t at = place(name);
    if (names_[at] != 0 || name + 1 == 0) return;
    names_[at] = name + 1;
    readers_[at] = reader;
    size_ += reader != kNone;
  }

  std::vector<Name> names_;  // plus 1; 0: free
  std::vector<std::int32_t> readers_;
  std::size_t size_ = 0;  // readers that are not kNone
};

// A node that reads a tensor that `source` makes and `made` does not; null: none.
const Node* reader_of_lost(const ExecutionGraph& source, const ExecutionGraph& made,
                           Name (*name)(const Tensor&)) {
  FirstReaders open(made, name);
  std::int32_t reader = FirstReaders::kNone;
  for (const Node& node : source.nodes) {
    for_each_tensor(source, source.inputs(node),
                    [&](const Tensor& tensor) { open.take(name(tensor)); });
    for_each_tensor(source, source.outputs(node), [&](const Tensor& tensor) {
      const std::int32_t lost = open.take(name(tensor));
      if (reader < 0 && tensor.storage_id != 0) reader = lost;
    });
    if (reader >= 0 || open.empty()) break;
  }
  return reader < 0 ? nullptr : &made.node(reader);
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
