#include "perfmodel/graph/build_recommenders.hpp"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/budget.hpp"
#include "builders/emit/collectives.hpp"
#include "builders/emit/ops.hpp"
#include "builders/emit/optimizers.hpp"
#include "config_checks.hpp"
#include "dlrm_parts.hpp"
#include "gradient_reducer.hpp"
#include "torchrec_batch.hpp"
#include "torchrec_indices.hpp"
#include "torchrec_placement.hpp"
#include "torchrec_vectors.hpp"

namespace perfmodel {
namespace {

constexpr double kTorchrecLearningRate = 0.005;
constexpr double kSteps = 11;  // steps so far in the optimizer's count

TableBatch::Optimizer fused_optimizer(const TorchrecDlrmConfig& config) {
  using Optimizer = TorchrecDlrmConfig::TableOptimizer;
  switch (config.table_optimizer) {
    case Optimizer::kSgd: return TableBatch::Optimizer::kSgd;
    case Optimizer::kRowwiseAdagrad: return TableBatch::Optimizer::kRowwiseAdagrad;
    case Optimizer::kAdam: return TableBatch::Optimizer::kAdam;
    case Optimizer::kAdagrad: break;
  }
  return TableBatch::Optimizer::kAdagrad;
}

PyTorch pytorch_of(const TorchrecDlrmConfig& config) {
  PyTorch pytorch{.major = 2, .minor = 0};
  pytorch.device.index = static_cast<std::int16_t>(config.rank % ranks_per_host(config));
  return pytorch;
}

// Numbers of groups follow the group of all ranks: first the ranks of each host, host by host, then
// the ranks in one place on all hosts.
constexpr std::int64_t kFirstSubgroup = 2;

RankGroup ranks_of_host(const TorchrecDlrmConfig& config) {
  const std::int64_t local = ranks_per_host(config), host = config.rank / local;
  return {.number = kFirstSubgroup + host, .first = host * local, .stride = 1, .size = local};
}
RankGroup ranks_across_hosts(const TorchrecDlrmConfig& config) {
  const std::int64_t local = ranks_per_host(config), hosts = config.world_size / local;
  const std::int64_t place = config.rank % local;
  return {.number = kFirstSubgroup + hosts + place, .first = place, .stride = local, .size = hosts};
}

std::int64_t elements_of(const PlacedTable& table) { return table.num_rows * table.dim; }

TableBatch replicated_tables(const TorchrecDlrmConfig& config, const TorchrecPlacement& placement) {
  TableBatch tables;
  for (std::size_t i : placement.replicated()) {
    tables.rows.push_back(config.tables[i].num_rows);
    tables.dims.push_back(config.tables[i].dim);
  }
  return tables;
}

TableBatch tables_here(const TorchrecDlrmConfig& config, const ShardingGroup& group) {
  TableBatch tables;
  tables.optimizer = fused_optimizer(config);
  tables.learning_rate = kTorchrecLearningRate;
  for (const TablePiece& piece : group.on_rank(config.rank)) {
    tables.rows.push_back(piece.rows[config.rank % group.blocks]);
    tables.dims.push_back(piece.columns);
  }
  return tables;
}

std::int64_t vector_collectives(const TorchrecPlacement& placement) {
  std::int64_t count = 0;
  for (const ShardingGroup& group : placement.groups()) {
    count += VectorExchange::collectives(group);
  }
  return count;
}

// int32 indices and lengths become int64 indices and offsets.
std::pair<TensorRef, TensorRef> indices_and_offsets(AutogradTape& tape, const Jagged& features) {
  const TensorRef indices = to_dtype(tape.graph(), features.values, DType::kInt64, tape.sequence());
  const TensorRef offsets = complete_cumsum(tape.graph(), features.lengths, tape.sequence());
  return {indices, to_dtype(tape.graph(), offsets, DType::kInt64, tape.sequence())};
}

// Joins an empty tensor to the vectors, so that there is one even if tables are missing.
void join_nothing(AutogradTape& tape, std::int64_t batch) {
  const TensorRef nothing = tape.graph().new_tensor(DType::kFloat32, {0});
  const TensorRef out = view(tape.graph(), nothing, {batch, 0}, tape.sequence());
  tape.record("ViewBackward0", {}, out, [](TensorRef) -> std::vector<TensorRef> { return {}; });
}

// `vectors`: [B, F * D], feature order[i] at place i, as they were exchanged; the model wants the
// order of its features.
TensorRef interaction(AutogradTape& tape, const TorchrecDlrmConfig& config,
                      const std::vector<std::size_t>& order, TensorRef dense, TensorRef vectors) {
  GraphBuilder& graph = tape.graph();
  const std::int64_t batch = config.batch_per_rank, dim = config.bottom_mlp.back();
  const auto features = static_cast<std::int64_t>(config.tables.size());
  const std::vector<TensorRef> parts =
      split_with_sizes(tape, vectors, Shape(config.tables.size(), dim), 1);
  std::vector<TensorRef> in_order(parts.size());
  for (std::size_t i = 0; i < order.size(); ++i) in_order[order[i]] = parts[i];
  const TensorRef sparse = reshape(tape, cat(tape, in_order, 1), {batch, features, dim});
  const TensorRef all = cat(tape, {unsqueeze(tape, dense, 1), sparse}, 1);
  const TensorRef products = bmm(tape, all, transpose(tape, all, 1, 2));
  const std::int64_t pairs = features * (features + 1) / 2;
  const TensorRef lower = graph.new_tensor(DType::kInt64, GraphBuilder::cpu(), {2, pairs});
  const TensorRef row = select(graph, lower, 0, 0, tape.sequence());
  const TensorRef column = select(graph, lower, 0, 1, tape.sequence());
  return cat(tape, {dense, index_matrix(tape, products, row, column)}, 1);
}

class TorchrecStep {
 public:
  explicit TorchrecStep(const TorchrecDlrmConfig& config)
      : config_(config), placement_(config), graph_(pytorch_of(config)) {
    batch_shape_.batch = config.batch_per_rank;
    batch_shape_.dense_features = config.bottom_mlp.front();
    for (std::size_t i = 0; i < config.tables.size(); ++i) {
      batch_shape_.lookups.push_back(placement_.lookups(i));
    }
    if (placement_.has_hosts()) {
      ranks_.describe_groups({ranks_of_host(config), ranks_across_hosts(config)});
    }
  }

