#include "unique_ids.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "backward_pass.hpp"
#include "by_id.hpp"
#include "tree_walk.hpp"

namespace perfmodel {
namespace {

class VersionNamer {
 public:
  VersionNamer(const ExecutionGraph& graph, std::int32_t end)
      : source_(graph),
        end_(end),
        is_named_(graph.tensors.size()),
        tensors_{&Tensor::id, ById<Version>(graph.tensors.size())},
        storages_{&Tensor::storage_id, ById<Version>(graph.tensors.size())} {
    for (const Tensor& tensor : graph.tensors) {
      last_id_ = std::max({last_id_, tensor.id, tensor.storage_id});
    }
    for (const Node& node : graph.nodes) last_id_ = std::max(last_id_, node.id);
  }

  std::optional<ExecutionGraph> run() {
    const EndingNodes ending(source_, 0, end_);
    for (std::int32_t i = 0; i < end_; ++i) {
      const Node& node = source_.node(i);
      find_taken(i, tensors_);
      find_taken(i, storages_);
      write_names(node.inputs_begin, node.inputs_count);
      ending.for_each(i, [&](std::int32_t ended) {
        find_given(ended, i, tensors_);
        find_given(ended, i, storages_);
        write_names(source_.node(ended).outputs_begin, source_.node(ended).outputs_count);
      });
    }
    return std::move(made_);
  }

 private:
  /// The version of a recorded id that is current.
  struct Version {
    std::int64_t name = 0;           // 0: it was not mentioned
    std::int32_t mentioned_at = -1;  // the node that began last by then
  };
  /// Versions of tensors, or versions of storages.
  struct Ids {
    std::int64_t Tensor::*id;
    ById<Version> versions;

    std::int64_t of(const Tensor& tensor) const { return is_undefined(tensor) ? 0 : tensor.*id; }
    std::int64_t name(const Tensor& tensor) {
      const std::int64_t recorded = of(tensor);
      return recorded == 0 ? tensor.*id : versions[recorded].name;
    }
  };

  void find_taken(std::int32_t index, Ids& ids) {
    for_each_tensor(source_, source_.inputs(index), [&](const Tensor& tensor) {
      const std::int64_t id = ids.of(tensor);
      if (id == 0) return;
      Version& version = ids.versions[id];
      if (version.name == 0) {
        version.name = id;
      } else if (is_filled(index, version.mentioned_at, ids, id)) {
        version.name = ++last_id_;
      }
      version.mentioned_at = index;
    });
  }

  void find_given(std::int32_t index, std::int32_t last_inside, Ids& ids) {
    for_each_tensor(source_, source_.outputs(index), [&](const Tensor& tensor) {
      const std::int64_t id = ids.of(tensor);
      if (id == 0) return;
      Version& version = ids.versions[id];
      const bool is_known = version.mentioned_at >= index;  // it or one inside takes or gives it
      version.mentioned_at = last_inside;
      if (version.name == 0) {
        version.name = id;
      } else if (!is_known && !is_taken_above(index, ids, id)) {
        version.name = ++last_id_;
      }
    });
  }

  // Whether a node fills a tensor that an op around it, which began after the last mention, has
  // made and returns in the end.
  bool is_filled(std::int32_t index, std::int32_t last_mention, const Ids& ids,
                 std::int64_t id) const {
    for (std::int32_t i = parent_of(index); i > last_mention; i = parent_of(i)) {
      if (mentions(source_.outputs(i), ids, id)) return !is_taken_above(i, ids, id);
    }
    return false;
  }

  bool is_taken_above(std::int32_t index, const Ids& ids, std::int64_t id) const {
    for (std::int32_t i = parent_of(index); i >= 0 && !source_.node(i).is_label; i = parent_of(i)) {
      if (mentions(source_.inputs(i), ids, id)) return true;
    }
    return false;
  }

  std::int32_t parent_of(std::int32_t node) const { return parent_before(source_, node); }

  bool mentions(std::span<const Argument> arguments, const Ids& ids, std::int64_t id) const {
    bool found = false;
    for_each_tensor(source_, arguments, [&](const Tensor& one) { found |= ids.of(one) == id; });
    return found;
  }

  void write_names(std::uint32_t begin, std::uint32_t count) {
    for (std::uint32_t i = begin; i < begin + count; ++i) {
      const Argument argument = source_.arguments[i];
      if (argument.kind == Argument::Kind::kList) write_names(argument.index, argument.count);
      if (argument.kind == Argument::Kind::kTensor) write_name(argument.index, i);
    }
  }

  void write_name(std::uint32_t entry, std::uint32_t mention) {
    const Tensor& recorded = source_.tensors[entry];
    const std::int64_t id = tensors_.name(recorded), storage_id = storages_.name(recorded);
    const auto has_names = [&](const Tensor& tensor) {
      return tensor.id == id && tensor.storage_id == storage_id;
    };
    const bool is_first = !is_named_[entry];
    is_named_[entry] = true;
    if (!made_ && has_names(recorded)) return;
    if (!made_) made_ = source_;
    Tensor* made = &made_->tensors[entry];
    if (has_names(*made)) return;
    if (!is_first) {  // two nodes share the entry, and ops between them gave its id away
      made_->arguments[mention].index = static_cast<std::uint32_t>(made_->tensors.size());
      made = &made_->tensors.emplace_back(recorded);
    }
    made->id = id;
    made->storage_id = storage_id;
  }

  const ExecutionGraph& source_;
  const std::int32_t end_;
  std::optional<ExecutionGraph> made_;  // once a name differs
  std::vector<bool> is_named_;          // by entry of the source
  Ids tensors_, storages_;
  std::int64_t last_id_ = 0;
};

}  // namespace

std::optional<ExecutionGraph> without_reused_ids(const ExecutionGraph& graph, std::int32_t end) {
  return graph.built ? std::nullopt : VersionNamer(graph, end).run();
}

ExecutionGraph with_unique_ids(const ExecutionGraph& graph) {
  auto renamed = without_reused_ids(graph, static_cast<std::int32_t>(graph.nodes.size()));
  return renamed ? std::move(*renamed) : graph;
}

void restore_recorded_ids(const ExecutionGraph& recorded, const ExecutionGraph& renamed,
                          ExecutionGraph& made) {
  for (const auto id : {&Tensor::id, &Tensor::storage_id}) {
    std::unordered_map<std::int64_t, std::int64_t> recorded_ids;  // by version
    for (std::size_t i = 0; i < recorded.tensors.size(); ++i) {
      recorded_ids.try_emplace(renamed.tensors[i].*id, recorded.tensors[i].*id);
    }
    for (Tensor& tensor : made.tensors) {
      const auto at = recorded_ids.find(tensor.*id);
      if (at != recorded_ids.end()) tensor.*id = at->second;
    }
  }
}

}  // namespace perfmodel
