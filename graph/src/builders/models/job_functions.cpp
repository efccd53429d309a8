#include <algorithm>
#include <cmath>
#include <numeric>

#include "builders/emit/collectives.hpp"
#include "builders/emit/jagged.hpp"
#include "builders/emit/ops.hpp"
#include "builders/emit/optimizers.hpp"
#include "core/gradient_buckets.hpp"
#include "module_run.hpp"
#include "perfmodel/graph/detail/bucket_limits.hpp"

namespace perfmodel {
namespace {

// Places of the keys, lists of numbers, in ascending order; equal ones stay.
Item sorted(const ModuleCall& c) {
  std::vector<Shape> keys;
  for (const Item& key : c.given[0].list()) {
    Shape& numbers = keys.emplace_back();
    for (const Item& number : key.list()) numbers.push_back(*number.get<std::int64_t>());
  }
  Shape order(keys.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  std::ranges::stable_sort(order, {}, [&](std::int64_t i) { return keys[i]; });
  return order;
}

// Sum of whole numbers; of lists, of their numbers in one place.
Item total(const ModuleCall& c) {
  std::int64_t sum = 0;
  for (const Item& one : c.given[0].list()) {
    const Item& number = c.has(1) ? one.list()[static_cast<std::size_t>(c.integer(1))] : one;
    sum += *number.get<std::int64_t>();
  }
  return sum;
}

// (lookups, rows of each block): uniform indices, so that the blocks' parts add up to all of them.
Item shared_out(const ModuleCall& c) {
  const Shape rows = c.shape(1);
  const auto all = static_cast<double>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
  const auto below = [&](std::int64_t row) {
    return std::llround(c.real(0) * (static_cast<double>(row) / all));
  };
  Shape shares;
  std::int64_t row = 0;
  for (const std::int64_t block : rows) {
    shares.push_back(below(row + block) - below(row));
    row += block;
  }
  return shares;
}

// Place of a tensor, a number or a text in a list; -1: it is not there.
Item index_of(const ModuleCall& c) {
  const auto same = [&](const Item& item) {
    const auto *one = item.get<TensorRef>(), *other = c.given[1].get<TensorRef>();
    if (one && other) return one->index == other->index;
    if (const auto* text = item.get<std::string>()) return *text == c.text(1);
    return *item.get<std::int64_t>() == c.integer(1);
  };
  const Item::List& all = c.given[0].list();
  const auto at = std::ranges::find_if(all, same);
  return at == all.end() ? std::int64_t{-1} : static_cast<std::int64_t>(at - all.begin());
}

Item put(const ModuleCall& c) {
  c.run.kept()[c.text(0)] = c.given[1];
  return c.given[1];
}

// Places of the gradients of these parameters in the buckets of DistributedDataParallel.
Item buckets(const ModuleCall& c) {
  std::vector<BucketedGradient> gradients;
  for (const TensorRef parameter : c.tensors(0)) {
    const DType dtype = c.graph.dtype(parameter);
    gradients.push_back(
        {.bytes = static_cast<double>(c.graph.numel(parameter) * size_in_bytes(dtype)),
         .group = static_cast<std::int32_t>(dtype)});
  }
  Item::List all;
  for (const auto& places : gradient_buckets(gradients, kFirstBucketBytes, kBucketCapBytes)) {
    all.emplace_back(Shape(places.begin(), places.end()));
  }
  return all;
}

RankGroup group_of(const Shape& numbers) {
  return {.number = numbers[0], .first = numbers[1], .stride = numbers[2], .size = numbers[3]};
}

// The ranks of a group [number, first rank, distance, size], [] for all.
Communicator ranks_of(const ModuleCall& c, const Shape& group) {
  const auto setting = [&](std::string_view name) { return *c.run.get(name)->get<std::int64_t>(); };
  const Communicator all(c.graph, setting("rank"), setting("world_size"),
                         setting("next_collective"));
  return group.empty() ? all : all.subgroup(group_of(group));
}

// collective(kind, group, output, input, output splits, input splits): the number to wait for.
Item collective(const ModuleCall& c) {
  Communicator ranks = ranks_of(c, c.shape(1));
  const auto splits = [&](std::size_t i) { return c.has(i) ? c.shape(i) : Shape{}; };
  const std::string& kind = c.text(0);
  std::int64_t number = 0;
  if (kind == "all_to_all") {
    number = ranks.all_to_all(c.tensor(2), c.tensor(3), splits(4), splits(5));
  } else if (kind == "all_reduce") {
    number = ranks.all_reduce(c.tensor(2));
  } else if (kind == "reduce_scatter") {
    number = ranks.reduce_scatter(c.tensor(2), c.tensor(3));
  } else {
    number = ranks.all_gather(c.tensor(2), c.tensor(3));
  }
  c.run.set("next_collective", number + 1);
  return number;
}

Item describe_groups(const ModuleCall& c) {
  std::vector<RankGroup> groups;
  for (const Item& group : c.given[0].list()) {
    Shape numbers;
    for (const Item& number : group.list()) numbers.push_back(*number.get<std::int64_t>());
    groups.push_back(group_of(numbers));
  }
  ranks_of(c, {}).describe_groups(groups);
  return {};
}

// hooks(accumulated, finished): texts that data-parallel training calls in the backward pass.
Item hooks(const ModuleCall& c) {
  c.step.tape().set_hooks(
      {.accumulated =
           [&run = c.run, text = c.text(0)](TensorRef parameter, TensorRef gradient) {
             return run.call_backward(text, {gradient}, {parameter}).front();
           },
       .finished = [&run = c.run, text = c.text(1)] { run.call_backward(text, {}, {}); }});
  return {};
}

// (learning rate, steps so far, parameters, gradients), parameter by parameter.
Item adagrad_step(const ModuleCall& c) {
  using Options = TrainingOptions;
  OptimizerSettings settings =
      optimizer_settings(Options::Optimizer::kAdagrad, Options::Implementation::kLoop);
  settings.learning_rate = c.real(0);
  settings.steps = c.real(1);
  const std::vector<TensorRef> parameters = c.tensors(2), gradients = c.tensors(3);
  std::vector<ParameterUpdate> updates;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    updates.push_back({.parameter = parameters[i], .gradient = gradients[i]});
  }
  emit_optimizer(c.graph, settings, std::move(updates));
  return {};
}

Item pair_of(const Jagged& jagged) { return Item::List{jagged.lengths, jagged.values}; }

// (order, lengths, values, how many values there are then)
Item permuted_rows(const ModuleCall& c) {
  const Jagged features{.lengths = c.tensor(1), .values = c.tensor(2)};
  return pair_of(permute_jagged(c.graph, c.tensor(0), features, c.tape.sequence(), c.integer(3)));
}

// (rows of a block, blocks, lengths, values)
Item bucketized(const ModuleCall& c) {
  const Jagged features{.lengths = c.tensor(2), .values = c.tensor(3)};
  return pair_of(block_bucketize(c.graph, c.tensor(0), c.integer(1), features, c.tape.sequence()));
}

// (rows, dims, weights, batch, indices, offsets)
Item dense_lookup(const ModuleCall& c) {
  const TableBatch tables{.rows = c.shape(0), .dims = c.shape(1)};
  return dense_table_batched_lookup(c.tape, tables, c.tensor(2), c.integer(3), c.tensor(4),
                                    c.tensor(5));
}

// torch.tensor of so many numbers, on the host or the device.
Item list_tensor(const ModuleCall& c) {
  const Device device = c.flag(2) ? GraphBuilder::cpu() : c.graph.device();
  return tensor_of_list(c.graph, c.dtype(0), device, c.integer(1), c.tape.sequence());
}

}  // namespace

// clang-format off
ModuleFunctions job_functions() {
  using C = const ModuleCall&;
  return {
    {"sorted", sorted},
    {"total", total},
    {"shared_out", shared_out},
    {"index_of", index_of},
    {"put", put},
    {"got", [](C c) -> Item { return c.run.kept().at(c.text(0)); }},
    {"row_major", [](C c) -> Item { return contiguous_strides(c.shape(0)); }},
    {"device_of", [](C c) -> Item { return std::get<Value::Opaque>(GraphBuilder::device_value(c.graph.device(c.tensor(0))).variant()).text; }},
    {"type_of", [](C c) -> Item { return std::int64_t{scalar_type_code(c.graph.dtype(c.tensor(0)))}; }},

    {"label", [](C c) -> Item { c.graph.begin_label(c.text(0)); return {}; }},
    {"region", [](C c) -> Item { c.graph.begin_label("## " + c.text(0) + " ##"); return {}; }},
    {"begin_plain", [](C c) -> Item { c.graph.begin_plain(c.text(0), c.arguments(1), c.tape.sequence()); return {}; }},

    {"python_empty", [](C c) -> Item { return python_empty(c.graph, c.dtype(0), c.shape(1), c.flag(2)); }},
    {"allocate_by_python", [](C c) -> Item { allocate(c.graph, c.tensor(0), from_python()); return {}; }},
    {"allocate_like", [](C c) -> Item { allocate_like(c.graph, c.tensor(0), c.tensor(1)); return {}; }},
    {"new_empty", [](C c) -> Item { return new_empty(c.graph, c.tensor(0), c.shape(1)); }},
    {"list_tensor", list_tensor},
    {"narrow", [](C c) -> Item { return narrow(c.graph, c.tensor(0), c.dim(1), c.integer(2), c.integer(3)); }},
    {"cumsum_on_cpu", [](C c) -> Item { return cumsum_on_cpu(c.graph, c.tensor(0), 0, kNone, c.tape.sequence()); }},
    {"item", [](C c) -> Item { item(c.graph, c.tensor(0), c.integer(1)); return {}; }},
    {"to_list", [](C c) -> Item { to_list(c.graph, c.tensor(0), c.tape.sequence()); return {}; }},
    {"to_device", [](C c) -> Item { return to_device(c.graph, c.tensor(0), true, c.tape.sequence()); }},

    {"complete_cumsum", [](C c) -> Item { return complete_cumsum(c.graph, c.tensor(0), c.tape.sequence()); }},
    {"permute_jagged", permuted_rows},
    {"block_bucketize", bucketized},
    {"dense_table_batched_lookup", dense_lookup},

    {"describe_groups", describe_groups},
    {"collective", collective},
    {"wait", [](C c) -> Item { ranks_of(c, c.shape(0)).wait(c.integer(1)); return {}; }},
    {"gradient_buckets", buckets},
    {"hooks", hooks},
    {"gradient_of", [](C c) -> Item { return c.step.tape().gradient(c.tensor(0)); }},
    {"adagrad_step", adagrad_step},
  };
}
// clang-format on

}  // namespace perfmodel