  ExecutionGraph build() {
    make_parameters();
    labelled("## zero_grad ##", [this] { zero_grad(); });
    labelled("## copy_batch_to_gpu ##", [this] { copy_random_batch(tape_, batch_shape_); });
    const Batch batch = batch_on_device(graph_, batch_shape_);
    labelled("## wait_for_batch ##", [&] { record_stream(tape_, batch.tensors()); });
    TensorRef loss;
    labelled("## forward ##", [&] { loss = forward(batch); });
    labelled("## sparse_data_dist ##", [this] { exchange_indices(); });
    labelled("## backward ##", [&] { backward(loss); });
    labelled("## optimizer ##", [this] { optimizer_step(); });
    return graph_.finish();
  }

 private:
  template <class Emit>
  void labelled(std::string_view label, Emit emit) {
    graph_.begin_label(label);
    emit();
    graph_.end_op();
  }

  TensorRef parameter(Shape shape) {
    const TensorRef made = graph_.new_tensor(DType::kFloat32, std::move(shape));
    tape_.add_parameter(made);
    return made;
  }

  void make_parameters() {
    // A parameter for each group's lookup, or for the empty tensor in its place.
    for (std::size_t i = 0; i < placement_.groups().size(); ++i) {
      placeholders_.push_back(parameter({0}));
    }
    if (!placement_.replicated().empty()) {
      std::int64_t elements = 0;
      for (std::size_t i : placement_.replicated()) {
        elements += elements_of(config_.tables[i]);
      }
      replicated_weights_ = parameter({elements});
      reducers_.emplace_back(graph_, std::vector<TensorRef>{replicated_weights_});
    }
    const auto make = [this](Shape shape) {
      dense_parameters_.push_back(parameter(std::move(shape)));
      return dense_parameters_.back();
    };
    bottom_ = make_layers(config_.bottom_mlp, make);
    const std::int64_t vectors = static_cast<std::int64_t>(config_.tables.size()) + 1;
    std::vector<std::int64_t> top = {config_.bottom_mlp.back() + vectors * (vectors - 1) / 2};
    top.insert(top.end(), config_.top_mlp.begin(), config_.top_mlp.end());
    top_ = make_layers(top, make);
    reducers_.emplace_back(graph_, dense_parameters_);
    // A number that is waited for is not negative.
    first_collective_ =
        std::max(first_collective_, collectives_per_step() - collectives_before_lengths());
    ranks_.count_from(first_collective_);
  }

