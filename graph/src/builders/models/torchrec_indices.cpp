#include "torchrec_indices.hpp"

#include <algorithm>

#include "builders/emit/ops.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kNoGradient = -1;  // the sequence number of ops under no_grad

}  // namespace

template <class Amount>
Shape IndexExchange::per_rank(Amount amount) const {
  Shape amounts;
  for (std::int64_t rank = 0; rank < config_.world_size; ++rank) amounts.push_back(amount(rank));
  return amounts;
}

void IndexExchange::no_wait() {
  graph_.begin_label("## NoWait wait() ##");
  graph_.end_op();
}

IndexExchange::Arrived IndexExchange::wait(std::int64_t first) {
  Arrived arrived;
  graph_.begin_label("## wait_sparse_data_dist ##");
  graph_.begin_label("## KJTListAwaitable wait() ##");
  for (const ShardingGroup& group : groups()) {
    arrived.groups.push_back(arrive(group, first));
    first += 2;
  }
  if (!placement_.replicated().empty()) no_wait();
  graph_.end_op();
  graph_.end_op();

  std::vector<TensorRef> used;
  for (const Jagged& group : arrived.groups) {
    used.insert(used.end(), {group.values, group.lengths});
  }
  if (!placement_.replicated().empty()) {
    const auto features = static_cast<std::int64_t>(placement_.replicated().size());
    arrived.replicated.values = graph_.new_tensor(DType::kInt32, {placement_.replicated_lookups()});
    arrived.replicated.lengths =
        graph_.new_tensor(DType::kInt32, {features * config_.batch_per_rank});
    used.insert(used.end(), {arrived.replicated.values, arrived.replicated.lengths});
  }
  record_stream(tape_, used);
  return arrived;
}

// The collectives of the last step bring [world * pieces * B] lengths, rank by rank; the tables
// want theirs side by side.
Jagged IndexExchange::arrive(const ShardingGroup& group, std::int64_t lengths_number) {
  const std::int64_t batch = config_.batch_per_rank, world = config_.world_size;
  const std::int64_t bags = pieces_here(group) * world * batch;
  Jagged here{.lengths = graph_.new_tensor(DType::kInt32, {bags}),
              .values = graph_.new_tensor(DType::kInt32, {world * group.lookups_on(config_.rank)})};
  graph_.begin_label("## KJTAllToAllTensorsAwaitable wait() ##");
  ranks_.wait(lengths_number);
  ranks_.wait(lengths_number + 1);
  if (bags > 0) {
    graph_.begin_label("## all2all_data:recat_values ##");
    const TensorRef order = graph_.new_tensor(DType::kInt32, {bags / batch});
    here.lengths = view(graph_, here.lengths, {-1, batch}, tape_.sequence());
    here = permute_jagged(graph_, order, here, tape_.sequence());
    here.lengths = view(graph_, here.lengths, {-1}, tape_.sequence());
    graph_.end_op();
    length_per_feature(here.lengths, world * batch, tape_.sequence());
  }
  graph_.end_op();
  return here;
}

// Sums of an int32 tensor are int64, so it is converted first.
void IndexExchange::length_per_feature(TensorRef lengths, std::int64_t bags,
                                       std::int64_t sequence) {
  const TensorRef rows = view(graph_, lengths, {-1, bags}, sequence);
  const std::int64_t count = graph_.shape(rows)[0];
  const TensorRef sums = graph_.new_tensor(DType::kInt64, {count});
  graph_.begin_op("aten::sum.dim_IntList", {rows, Shape{1}, false, kNone}, sequence);
  as_strided(graph_, sums, {count, 1}, {1, 0});
  to_dtype(graph_, rows, DType::kInt64);
  graph_.end_op({sums});
  to_list(graph_, sums, sequence);
}

// All groups send their sizes before the first of them waits, since the host has to allocate the
// memory for received values.
void IndexExchange::send(const Batch& next) {
  const std::vector<Jagged> parts = split_by_group(order_features(next.sparse));
  std::vector<Jagged> sent;
  std::vector<SentSizes> sizes;
  for (std::size_t i = 0; i < groups().size(); ++i) {
    sent.push_back(cut_by_rows(groups()[i], parts[i]));
    sizes.push_back(send_sizes());
  }
  graph_.begin_label("## KJTListSplitsAwaitable wait() ##");
  for (std::size_t i = 0; i < groups().size(); ++i) {
    graph_.begin_label("## KJTAllToAllSplitsAwaitable wait() ##");
    wait_for_sizes(sizes[i]);
    send_jagged(groups()[i], sent[i]);
    graph_.end_op();
  }
  if (!placement_.replicated().empty()) no_wait();
  graph_.end_op();
}

// A feature of a table in several pieces is there once for each.
Jagged IndexExchange::order_features(const Jagged& features) {
  const std::int64_t batch = config_.batch_per_rank;
  const auto count = static_cast<std::int64_t>(config_.tables.size());
  std::int64_t values = 0;
  const std::vector<std::size_t> ordered_features = placement_.features();
  for (std::size_t table : ordered_features) values += placement_.lookups(table);
  Jagged rows{.lengths = view(graph_, features.lengths, {count, -1}), .values = features.values};
  const auto ordered_count = static_cast<std::int64_t>(ordered_features.size());
  const TensorRef order = graph_.new_tensor(DType::kInt32, {ordered_count});
  Jagged ordered = permute_jagged(graph_, order, rows, kNoGradient, values);
  ordered.lengths = view(graph_, ordered.lengths, {-1});
  PERFMODEL_CHECK(graph_.numel(ordered.lengths) == ordered_count * batch);
  return ordered;
}

