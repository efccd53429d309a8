#include <algorithm>
#include <numeric>
#include <utility>

#include "families.hpp"
#include "ops/catalogue.hpp"
#include "perfmodel/graph/detail/collective_name.hpp"

/// record_param_comms: the node that launches a collective. bytes_read counts the data that this
/// rank puts in, bytes_written the data that it gets; splits, where recorded, replace the tensor
/// sizes of an all-to-all, and the larger side sets the pace. The ranks are known if the graph
/// describes the process group. Waits, barriers without data and set-up records launch nothing.
///
/// Ops of libraries without such a record (symmetric memory, custom all-reduces) are the collective
/// in their name; without a group whose size the graph tells they have no price.
namespace perfmodel::ops {
namespace {

/// Records that launch nothing: "wait", "init", "end", "startCoalescing", ...
bool marks_only(std::string_view record) {
  return record.empty() || record == "wait" || record == "init" || record == "end" ||
         record.ends_with("Coalescing");
}

const ProcessGroup* group_of(const OpView& op, const CommRecord& record) {
  const auto& groups = op.graph.process_groups;
  const auto found = std::ranges::find(groups, record.process_group, &ProcessGroup::name);
  return found == groups.end() ? nullptr : &*found;
}

double split_elements(const std::vector<std::int64_t>& splits) {
  return static_cast<double>(std::accumulate(splits.begin(), splits.end(), std::int64_t{0}));
}

std::int64_t size_of(const ProcessGroup& group) {
  return group.size > 0 ? group.size : static_cast<std::int64_t>(group.ranks.size());
}

/// Adds the kernel of a collective; `group` is null if it is not known.
bool add_collective(std::string_view kind, std::int64_t world_size, const ProcessGroup* group,
                    KernelWork work, std::vector<KernelWork>& kernels) {
  CollectiveShape shape{.kind = std::string(kind),
                        .world_size = std::max<std::int64_t>(0, world_size)};
  if (group && std::ssize(group->ranks) == shape.world_size) shape.ranks = group->ranks;
  work.shape = std::move(shape);
  kernels.push_back(std::move(work));
  return true;
}

bool lower_collective(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  if (op.node.comm < 0) return false;
  const CommRecord& record = op.graph.comm_records[op.node.comm];
  if (marks_only(record.collective)) return true;
  const std::string_view kind = collective_in_name(record.collective);

  double in = 0, out = 0;
  DType dtype = DType::kUnknown;
  int item_size = 0;
  const auto note = [&](const Tensor& tensor) {
    if (dtype == DType::kUnknown) dtype = tensor.dtype;
    item_size = std::max(item_size, static_cast<int>(tensor.item_size));
  };
  for_each_gpu_tensor(op, op.inputs(), [&](const Tensor& tensor) {
    in += bytes(tensor);
    note(tensor);
  });
  for_each_gpu_tensor(op, op.outputs(), [&](const Tensor& tensor) {
    out += bytes(tensor);
    note(tensor);
  });
  if (dtype == DType::kUnknown) return true;  // no data on this GPU
  if (kind.empty()) return false;
  if (out == 0) out = in;
  std::int64_t world_size = record.group_size;
  if (world_size <= 0) world_size = static_cast<std::int64_t>(record.in_splits.size());
  const ProcessGroup* group = group_of(op, record);
  if (world_size <= 0 && group) world_size = size_of(*group);
  if (world_size <= 0) {  // old graphs: whatever another collective's splits say
    for (const CommRecord& other : op.graph.comm_records) {
      world_size = std::max(world_size, static_cast<std::int64_t>(other.in_splits.size()));
    }
  }
  if (kind == "all_to_all" && !record.in_splits.empty()) {
    // Splits count rows of the first dimension; they tell elements only for flat buffers.
    const double in_elements = split_elements(record.in_splits);
    const double out_elements = split_elements(record.out_splits);
    if (in_elements > 0 && in_elements * item_size > in) in = in_elements * item_size;
    if (out_elements > 0 && out_elements * item_size > out) out = out_elements * item_size;
  }
  return add_collective(kind, world_size, group,
                        make_work(KernelFamily::kCollective, dtype, in, out), kernels);
}

bool launches_collective(const ExecutionGraph& graph, const Node& node) {
  return std::ranges::any_of(graph.children(node), [&](std::int32_t index) {
    const Node& child = graph.node(index);
    if (child.comm >= 0) return true;
    const Op* row = find_op(graph.name(child));
    const bool named = row ? price_rule(*row) == "collective.by_name"
                           : !collective_of_op(graph.name(child)).empty();
    return named || launches_collective(graph, child);
  });
}

/// The group of the op's own record, else the one that an argument names, else the only one.
const ProcessGroup* group_of_arguments(const OpView& op) {
  const auto& groups = op.graph.process_groups;
  if (op.node.comm >= 0) return group_of(op, op.graph.comm_records[op.node.comm]);
  for (const Argument& argument : op.inputs()) {
    if (argument.kind != Argument::Kind::kString) continue;
    const std::string_view text = op.graph.names.text(argument.index);
    const auto named = std::ranges::find(groups, text, &ProcessGroup::name);
    if (named != groups.end()) return &*named;
  }
  return groups.size() == 1 ? &groups.front() : nullptr;
}

std::int64_t size_of(const OpView& op, const ProcessGroup* group) {
  if (op.node.comm >= 0) return op.graph.comm_records[op.node.comm].group_size;
  for (const std::string_view parameter : {"group_size", "world_size"}) {
    const int position = parameter_index(op, parameter);
    const auto size = position < 0 ? 0 : int_input(op, static_cast<std::size_t>(position), 0);
    if (size > 0) return size;
  }
  return group ? size_of(*group) : 0;
}

/// Bytes and type of the first argument with tensors on the GPU.
double bytes_of_first(const OpView& op, std::span<const Argument> arguments, DType& dtype) {
  for (const Argument& argument : arguments) {
    double size = 0;
    for_each_gpu_tensor(op, std::span(&argument, 1), [&](const Tensor& tensor) {
      size += bytes(tensor);
      dtype = tensor.dtype;
    });
    if (size > 0) return size;
  }
  return 0;
}

bool lower_by_name(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  if (launches_collective(op.graph, op.node)) return true;
  const std::string_view name = op.name(), kind = collective_in_name(name);
  const ProcessGroup* group = group_of_arguments(op);
  const std::int64_t world_size = size_of(op, group);
  const bool fused = name.find("matmul") != name.npos || name.find("_mm") != name.npos;
  if (kind.empty() || world_size <= 0 || (fused && op.node.children_count == 0)) return false;
  const auto ranks = static_cast<double>(world_size);
  const bool result_first = name.starts_with("c10d::");
  DType dtype = DType::kUnknown;
  double in = bytes_of_first(op, op.inputs(), dtype), out = in;
  if (kind == "all_gather") {
    if (result_first) in /= ranks;
    out = in * ranks;
  } else if (kind == "reduce_scatter") {
    if (fused) in = ranks * bytes_of_first(op, op.outputs(), dtype);
    if (result_first) in *= ranks;
    out = in / ranks;
  }
  if (dtype == DType::kUnknown) return false;
  return add_collective(kind, world_size, group,
                        make_work(KernelFamily::kCollective, dtype, in, out), kernels);
}

}  // namespace

std::span<const NamedLower> collective_rules() {
  static constexpr NamedLower kRules[] = {
      {"collective", lower_collective},
      {"collective.by_name", lower_by_name},
  };
  return kRules;
}

}  // namespace perfmodel::ops