  // The gradient of a replicated table is a piece of the gradient of all of them; Python cuts it
  // out at each read.
  TensorRef piece_of_gradient(TensorRef gradient, std::size_t which, std::int64_t sequence) {
    std::int64_t start = 0;
    for (std::size_t i = 0; i < which; ++i) start += elements_of(replicated_table(i));
    const PlacedTable& table = replicated_table(which);
    const TensorRef part = slice(graph_, gradient, 0, start, start + elements_of(table), sequence);
    return view(graph_, part, {-1, table.dim}, sequence);
  }
  const PlacedTable& replicated_table(std::size_t which) const {
    return config_.tables[placement_.replicated()[which]];
  }

  void zero_grad() {
    graph_.begin_label("Optimizer.zero_grad#Adagrad.zero_grad");
    // The first table's gradient is found and dropped, and the others' with it.
    if (replicated_weights_.exists()) {
      piece_of_gradient(reducers_.front().kept_gradient(replicated_weights_), 0, tape_.sequence());
    }
    graph_.end_op();
  }

  TensorRef forward(const Batch& batch) {
    graph_.begin_label("DistributedDataParallel.forward");
    const TensorRef dense = multilayer_perceptron(tape_, batch.dense, bottom_);
    const TensorRef vectors = pooled_vectors(wait_for_indices());
    const TensorRef interacted = interaction(tape_, config_, placement_.tables(), dense, vectors);
    const TensorRef logits =
        squeeze(tape_, multilayer_perceptron(tape_, interacted, top_, true), -1);
    const TensorRef target = to_dtype(graph_, batch.labels, DType::kFloat32, tape_.sequence());
    const TensorRef loss = binary_cross_entropy_with_logits(tape_, logits, target);
    for (TensorRef shown : {loss, logits, batch.labels}) detach(graph_, shown, tape_.sequence());
    graph_.end_op();
    return loss;
  }

  // The last step exchanged them, right after its vectors and this batch's sizes.
  IndexExchange::Arrived wait_for_indices() {
    return indices_.wait(first_collective_ - collectives_per_step() + collectives_before_lengths());
  }

  void exchange_indices() {
    const Batch next = batch_on_device(graph_, batch_shape_);
    record_stream(tape_, next.tensors());
    indices_.send(next);
  }

  // Looks up a group's tables on this rank, for all ranks.
  TensorRef look_up(std::size_t group, const Jagged& features) {
    const std::int64_t samples = config_.batch_per_rank * config_.world_size;
    TableBatch here = tables_here(config_, placement_.groups()[group]);
    // Nothing is a parameter too: its gradient is asked for by the exchange.
    if (here.rows.empty()) return view(tape_, placeholders_[group], {samples, 0});
    const auto [indices, offsets] = indices_and_offsets(tape_, features);
    here.placeholder = placeholders_[group];
    const TensorRef pooled = table_batched_lookup(tape_, here, samples, indices, offsets);
    join_nothing(tape_, samples);
    return pooled;
  }

  // Vectors go back to the ranks of their samples.
  TensorRef pooled_vectors(const IndexExchange::Arrived& arrived) {
    for (std::size_t i = 0; i < placement_.groups().size(); ++i) {
      exchanges_.emplace_back(tape_, placement_.groups()[i], config_.batch_per_rank, ranks_, host_,
                              across_);
      exchanges_.back().send(look_up(i, arrived.groups[i]));
    }
    TensorRef replicated;
    if (!placement_.replicated().empty()) replicated = replicated_vectors(arrived.replicated);

    graph_.begin_label("## EmbeddingBagCollectionAwaitable wait() ##");
    std::vector<TensorRef> vectors;
    for (VectorExchange& exchange : exchanges_) vectors.push_back(exchange.receive());
    if (replicated.exists()) {
      graph_.begin_label("## NoWait wait() ##");
      graph_.end_op();
      vectors.push_back(replicated);
    }
    const TensorRef all = vectors.size() > 1 ? cat(tape_, vectors, 1) : vectors.front();
    graph_.end_op();
    return all;
  }

