#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/contains.hpp"
#include "builders/emit/graph_views.hpp"
#include "retarget_rules.hpp"

namespace perfmodel {
namespace {

// Moves the nodes from `from` on to `to`, which is before them. Numbers stay in order.
void move_nodes(ExecutionGraph& graph, std::size_t to, std::size_t from) {
  const std::vector<Node> before(graph.nodes.begin() + static_cast<std::ptrdiff_t>(to),
                                 graph.nodes.end());
  const std::span<Node> nodes = std::span(graph.nodes).subspan(to);
  std::rotate(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(from - to), nodes.end());
  std::unordered_map<std::int64_t, std::int64_t> ids;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    ids.emplace(nodes[i].id, before[i].id);
    nodes[i].id = before[i].id;
    nodes[i].rf_id = before[i].rf_id;
  }
  for (Node& node : nodes) {
    if (const auto parent = ids.find(node.parent_id); parent != ids.end()) {
      node.parent_id = parent->second;
    }
  }
}

}  // namespace

const ExecutionGraph& CpuOp::source() const { return rewrite_->source(); }
GraphEdit& CpuOp::edit() const { return rewrite_->edit_; }
bool CpuOp::amd() const { return rewrite_->options_.vendor == RetargetOptions::Vendor::kAmd; }

std::int32_t CpuOp::child(std::string_view wanted) const {
  const auto below = children();
  const auto found =
      std::ranges::find_if(below, [&](std::int32_t i) { return source().name(i) == wanted; });
  return found == below.end() ? -1 : *found;
}

Value CpuOp::value(const Argument& argument) const {
  using Kind = Argument::Kind;
  const StringPool& names = edit().made().names;
  switch (argument.kind) {
    case Kind::kNone: break;
    case Kind::kTensor: return edit().copy().tensor(argument);
    case Kind::kInt: return argument.integer;
    case Kind::kDouble: return argument.real;
    case Kind::kBool: return argument.integer != 0;
    case Kind::kString: return std::string(names.text(argument.index)).c_str();
    case Kind::kOpaque: return Value::Opaque{std::string(names.text(argument.index))};
    case Kind::kList: {
      Value::List list;
      for (const Argument& element : source().elements(argument)) list.push_back(value(element));
      return list;
    }
  }
  return kNone;
}

Value CpuOp::argument(std::size_t at) const {
  if (at >= inputs().size()) return kNone;
  // The graph being made names the GPU as the device.
  return value(Argument(edit().made().arguments[source().node(node_).inputs_begin + at]));
}

TensorRef CpuOp::tensor(std::size_t at, std::optional<int> rank) const {
  if (!input(at)) return missing(fmt::format("a tensor as input {}", at));
  if (rank && input(at)->rank != *rank) {
    return missing(fmt::format("a tensor of {} dimensions as input {}", *rank, at));
  }
  return tensor(inputs()[at]);
}

TensorRef CpuOp::tensor(const Argument& argument) const {
  const Shape& strides = std::as_const(rewrite_->strides_)[source().tensors[argument.index]];
  return edit().builder().tensor_of_source(argument.index, strides.empty() ? nullptr : &strides);
}

TensorRef CpuOp::result(std::size_t at) const {
  if (!output(at)) return missing(fmt::format("a tensor as output {}", at));
  return edit().copy().tensor(source().outputs(node_)[at]);
}

TensorRef CpuOp::sparse(const Argument& argument) const {
  const auto [known, is_new] = rewrite_->sparse_.try_emplace(source().tensors[argument.index].id);
  if (is_new) known->second = tensor(argument);
  return known->second;
}

TensorRef CpuOp::filled_sparse(std::size_t at) const {
  const TensorRef made = sparse(inputs()[at]);
  GraphBuilder& graph = edit().builder();
  if (!graph.sparse_values(made).exists()) {
    missing("a sparse tensor that an op of the step has made");
    graph.set_sparse_parts(made, graph.new_tensor(DType::kInt64, {1, 1}),
                           graph.new_tensor(DType::kFloat32, {1, 1}));
  }
  return made;
}

