#include "collectives.hpp"

#include <utility>

namespace perfmodel {
namespace {

const Value kObject = Value::Opaque{"<Object>"};
constexpr std::int64_t kNoTimeout = -1;

// PyTorch before 2.2 writes the address of the group, which nobody can know; any number that no
// other group has will do. Waits have 0 there.
constexpr std::int64_t kProcessGroup = 1;

}  // namespace

void Communicator::begin_record(std::vector<Value> tensors, std::string_view collective,
                                const Shape& input_splits, const Shape& output_splits) {
  CommRecord record{.collective = std::string(collective), .sequence = next_++};
  record.in_splits = input_splits;
  record.out_splits = output_splits;
  record.group_size = world_size_;
  std::vector<Value> inputs = std::move(tensors);
  inputs.emplace_back(record.sequence);
  if (graph_.pytorch().before(2, 2)) {
    record.process_group = std::to_string(kProcessGroup);
    inputs.emplace_back(kProcessGroup);
  } else {
    record.process_group = std::to_string(0);
    inputs.emplace_back(Value::List{"0", "default_pg"});
  }
  inputs.insert(inputs.end(), {rank_, record.collective.c_str(), input_splits, output_splits});
  if (!graph_.pytorch().before(2, 2)) {  // first rank, distance between ranks, how many
    inputs.insert(inputs.end(), {0, 1, world_size_});
  }
  graph_.begin_communication(std::move(record), std::move(inputs));
}

std::int64_t Communicator::all_to_all(TensorRef output, TensorRef input, const Shape& output_splits,
                                      const Shape& input_splits) {
  const std::int64_t number = next_;
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
  const std::int64_t number = next_;
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

std::int64_t Communicator::broadcast(TensorRef tensor) {
  const std::int64_t number = next_;
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