  TensorRef replicated_vectors(const Jagged& features) {
    graph_.begin_label("DistributedDataParallel.forward");
    const auto [indices, offsets] = indices_and_offsets(tape_, features);
    const TensorRef vectors =
        dense_table_batched_lookup(tape_, replicated_tables(config_, placement_),
                                   replicated_weights_, config_.batch_per_rank, indices, offsets);
    join_nothing(tape_, config_.batch_per_rank);
    graph_.end_op();
    return vectors;
  }

  void backward(TensorRef loss) {
    const TensorRef total = graph_.new_tensor(DType::kFloat32, {});
    graph_.begin_op("aten::sum.dim_IntList", {loss, Shape{0}, false, kNone}, tape_.sequence());
    as_strided(graph_, total, {}, {});
    graph_.end_op({total});
    tape_.record("SumBackward1", {loss}, total,
                 [this](TensorRef gradient) -> std::vector<TensorRef> {
                   return {expand(graph_, gradient, {})};
                 });
    tape_.set_hooks({.accumulated =
                         [this](TensorRef parameter, TensorRef gradient) {
                           for (GradientReducer& reducer : reducers_) {
                             if (reducer.owns(parameter)) {
                               return reducer.reduce(parameter, gradient, ranks_);
                             }
                           }
                           return gradient;
                         },
                     .finished =
                         [this] {
                           for (GradientReducer& reducer : reducers_) reducer.finish();
                         }});
    tape_.run(total);
  }

  void optimizer_step() {
    using Options = TrainingOptions;
    graph_.begin_label("Optimizer.step#Adagrad.step");
    std::vector<ParameterUpdate> updates;
    for (std::size_t i = 0; i < placement_.replicated().size(); ++i) {
      const PlacedTable& table = replicated_table(i);
      const TensorRef all = tape_.gradient(replicated_weights_);
      piece_of_gradient(all, i, -1);  // is there one?
      const TensorRef gradient = piece_of_gradient(all, i, -1);
      piece_of_gradient(all, i, -1);  // is it sparse?
      updates.push_back(
          {.parameter = graph_.new_tensor(DType::kFloat32, {table.num_rows, table.dim}),
           .gradient = gradient});
    }
    for (TensorRef parameter : dense_parameters_) {
      updates.push_back({.parameter = parameter, .gradient = tape_.gradient(parameter)});
    }
    OptimizerSettings settings =
        optimizer_settings(Options::Optimizer::kAdagrad, Options::Implementation::kLoop);
    settings.learning_rate = kTorchrecLearningRate;
    settings.steps = kSteps;
    emit_optimizer(graph_, settings, std::move(updates));
    graph_.end_op();
  }

  std::int64_t collectives_before_lengths() const {
    return vector_collectives(placement_) + indices_.size_collectives();
  }

  // Collectives for vectors and their gradients, sizes, lengths and indices; all-reduces.
  std::int64_t collectives_per_step() const {
    std::int64_t count = 2 * vector_collectives(placement_) + indices_.collectives();
    for (const GradientReducer& reducer : reducers_) count += reducer.num_buckets();
    return count;
  }

  const TorchrecDlrmConfig& config_;
  TorchrecPlacement placement_;
  GraphBuilder graph_;
  AutogradTape tape_{graph_};
  std::int64_t first_collective_ = config_.first_collective;
  Communicator ranks_{graph_, config_.rank, config_.world_size, first_collective_};
  Communicator host_ = ranks_.subgroup(ranks_of_host(config_));
  Communicator across_ = ranks_.subgroup(ranks_across_hosts(config_));
  IndexExchange indices_{tape_, config_, placement_, ranks_};
  std::deque<VectorExchange> exchanges_;  // one per group
  RandomBatchShape batch_shape_;
  std::vector<GradientReducer> reducers_;  // for replicated tables, if there are any, and MLPs
  std::vector<TensorRef> dense_parameters_;
  std::vector<DenseLayer> bottom_, top_;
  std::vector<TensorRef> placeholders_;
  TensorRef replicated_weights_;
};

}  // namespace

Result<ExecutionGraph> build_torchrec_dlrm(const TorchrecDlrmConfig& config) {
  if (auto good = check_torchrec(config); !good) return Unexpected{good.error()};
  return within_budget([&] { return TorchrecStep(config).build(); });
}

}  // namespace perfmodel