TensorRef CpuOp::missing(std::string_view expected) const {
  if (!rewrite_->error_) {
    rewrite_->error_ = {
        .code = ErrorCode::kFormat,
        .message = fmt::format("retarget: expected {}, found another \"{}\" (node {})", expected,
                               name(), source().node(node_).id)};
  }
  return edit().builder().new_tensor(DType::kFloat32, {1, 1, 1, 1, 1});
}

void CpuOp::leave_out() const {
  rewrite_->settled_[node_] = true;
  edit().replace(node_);
}

void CpuOp::keep_children(std::initializer_list<std::string_view> names) const {
  for (const std::int32_t below : children()) {
    if (!contains(names, source().name(below))) at(below).leave_out();
  }
}

void CpuOp::replace(Write write) const {
  rewrite_->settled_[node_] = true;
  edit().replace(node_, [op = *this, write = std::move(write)] {
    if (op.rewrite_->error_) return;
    op.edit().copy().close_beside(op.node_);
    const std::size_t position = op.edit().made().nodes.size();
    op.write_as(write);
    const std::size_t end = op.edit().made().nodes.size();
    if (end == position || op.rewrite_->error_) return;
    op.write_saved(position, false);
    move_nodes(op.edit().made(), position + 1, end);
    op.write_saved(position, true);
  });
}

void CpuOp::refill(Write write) const {
  rewrite_->settled_[node_] = true;
  edit().refill(node_, [op = *this, write = std::move(write)] {
    if (op.rewrite_->error_) return;
    const std::size_t position = op.edit().made().nodes.size() - 1;
    op.write_saved(position, false);
    if (write) write(op.edit().builder());
    op.write_saved(position, true);
  });
}

// Autograd detaches what it gives to hooks of saved tensors: inputs before the kernel runs, results
// after it.
std::vector<std::int32_t> CpuOp::saved(bool results) const {
  std::vector<std::int32_t> found;
  for (const std::int32_t child : children()) {
    const CpuOp op = at(child);
    if (op.child("detach") < 0 || op.name() != "aten::detach" || !op.input(0)) continue;
    bool is_result = false;
    for_each_tensor(source(), source().outputs(node_),
                    [&](const Tensor& tensor) { is_result |= tensor.id == op.input(0)->id; });
    if (is_result == results) found.push_back(child);
  }
  return found;
}

// Into the node at `position`, which is this op's.
void CpuOp::write_saved(std::size_t position, bool results) const {
  GraphBuilder& graph = edit().builder();
  for (const std::int32_t child : saved(results)) {
    const CpuOp op = at(child);
    graph.close_to(graph.thread(), position);
    op.write_as([op](GraphBuilder& graph) { detach(graph, op.tensor(0)); });
  }
}

void CpuOp::write_as(const Write& write) const {
  const ExecutionGraph& made = edit().made();
  const std::size_t first = made.nodes.size(), first_entry = made.tensors.size();
  write(edit().builder());
  for (std::size_t i = 0; i < made.nodes[first].outputs_count; ++i) {
    const Tensor* tensor = output_at(made, static_cast<std::int32_t>(first), i);
    if (tensor && output(i)) rewrite_->rename_tensor(first_entry, *tensor, *output(i));
  }
}

KeptForBackward& CpuOp::keep(std::string function) const {
  KeptForBackward kept{.function = std::move(function)};
  return rewrite_->kept_.insert_or_assign(sequence(), std::move(kept)).first->second;
}

const KeptForBackward* CpuOp::kept_around(std::string_view function) const {
  if (parent() < 0 || source().node(parent()).scope != Scope::kBackward) return nullptr;
  const auto kept = rewrite_->kept_.find(at(parent()).sequence());
  const bool is_kept = kept != rewrite_->kept_.end() && kept->first >= 0;
  return is_kept && kept->second.function == function ? &kept->second : nullptr;
}

}  // namespace perfmodel
