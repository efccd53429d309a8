#include "collectives.hpp"

#include <fmt/format.h>

#include <utility>

#include "perfmodel/result.hpp"

namespace perfmodel {
namespace {

const Value kObject = Value::Opaque{"<Object>"};
constexpr std::int64_t kNoTimeout = -1;

}  // namespace

Communicator Communicator::subgroup(const RankGroup& group) const {
  PERFMODEL_CHECK(group.number > kDefaultGroup && (rank_ - group.first) % group.stride == 0);
  Communicator made = *this;
  made.rank_ = (rank_ - group.first) / group.stride;
  made.world_size_ = group.size;
  made.group_ = group.number;
  made.first_ = group.first;
  made.stride_ = group.stride;
  return made;
}

void Communicator::describe_groups(const std::vector<RankGroup>& subgroups,
                                   std::string_view name) const {
  ExecutionGraph& made = graph_.graph_being_made();
  std::vector<std::string> entries;
  const auto add = [&](ProcessGroup group) {
    entries.push_back(
        fmt::format(R"({{"pg_name": "{}", "pg_desc": "{}", "backend_config": "{}", "ranks": [{}], )"
                    R"("group_size": {}, "group_count": {}}})",
                    group.name, group.description, group.backend, fmt::join(group.ranks, ", "),
                    group.size, 1 + subgroups.size()));
    made.process_groups.push_back(std::move(group));
  };
  add({std::string(name), "default_pg", "cuda:nccl", {}, world_size_});
  for (const RankGroup& group : subgroups) {
    std::vector<std::int64_t> ranks;
    for (std::int64_t i = 0; i < group.size; ++i) ranks.push_back(group.first + i * group.stride);
    add({std::to_string(group.number), "undefined", "cuda:nccl", std::move(ranks), group.size});
  }
  graph_.begin_label("## process_group:init ##",
                     {fmt::format("[{}]", fmt::join(entries, ", ")).c_str()});
  graph_.end_op();
}

void Communicator::begin_record(std::vector<Value> tensors, std::string_view collective,
                                const Shape& input_splits, const Shape& output_splits) {
  CommRecord record{.collective = std::string(collective), .sequence = (*next_)++};
  record.in_splits = input_splits;
  record.out_splits = output_splits;
  record.group_size = world_size_;
  std::vector<Value> inputs = std::move(tensors);
  inputs.emplace_back(record.sequence);
  if (graph_.pytorch().before(2, 2)) {
    record.process_group = std::to_string(group_);
    inputs.emplace_back(group_);
  } else {
    const bool all = group_ == kDefaultGroup;
    record.process_group = std::to_string(all ? 0 : group_);
    inputs.emplace_back(
        Value::List{record.process_group.c_str(), all ? "default_pg" : "undefined"});
  }
  inputs.insert(inputs.end(), {rank_, record.collective.c_str(), input_splits, output_splits});
  if (!graph_.pytorch().before(2, 2)) {  // first rank, distance between ranks, how many
    inputs.insert(inputs.end(), {first_, stride_, world_size_});
  }
  graph_.begin_communication(std::move(record), std::move(inputs));
}

std::int64_t Communicator::all_to_all(TensorRef output, TensorRef input, const Shape& output_splits,
                                      const Shape& input_splits) {
  const std::int64_t number = *next_;
  graph_.begin_op("c10d::alltoall_base_",
                  {output, input, kObject, output_splits, input_splits, kNoTimeout});
  begin_record({input}, input_splits.empty() ? "all_to_all" : "all_to_allv", input_splits,
               output_splits);
  graph_.begin_label("nccl:all_to_all", {input});
  graph_.end_op();
  graph_.end_op({output});
  graph_.end_op({kObject});
  return number;
}

std::int64_t Communicator::all_reduce(TensorRef bucket) {
  const std::int64_t number = *next_;
  const std::vector<TensorRef> buckets = {bucket};
  std::vector<Value> inputs = {buckets, kObject, kObject};
  if (!graph_.pytorch().before(2, 2)) inputs.emplace_back(kNone);  // no sparse indices
  inputs.emplace_back(kNoTimeout);
  graph_.begin_op("c10d::allreduce_", std::move(inputs));
  begin_record({buckets}, "allreduce", {}, {});
  graph_.begin_label("nccl:all_reduce", {bucket});
  graph_.end_op();
  graph_.end_op({buckets});
  graph_.end_op({buckets, kObject});
  return number;
}

std::int64_t Communicator::reduce_scatter(TensorRef output, TensorRef input) {
  const std::int64_t number = *next_;
  graph_.begin_op("c10d::_reduce_scatter_base_", {output, input, kObject, kObject, kNoTimeout});
  begin_record({input}, "_reduce_scatter_base", {}, {});
  graph_.begin_label("nccl:_reduce_scatter_base", {input});
  graph_.end_op();
  graph_.end_op({output});
  graph_.end_op({output, kObject});
  return number;
}

std::int64_t Communicator::all_gather(TensorRef output, TensorRef input) {
  const std::int64_t number = *next_;
  graph_.begin_op("c10d::_allgather_base_", {output, input, kObject});
  begin_record({input}, "_allgather_base", {}, {});
  graph_.begin_label("nccl:_all_gather_base", {input});
  graph_.end_op();
  graph_.end_op({output});
  graph_.end_op({output, kObject});
  return number;
}

std::int64_t Communicator::broadcast(TensorRef tensor) {
  const std::int64_t number = *next_;
  const std::vector<TensorRef> tensors = {tensor};
  std::vector<Value> inputs = {tensors, kObject, 0, 0};
  if (!graph_.pytorch().before(2, 2)) inputs.emplace_back(true);  // does not block
  inputs.emplace_back(kNoTimeout);
  graph_.begin_op("c10d::broadcast_", std::move(inputs));
  begin_record({tensors}, "broadcast", {}, {});
  graph_.begin_label("nccl:broadcast", {tensor});
  graph_.end_op();
  graph_.end_op({tensors});
  graph_.end_op({tensors, kObject});
  return number;
}

void Communicator::wait(std::int64_t number) {
  CommRecord record{.collective = "wait", .sequence = number, .process_group = "0"};
  std::vector<Value> inputs = {number, 0, rank_, "wait", Shape{}, Shape{}};
  if (!graph_.pytorch().before(2, 2)) {
    inputs = {number, Value::List{"", ""}, rank_, "wait", Shape{}, Shape{}, -1, -1, world_size_};
    record.group_size = world_size_;
    record.process_group.clear();
  }
  graph_.begin_communication(std::move(record), std::move(inputs));
  graph_.end_op();
}

}  // namespace perfmodel
