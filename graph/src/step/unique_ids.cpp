#include "unique_ids.hpp"

#include <algorithm>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backward_pass.hpp"
#include "base/contains.hpp"

namespace perfmodel {
namespace {

class VersionNamer {
 public:
  explicit VersionNamer(const ExecutionGraph& graph)
      : source_(graph), made_(graph), is_named_(graph.tensors.size()) {
    for (const Tensor& tensor : graph.tensors) {
      last_id_ = std::max({last_id_, tensor.id, tensor.storage_id});
    }
    for (const Node& node : graph.nodes) last_id_ = std::max(last_id_, node.id);
  }

  ExecutionGraph run() {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(source_.nodes.size()); ++i) {
      note_versions(i, tensors_);
      note_versions(i, storages_);
      const Node& node = source_.node(i);
      write_names(node.inputs_begin, node.inputs_count);
      write_names(node.outputs_begin, node.outputs_count);
    }
    return std::move(made_);
  }

 private:
  /// Versions of tensors, or versions of storages.
  struct Ids {
    std::int64_t Tensor::*id;
    std::unordered_map<std::int64_t, std::int64_t> now = {};  // recorded id -> the version's

    std::int64_t of(const Tensor& tensor) const { return is_undefined(tensor) ? 0 : tensor.*id; }
    std::int64_t name(const Tensor& tensor) const {
      const auto at = now.find(of(tensor));
      return at == now.end() ? tensor.*id : at->second;
    }
  };

  void note_versions(std::int32_t index, Ids& ids) {
    std::vector<std::int64_t> known;  // taken, or given by the node already
    for_each_tensor(source_, source_.inputs(index), [&](const Tensor& tensor) {
      known.push_back(ids.of(tensor));
      if (known.back() != 0) ids.now.try_emplace(known.back(), known.back());
    });
    for_each_tensor(source_, source_.outputs(index), [&](const Tensor& tensor) {
      const std::int64_t id = ids.of(tensor);
      if (id == 0 || contains(known, id)) return;
      known.push_back(id);
      const auto [at, is_first] = ids.now.try_emplace(id, id);
      if (!is_first && !is_told_above(index, ids, id)) at->second = ++last_id_;
    });
  }

  // Whether an op around the node takes or gives it.
  bool is_told_above(std::int32_t index, const Ids& ids, std::int64_t id) const {
    const auto tells = [&](std::span<const Argument> arguments) {
      bool found = false;
      for_each_tensor(source_, arguments, [&](const Tensor& one) { found |= ids.of(one) == id; });
      return found;
    };
    for (std::int32_t i = source_.node(index).parent; i >= 0 && !source_.node(i).is_label;
         i = source_.node(i).parent) {
      if (tells(source_.inputs(i)) || tells(source_.outputs(i))) return true;
    }
    return false;
  }

  void write_names(std::uint32_t begin, std::uint32_t count) {
    for (std::uint32_t i = begin; i < begin + count; ++i) {
      const Argument argument = source_.arguments[i];
      if (argument.kind == Argument::Kind::kList) write_names(argument.index, argument.count);
      if (argument.kind == Argument::Kind::kTensor) write_name(argument.index, made_.arguments[i]);
    }
  }

  void write_name(std::uint32_t entry, Argument& mention) {
    Tensor named = source_.tensors[entry];
    std::tie(named.id, named.storage_id) = std::pair(tensors_.name(named), storages_.name(named));
    Tensor& made = made_.tensors[entry];
    const bool is_other =
        is_named_[entry] && (made.id != named.id || made.storage_id != named.storage_id);
    if (is_other) {  // two nodes share the entry, and ops between them gave its id away
      mention.index = static_cast<std::uint32_t>(made_.tensors.size());
      made_.tensors.push_back(named);
    } else {
      made = named;
      is_named_[entry] = true;
    }
  }

  const ExecutionGraph& source_;
  ExecutionGraph made_;
  std::vector<bool> is_named_;  // by entry of the source
  Ids tensors_ = {&Tensor::id}, storages_ = {&Tensor::storage_id};
  std::int64_t last_id_ = 0;
};

}  // namespace

ExecutionGraph with_unique_ids(const ExecutionGraph& graph) {
  return graph.built ? graph : VersionNamer(graph).run();
}

}  // namespace perfmodel
