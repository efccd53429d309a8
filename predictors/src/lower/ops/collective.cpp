#include <algorithm>
#include <numeric>
#include <utility>

#include "families.hpp"

/// record_param_comms: the node that launches a collective. bytes_read is what this rank puts in,
/// bytes_written what it gets; splits, where recorded, replace the tensor sizes of an all-to-all,
/// and the larger side sets the pace. Which ranks take part is told where the graph describes the
/// process group. Waits, barriers without data and set-up records launch
/// nothing.
namespace perfmodel::ops {
namespace {

/// Recorded name -> kind. Longest prefix first where one name begins another.
constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
    {"allreduce", "all_reduce"},
    {"all_reduce", "all_reduce"},
    {"all_to_all", "all_to_all"},
    {"alltoall", "all_to_all"},
    {"_allgather_base", "all_gather"},
    {"allgather", "all_gather"},
    {"all_gather", "all_gather"},
    {"_reduce_scatter_base", "reduce_scatter"},
    {"reduce_scatter", "reduce_scatter"},
    {"broadcast", "broadcast"},
    {"_broadcast", "broadcast"},
    {"reduce", "reduce"},
    {"gather", "gather"},
    {"scatter", "scatter"},
    {"send", "send"},
    {"recv", "recv"},
    {"ALLREDUCE", "all_reduce"},
    {"barrier", "all_reduce"},
};

const ProcessGroup* group_of(const OpView& op, const CommRecord& record) {
  const auto& groups = op.graph.process_groups;
  const auto found = std::ranges::find(groups, record.process_group, &ProcessGroup::name);
  return found == groups.end() ? nullptr : &*found;
}

double split_elements(const std::vector<std::int64_t>& splits) {
  return static_cast<double>(std::accumulate(splits.begin(), splits.end(), std::int64_t{0}));
}

bool lower_collective(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  if (op.node.comm < 0) return false;
  const CommRecord& record = op.graph.comm_records[static_cast<std::size_t>(op.node.comm)];
  const std::string_view name = record.collective;
  std::string_view kind;
  for (const auto& [recorded, canonical] : kKinds) {
    if (name.starts_with(recorded)) {
      kind = canonical;
      break;
    }
  }
  if (kind.empty()) return true;  // wait, init, end, ...

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
  if (out == 0) out = in;
  std::int64_t world_size = record.group_size;
  if (world_size <= 0) world_size = static_cast<std::int64_t>(record.in_splits.size());
  const ProcessGroup* group = group_of(op, record);
  if (world_size <= 0 && group) {
    world_size = group->size > 0 ? group->size : static_cast<std::int64_t>(group->ranks.size());
  }
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
  KernelWork work = make_work(KernelFamily::kCollective, dtype, in, out);
  CollectiveShape shape{.kind = std::string(kind),
                        .world_size = std::max<std::int64_t>(0, world_size)};
  if (group && static_cast<std::int64_t>(group->ranks.size()) == world_size) {
    shape.ranks = group->ranks;
  }
  work.shape = std::move(shape);
  kernels.push_back(std::move(work));
  return true;
}

}  // namespace

std::span<const NamedLower> collective_rules() {
  static constexpr NamedLower kRules[] = {
      {"collective", lower_collective},
  };
  return kRules;
}

}  // namespace perfmodel::ops