// The replicated features, whose piece is cut too, stay here.
std::vector<Jagged> IndexExchange::split_by_group(const Jagged& all) {
  std::vector<std::pair<std::int64_t, std::int64_t>> sizes;  // values, features
  for (const ShardingGroup& group : groups()) {
    sizes.emplace_back(group.lookups(), static_cast<std::int64_t>(group.pieces().size()));
  }
  if (!placement_.replicated().empty()) {
    sizes.emplace_back(placement_.replicated_lookups(),
                       static_cast<std::int64_t>(placement_.replicated().size()));
  }
  if (sizes.size() == 1) return {all};
  std::vector<Jagged> parts;
  std::int64_t value = 0, length = 0;
  for (const auto& [values, features] : sizes) {
    const std::int64_t lengths = features * config_.batch_per_rank;
    Jagged part;
    part.values = slice(graph_, all.values, 0, value, value + values);
    part.lengths = slice(graph_, all.lengths, 0, length, length + lengths);
    parts.push_back(part);
    value += values;
    length += lengths;
  }
  return parts;
}

// Cuts into consecutive blocks. If hosts own tables, the parts of their ranks are then joined.
Jagged IndexExchange::cut_by_rows(const ShardingGroup& group, const Jagged& features) {
  if (!group.cuts_rows()) return features;
  const auto pieces = static_cast<std::int64_t>(group.pieces().size());
  const TensorRef block_rows = graph_.new_tensor(DType::kInt64, {pieces});
  Jagged cut = block_bucketize(graph_, to_dtype(graph_, block_rows, DType::kInt32), group.blocks,
                               features, kNoGradient);
  cut.lengths = view(graph_, cut.lengths, {-1});
  length_per_feature(cut.lengths, config_.batch_per_rank, kNoGradient);
  if (!group.has_hosts()) return cut;
  cut.lengths = view(graph_, cut.lengths, {group.blocks * pieces, -1});
  cut = permute_jagged(graph_, graph_.new_tensor(DType::kInt32, {group.blocks * pieces}), cut,
                       kNoGradient);
  cut.lengths = view(graph_, cut.lengths, {-1});
  return cut;
}

// Lengths, values and samples for each rank.
IndexExchange::SentSizes IndexExchange::send_sizes() {
  constexpr std::int64_t kKinds = 3;
  const std::int64_t world = config_.world_size;
  std::vector<TensorRef> sizes;
  for (std::int64_t i = 0; i < kKinds; ++i) {
    sizes.push_back(tensor_of_list(graph_, DType::kInt64, graph_.device(), world, kNoGradient));
  }
  SentSizes sent;
  graph_.begin_label("## all2all_data:kjt splits ##");
  sent.received = python_empty(graph_, DType::kInt64, {world * kKinds});
  sent.number = ranks_.all_to_all(sent.received, flatten(graph_, stack(graph_, sizes, 1)));
  graph_.end_op();
  return sent;
}

void IndexExchange::wait_for_sizes(const SentSizes& sent) {
  const std::int64_t world = config_.world_size;
  graph_.begin_label("## SplitsAllToAllAwaitable wait() ##");
  ranks_.wait(sent.number);
  const TensorRef by_rank = view(graph_, sent.received, {world, -1}, tape_.sequence());
  const std::int64_t kinds = graph_.shape(by_rank)[1];
  graph_.begin_op("aten::numpy_T", {by_rank}, tape_.sequence());
  graph_.begin_op("aten::permute", {by_rank, Shape{1, 0}}, tape_.sequence());
  const TensorRef by_kind = as_strided(graph_, by_rank, {kinds, world}, {1, kinds});
  graph_.end_op({by_kind});
  graph_.end_op({by_kind});
  to_list(graph_, by_kind, tape_.sequence());
  graph_.end_op();
}

void IndexExchange::send_jagged(const ShardingGroup& group, const Jagged& sent) {
  const std::int64_t batch = config_.batch_per_rank, world = config_.world_size;
  const std::int64_t here = pieces_here(group);
  if (here > 0) {
    graph_.begin_label("## all2all_data:recat_permute_gen ##");
    tensor_of_list(graph_, DType::kInt32, graph_.device(), world * here, tape_.sequence());
    graph_.end_op();
  }
  const auto lengths_to = [&](std::int64_t rank) {
    return batch * static_cast<std::int64_t>(group.on_rank(rank).size());
  };
  const auto values_to = [&](std::int64_t rank) { return group.lookups_on(rank); };
  send_part("## all2all_data:kjt lengths ##", sent.lengths, batch * here, per_rank(lengths_to));
  send_part("## all2all_data:kjt values ##", sent.values, group.lookups_on(config_.rank),
            per_rank(values_to));
}

void IndexExchange::send_part(std::string_view label, TensorRef part, std::int64_t from_each,
                              const Shape& to_each) {
  const Shape from(static_cast<std::size_t>(config_.world_size), from_each);
  const TensorRef received = python_empty(graph_, DType::kInt32, {sum_of(from)});
  graph_.begin_label(label);
  ranks_.all_to_all(received, part, from, to_each);
  graph_.end_op();
}

}  // namespace perfmodel
