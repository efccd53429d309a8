#include "perfmodel/graph/build_torchrec_dlrm.hpp"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <utility>

#include "../emit/activation.hpp"
#include "../emit/collectives.hpp"
#include "../emit/concat.hpp"
#include "../emit/embedding.hpp"
#include "../emit/index.hpp"
#include "../emit/loss.hpp"
#include "../emit/matmul.hpp"
#include "../emit/memory.hpp"
#include "../emit/optimizers.hpp"
#include "../emit/views.hpp"
#include "config_checks.hpp"
#include "dlrm_parts.hpp"
#include "gradient_reducer.hpp"
#include "torchrec_batch.hpp"

namespace perfmodel {
namespace {

constexpr DType kFloat = DType::kFloat32, kInt = DType::kInt32, kLong = DType::kInt64;
constexpr double kLearningRate = 0.005;
constexpr double kSteps = 11;  // that the optimizer has counted

/// Which features go where: what all ranks know of the plan.
class Placement {
 public:
  explicit Placement(const TorchrecDlrmConfig& config)
      : config_(config), on_rank_(static_cast<std::size_t>(config.world_size)) {
    for (std::size_t i = 0; i < config.tables.size(); ++i) {
      const std::int64_t rank = config.tables[i].rank;
      (rank < 0 ? replicated_ : on_rank_[static_cast<std::size_t>(rank)]).push_back(i);
    }
  }

  const std::vector<std::size_t>& here() const { return on_rank(config_.rank); }
  const std::vector<std::size_t>& on_rank(std::int64_t rank) const {
    return on_rank_[static_cast<std::size_t>(rank)];
  }
  const std::vector<std::size_t>& replicated() const { return replicated_; }

  /// Features in the order of the exchange: rank by rank, then the replicated ones.
  std::vector<std::size_t> order() const {
    std::vector<std::size_t> features;
    for (const auto& tables : on_rank_) {
      features.insert(features.end(), tables.begin(), tables.end());
    }
    features.insert(features.end(), replicated_.begin(), replicated_.end());
    return features;
  }

  std::int64_t lookups(std::size_t feature) const {
    return std::llround(config_.tables[feature].pooling_factor *
                        static_cast<double>(config_.batch_per_rank));
  }
  std::int64_t lookups(const std::vector<std::size_t>& features) const {
    std::int64_t sum = 0;
    for (std::size_t i : features) sum += lookups(i);
    return sum;
  }
  std::int64_t width(const std::vector<std::size_t>& features) const {
    std::int64_t sum = 0;
    for (std::size_t i : features) sum += config_.tables[i].dim;
    return sum;
  }

  /// `amount` of the tables of each rank.
  template <class Amount>
  Shape per_rank(Amount amount) const {
    Shape amounts;
    for (const auto& tables : on_rank_) amounts.push_back(amount(tables));
    return amounts;
  }
  Shape same_from_all(std::int64_t amount) const {
    return Shape(static_cast<std::size_t>(config_.world_size), amount);
  }

 private:
  const TorchrecDlrmConfig& config_;
  std::vector<std::vector<std::size_t>> on_rank_;
  std::vector<std::size_t> replicated_;
};

std::int64_t count_of(const std::vector<std::size_t>& features) {
  return static_cast<std::int64_t>(features.size());
}

class TorchrecStep {
 public:
  explicit TorchrecStep(const TorchrecDlrmConfig& config)
      : config_(config), placement_(config), graph_(pytorch(config)) {
    batch_shape_.batch = config.batch_per_rank;
    batch_shape_.dense_features = config.bottom_mlp.front();
    for (std::size_t i = 0; i < config.tables.size(); ++i) {
      batch_shape_.lookups.push_back(placement_.lookups(i));
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
  static PyTorch pytorch(const TorchrecDlrmConfig& config) {
    PyTorch made{.major = 2, .minor = 0};
    made.device.index = static_cast<std::int16_t>(config.rank);
    return made;
  }

  template <class Emit>
  void labelled(std::string_view label, Emit emit) {
    graph_.begin_label(label);
    emit();
    graph_.end_op();
  }

  TensorRef parameter(Shape shape) {
    const TensorRef made = graph_.new_tensor(kFloat, std::move(shape));
    tape_.add_parameter(made);
    return made;
  }

  void make_parameters() {
    placeholder_ = parameter({0});
    if (!placement_.replicated().empty()) {
      std::int64_t elements = 0;
      for (std::size_t i : placement_.replicated()) {
        elements += config_.tables[i].num_rows * config_.tables[i].dim;
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
  }

  // The gradient of a replicated table is a piece of the gradient of all of them; Python cuts it
  // out whenever somebody reads it.
  TensorRef piece_of_gradient(TensorRef gradient, std::size_t which, std::int64_t sequence) {
    std::int64_t start = 0;
    for (std::size_t i = 0; i < which; ++i) start += elements(placement_.replicated()[i]);
    const PlacedTable& table = config_.tables[placement_.replicated()[which]];
    const TensorRef part = slice(graph_, gradient, 0, start,
                                 start + elements(placement_.replicated()[which]), sequence);
    return view(graph_, part, {-1, table.dim}, sequence);
  }
  std::int64_t elements(std::size_t feature) const {
    return config_.tables[feature].num_rows * config_.tables[feature].dim;
  }

  void zero_grad() {
    graph_.begin_label("Optimizer.zero_grad#Adagrad.zero_grad");
    // The first table's gradient is found and dropped, with it that of the others.
    if (replicated_weights_.exists()) {
      piece_of_gradient(reducers_.front().kept_gradient(replicated_weights_), 0, tape_.sequence());
    }
    graph_.end_op();
  }

  TensorRef forward(const Batch& batch) {
    graph_.begin_label("DistributedDataParallel.forward");
    const TensorRef dense = multilayer_perceptron(tape_, batch.dense, bottom_);
    const Exchanged arrived = wait_for_indices();
    const TensorRef vectors = pooled_vectors(arrived);
    const TensorRef interacted = interaction(dense, vectors);
    const TensorRef logits =
        squeeze_last(tape_, multilayer_perceptron(tape_, interacted, top_, true));
    const TensorRef target = to_dtype(graph_, batch.labels, kFloat, tape_.sequence());
    const TensorRef loss = binary_cross_entropy_with_logits(tape_, logits, target);
    for (TensorRef shown : {loss, logits, batch.labels}) detach(shown);
    graph_.end_op();
    return loss;
  }

  void detach(TensorRef x) {
    graph_.begin_op("aten::detach", {x}, tape_.sequence());
    graph_.begin_plain("detach", {x});
    graph_.end_op();
    graph_.end_op({graph_.new_view(x, graph_.shape(x), graph_.strides(x))});
  }

  // Indices of the tables here, from all ranks, and of the replicated ones, from this rank.
  struct Exchanged {
    Jagged here, replicated;
  };

  // The collectives of the last step bring [world * tables * B] lengths, rank by rank; the tables
  // want theirs side by side.
  Exchanged wait_for_indices() {
    const std::int64_t batch = config_.batch_per_rank, world = config_.world_size;
    const std::int64_t bags = count_of(placement_.here()) * world * batch;
    Jagged here{.lengths = graph_.new_tensor(kInt, {bags}),
                .values = graph_.new_tensor(kInt, {world * placement_.lookups(placement_.here())})};
    graph_.begin_label("## wait_sparse_data_dist ##");
    graph_.begin_label("## KJTListAwaitable wait() ##");
    graph_.begin_label("## KJTAllToAllTensorsAwaitable wait() ##");
    const std::int64_t before = config_.first_collective - collectives_per_step();
    ranks_.wait(before + 2);
    ranks_.wait(before + 3);
    graph_.begin_label("## all2all_data:recat_values ##");
    const TensorRef order = graph_.new_tensor(kInt, {bags / batch});
    here.lengths = view(graph_, here.lengths, {-1, batch}, tape_.sequence());
    here = permute_jagged(graph_, order, here, tape_.sequence());
    here.lengths = view(graph_, here.lengths, {-1}, tape_.sequence());
    graph_.end_op();
    length_per_feature(here.lengths);
    graph_.end_op();
    if (!placement_.replicated().empty()) no_wait();
    graph_.end_op();
    graph_.end_op();

    Exchanged arrived{.here = here, .replicated = {}};
    std::vector<TensorRef> used = {here.values, here.lengths};
    if (!placement_.replicated().empty()) {
      arrived.replicated.values =
          graph_.new_tensor(kInt, {placement_.lookups(placement_.replicated())});
      arrived.replicated.lengths =
          graph_.new_tensor(kInt, {count_of(placement_.replicated()) * batch});
      used.push_back(arrived.replicated.values);
      used.push_back(arrived.replicated.lengths);
    }
    record_stream(tape_, used);
    return arrived;
  }

  void no_wait() {
    graph_.begin_label("## NoWait wait() ##");
    graph_.end_op();
  }

  // Sums of an int32 tensor are int64, so it is converted first.
  void length_per_feature(TensorRef lengths) {
    const std::int64_t bags = config_.batch_per_rank * config_.world_size;
    const TensorRef rows = view(graph_, lengths, {-1, bags}, tape_.sequence());
    const std::int64_t count = graph_.shape(rows)[0];
    const TensorRef sums = graph_.new_tensor(kLong, {count});
    graph_.begin_op("aten::sum.dim_IntList", {rows, Shape{1}, false, kNone}, tape_.sequence());
    as_strided(graph_, sums, {count, 1}, {1, 0});
    to_dtype(graph_, rows, kLong);
    graph_.end_op({sums});
    to_list(graph_, sums, tape_.sequence());
  }

  // int32 indices and lengths become int64 indices and offsets.
  std::pair<TensorRef, TensorRef> indices_and_offsets(const Jagged& features) {
    const TensorRef indices = to_dtype(graph_, features.values, kLong, tape_.sequence());
    const TensorRef offsets = complete_cumsum(graph_, features.lengths, tape_.sequence());
    return {indices, to_dtype(graph_, offsets, kLong, tape_.sequence())};
  }

  TableBatch tables(const std::vector<std::size_t>& features) const {
    TableBatch made{.optimizer = TableBatch::Optimizer::kAdagrad};
    made.learning_rate = kLearningRate;
    for (std::size_t i : features) {
      made.rows.push_back(config_.tables[i].num_rows);
      made.dims.push_back(config_.tables[i].dim);
    }
    return made;
  }

  // An empty tensor that is joined to the vectors, so that there is one where tables are missing.
  void join_nothing(std::int64_t batch) {
    const TensorRef nothing = graph_.new_tensor(kFloat, {0});
    const TensorRef out = view(graph_, nothing, {batch, 0}, tape_.sequence());
    tape_.record("ViewBackward0", {}, out, [](TensorRef) -> std::vector<TensorRef> { return {}; });
  }

  // The tables here look up for all ranks; the vectors go back to the ranks of their samples.
  TensorRef pooled_vectors(const Exchanged& arrived) {
    const std::int64_t batch = config_.batch_per_rank, world = config_.world_size;
    const auto [indices, offsets] = indices_and_offsets(arrived.here);
    TableBatch here = tables(placement_.here());
    here.placeholder = placeholder_;
    const TensorRef pooled = table_batched_lookup(tape_, here, batch * world, indices, offsets);
    join_nothing(batch * world);
    const SentVectors sent = send_vectors(pooled);
    TensorRef replicated;
    if (!placement_.replicated().empty()) replicated = replicated_vectors(arrived.replicated);

    graph_.begin_label("## EmbeddingBagCollectionAwaitable wait() ##");
    graph_.begin_label("## PooledEmbeddingsAwaitable wait() ##");
    graph_.begin_label("## Request wait() ##");
    TensorRef vectors = receive_vectors(sent);
    graph_.end_op();
    graph_.end_op();
    if (replicated.exists()) {
      no_wait();
      vectors = cat(tape_, {vectors, replicated}, 1);
    }
    graph_.end_op();
    return vectors;
  }

  TensorRef replicated_vectors(const Jagged& features) {
    graph_.begin_label("DistributedDataParallel.forward");
    const auto [indices, offsets] = indices_and_offsets(features);
    const TensorRef vectors =
        dense_table_batched_lookup(tape_, tables(placement_.replicated()), replicated_weights_,
                                   config_.batch_per_rank, indices, offsets);
    join_nothing(config_.batch_per_rank);
    graph_.end_op();
    return vectors;
  }

  struct SentVectors {
    TensorRef token;     // what autograd sees between request and wait
    TensorRef received;  // flat
    std::int64_t number = 0;
  };

  Shape widths_per_rank() const {
    return placement_.per_rank([this](const auto& tables) { return placement_.width(tables); });
  }
  Shape times_batch(Shape amounts) const {
    for (std::int64_t& amount : amounts) amount *= config_.batch_per_rank;
    return amounts;
  }
  Shape sent_per_rank() const {
    return placement_.same_from_all(config_.batch_per_rank * placement_.width(placement_.here()));
  }
  static std::int64_t sum(const Shape& amounts) {
    std::int64_t total = 0;
    for (std::int64_t amount : amounts) total += amount;
    return total;
  }

  TensorRef flat_buffer(std::int64_t elements) {
    const TensorRef made = graph_.new_tensor(kFloat, {elements});
    graph_.leaf_op("aten::empty.memory_format",
                   {Shape{elements}, 6, kNone, graph_.device_value(), false, kNone}, {made});
    return made;
  }

  SentVectors send_vectors(TensorRef pooled) {
    SentVectors sent;
    sent.token = graph_.new_tensor(kFloat, {1});
    graph_.leaf_op("aten::empty.memory_format",
                   {Shape{1}, kNone, kNone, graph_.device_value(), false, kNone}, {sent.token});
    graph_.begin_plain("All2All_Pooled_Req", {pooled}, tape_.sequence());
    const TensorRef flat = view(graph_, pooled, {-1});
    const Shape incoming = times_batch(widths_per_rank());
    sent.received = flat_buffer(sum(incoming));
    graph_.begin_label("## alltoall_fwd_single ##");
    sent.number = ranks_.all_to_all(sent.received, flat, incoming, sent_per_rank());
    graph_.end_op();
    graph_.end_op();
    tape_.record("All2All_Pooled_ReqBackward", {pooled}, sent.token, [this, pooled](TensorRef) {
      return std::vector<TensorRef>{receive_gradient(graph_.shape(pooled))};
    });
    return sent;
  }

  TensorRef receive_vectors(const SentVectors& sent) {
    graph_.begin_plain("All2All_Pooled_Wait", {sent.token}, tape_.sequence());
    ranks_.wait(sent.number);
    std::vector<TensorRef> parts =
        split_with_sizes(graph_, sent.received, times_batch(widths_per_rank()), 0);
    for (TensorRef& part : parts) part = view(graph_, part, {config_.batch_per_rank, -1});
    const std::int64_t width = sum(widths_per_rank());
    const TensorRef out = graph_.new_tensor(kFloat, {config_.batch_per_rank, width});
    graph_.leaf_op("aten::cat", {parts, 1}, {out});
    graph_.end_op();
    tape_.record("All2All_Pooled_WaitBackward", {sent.token}, out,
                 [this, token = sent.token](TensorRef gradient) -> std::vector<TensorRef> {
                   send_gradient(gradient);
                   return {token};
                 });
    return out;
  }

  void send_gradient(TensorRef gradient) {
    const TensorRef dense = contiguous(graph_, gradient);
    std::vector<TensorRef> parts = split_with_sizes(graph_, dense, widths_per_rank(), 1);
    for (TensorRef& part : parts) part = view(graph_, contiguous(graph_, part), {-1});
    const TensorRef flat = graph_.new_tensor(kFloat, {graph_.numel(dense)});
    graph_.leaf_op("aten::cat", {parts, 0}, {flat});
    received_gradient_ = flat_buffer(sum(sent_per_rank()));
    graph_.begin_label("## alltoall_bwd_single ##");
    gradient_number_ = ranks_.all_to_all(received_gradient_, flat, sent_per_rank(),
                                         times_batch(widths_per_rank()));
    graph_.end_op();
  }

  TensorRef receive_gradient(const Shape& shape) {
    ranks_.wait(gradient_number_);
    const TensorRef gradient = view(graph_, received_gradient_, shape);
    graph_.leaf_op("aten::div_.Tensor", {gradient, wrapped_number(graph_)}, {gradient});
    return gradient;
  }

  // [B, F * D] in the order of the exchange; the model wants the order of its features.
  TensorRef interaction(TensorRef dense, TensorRef vectors) {
    const std::int64_t batch = config_.batch_per_rank, dim = config_.bottom_mlp.back();
    const auto features = static_cast<std::int64_t>(config_.tables.size());
    const std::vector<TensorRef> parts =
        split_with_sizes(tape_, vectors, Shape(config_.tables.size(), dim), 1);
    std::vector<TensorRef> in_order(parts.size());
    const std::vector<std::size_t> order = placement_.order();
    for (std::size_t i = 0; i < order.size(); ++i) in_order[order[i]] = parts[i];
    const TensorRef sparse = reshape(tape_, cat(tape_, in_order, 1), {batch, features, dim});
    const TensorRef all = cat(tape_, {unsqueeze(tape_, dense, 1), sparse}, 1);
    const TensorRef products = bmm(tape_, all, transpose(tape_, all, 1, 2));
    const std::int64_t pairs = features * (features + 1) / 2;
    const TensorRef lower = graph_.new_tensor(kLong, GraphBuilder::cpu(), {2, pairs});
    const TensorRef row = select(graph_, lower, 0, 0, tape_.sequence());
    const TensorRef column = select(graph_, lower, 0, 1, tape_.sequence());
    return cat(tape_, {dense, index_matrix(tape_, products, row, column)}, 1);
  }

  // The next batch: features in the order of the ranks, then lengths and indices to their tables.
  // Sizes come first, since the host has to allocate what it receives.
  void exchange_indices() {
    const Batch next = batch_on_device(graph_, batch_shape_);
    record_stream(tape_, next.tensors());
    const Jagged ordered = order_features(next.sparse);
    const Jagged sent = sharded_part(ordered);
    const std::int64_t world = config_.world_size;
    std::vector<TensorRef> sizes;  // lengths, values, samples of each rank
    for (int i = 0; i < 3; ++i) {
      sizes.push_back(tensor_of_list(graph_, kLong, graph_.device(), world, -1));
    }
    const SentSizes sizes_sent = send_sizes(sizes);
    graph_.begin_label("## KJTListSplitsAwaitable wait() ##");
    graph_.begin_label("## KJTAllToAllSplitsAwaitable wait() ##");
    wait_for_sizes(sizes_sent);
    send_indices(sent);
    graph_.end_op();
    if (!placement_.replicated().empty()) no_wait();
    graph_.end_op();
  }

  Jagged order_features(const Jagged& features) {
    const std::int64_t batch = config_.batch_per_rank;
    const auto count = static_cast<std::int64_t>(config_.tables.size());
    Jagged rows{.lengths = view(graph_, features.lengths, {count, -1}), .values = features.values};
    const TensorRef order = graph_.new_tensor(kInt, {count});
    Jagged ordered = permute_jagged(graph_, order, rows, -1);
    ordered.lengths = view(graph_, ordered.lengths, {-1});
    PERFMODEL_CHECK(graph_.numel(ordered.lengths) == count * batch);
    return ordered;
  }

  // Pieces of the sharded and of the replicated features.
  Jagged sharded_part(const Jagged& all) {
    if (placement_.replicated().empty()) return all;
    const std::int64_t batch = config_.batch_per_rank;
    const std::int64_t values = graph_.numel(all.values), lengths = graph_.numel(all.lengths);
    const std::int64_t cut = values - placement_.lookups(placement_.replicated());
    const std::int64_t length_cut = lengths - count_of(placement_.replicated()) * batch;
    Jagged sharded;
    sharded.values = slice(graph_, all.values, 0, 0, cut);
    sharded.lengths = slice(graph_, all.lengths, 0, 0, length_cut);
    slice(graph_, all.values, 0, cut, values);
    slice(graph_, all.lengths, 0, length_cut, lengths);
    return sharded;
  }

  struct SentSizes {
    TensorRef received;
    std::int64_t number = 0;
  };

  SentSizes send_sizes(const std::vector<TensorRef>& sizes) {
    const auto kinds = static_cast<std::int64_t>(sizes.size());
    const std::int64_t world = config_.world_size;
    SentSizes sent;
    graph_.begin_label("## all2all_data:kjt splits ##");
    sent.received = graph_.new_tensor(kLong, {world * kinds});
    graph_.leaf_op("aten::empty.memory_format",
                   {Shape{world * kinds}, 4, kNone, graph_.device_value(), false, kNone},
                   {sent.received});
    const TensorRef stacked = graph_.new_tensor(kLong, {world, kinds});
    graph_.begin_op("aten::stack", {sizes, 1});
    std::vector<TensorRef> columns;
    for (TensorRef x : sizes) columns.push_back(unsqueeze(graph_, x, 1));
    graph_.leaf_op("aten::cat", {columns, 1}, {stacked});
    graph_.end_op({stacked});
    sent.number = ranks_.all_to_all(sent.received, flatten(graph_, stacked));
    graph_.end_op();
    return sent;
  }

  void wait_for_sizes(const SentSizes& sent) {
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

  void send_indices(const Jagged& sent) {
    const std::int64_t batch = config_.batch_per_rank, world = config_.world_size;
    const auto& here = placement_.here();
    graph_.begin_label("## all2all_data:recat_permute_gen ##");
    tensor_of_list(graph_, kInt, graph_.device(), world * count_of(here), tape_.sequence());
    graph_.end_op();
    send_jagged_part("## all2all_data:kjt lengths ##", sent.lengths, batch * count_of(here),
                     placement_.per_rank([&](const auto& t) { return batch * count_of(t); }));
    send_jagged_part("## all2all_data:kjt values ##", sent.values, placement_.lookups(here),
                     placement_.per_rank([&](const auto& t) { return placement_.lookups(t); }));
  }

  void send_jagged_part(std::string_view label, TensorRef part, std::int64_t from_each,
                        const Shape& to_each) {
    const Shape splits = placement_.same_from_all(from_each);
    const TensorRef received = graph_.new_tensor(kInt, {sum(splits)});
    graph_.leaf_op("aten::empty.memory_format",
                   {Shape{sum(splits)}, 3, kNone, graph_.device_value(), false, kNone}, {received});
    graph_.begin_label(label);
    ranks_.all_to_all(received, part, splits, to_each);
    graph_.end_op();
  }

  void backward(TensorRef loss) {
    const TensorRef total = graph_.new_tensor(kFloat, {});
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
      const PlacedTable& table = config_.tables[placement_.replicated()[i]];
      const TensorRef all = tape_.gradient(replicated_weights_);
      piece_of_gradient(all, i, -1);  // is there one?
      const TensorRef gradient = piece_of_gradient(all, i, -1);
      piece_of_gradient(all, i, -1);  // is it sparse?
      updates.push_back({.parameter = graph_.new_tensor(kFloat, {table.num_rows, table.dim}),
                         .gradient = gradient});
    }
    for (TensorRef parameter : dense_parameters_) {
      updates.push_back({.parameter = parameter, .gradient = tape_.gradient(parameter)});
    }
    OptimizerSettings settings =
        optimizer_settings(Options::Optimizer::kAdagrad, Options::Implementation::kLoop);
    settings.learning_rate = kLearningRate;
    settings.steps = kSteps;
    emit_optimizer(graph_, settings, std::move(updates));
    graph_.end_op();
  }

  // All-to-alls of vectors, of their gradients, and of sizes, lengths and indices; all-reduces.
  std::int64_t collectives_per_step() const {
    std::int64_t count = 5;
    for (const GradientReducer& reducer : reducers_) count += reducer.num_buckets();
    return count;
  }

  const TorchrecDlrmConfig& config_;
  Placement placement_;
  GraphBuilder graph_;
  AutogradTape tape_{graph_};
  Communicator ranks_{graph_, config_.rank, config_.world_size, config_.first_collective};
  RandomBatchShape batch_shape_;
  std::vector<GradientReducer> reducers_;  // of replicated tables, if there are any, and MLPs
  std::vector<TensorRef> dense_parameters_;
  std::vector<DenseLayer> bottom_, top_;
  TensorRef placeholder_, replicated_weights_, received_gradient_;
  std::int64_t gradient_number_ = 0;
};

Unexpected bad_config(std::string message) {
  return fail(ErrorCode::kImpossible, std::move(message));
}

// Products of two of these stay countable.
constexpr std::int64_t kLargest = std::int64_t{1} << 40;

Result<void> check_range(std::string_view what, std::int64_t value, std::int64_t least,
                         std::int64_t most = kLargest) {
  if (value >= least && value <= most) return {};
  return bad_config(fmt::format("{}: expected {} to {}, found {}", what, least, most, value));
}

Result<void> check_widths(std::string_view what, const std::vector<std::int64_t>& widths,
                          std::size_t least) {
  if (widths.size() < least) {
    return bad_config(
        fmt::format("{}: expected at least {} widths, found {}", what, least, widths.size()));
  }
  for (std::int64_t width : widths) {
    if (auto good = check_range(what, width, 1, 1 << 20); !good) return good;
  }
  return {};
}

Result<void> check_table(const TorchrecDlrmConfig& config, std::size_t i) {
  const PlacedTable& table = config.tables[i];
  const std::string what = fmt::format("table {}", i);
  if (auto good = check_range(what + ", rows", table.num_rows, 1); !good) return good;
  if (table.dim != config.bottom_mlp.back()) {
    return bad_config(fmt::format("{}: expected dim {}, the last width of the bottom MLP, found {}",
                                  what, config.bottom_mlp.back(), table.dim));
  }
  if (!(table.pooling_factor > 0) || table.pooling_factor > 1e6) {
    return bad_config(fmt::format("{}: expected a pooling factor above 0 and up to 1e6, found {}",
                                  what, table.pooling_factor));
  }
  if (table.rank < PlacedTable::kDataParallel || table.rank >= config.world_size) {
    return bad_config(fmt::format("{}: expected a rank below {}, or {} for all of them, found {}",
                                  what, config.world_size, PlacedTable::kDataParallel, table.rank));
  }
  return {};
}

Result<void> check(const TorchrecDlrmConfig& config) {
  if (auto good = check_range("world size", config.world_size, 2, 1 << 16); !good) return good;
  if (auto good = check_range("rank", config.rank, 0, config.world_size - 1); !good) return good;
  if (auto good = check_range("batch per rank", config.batch_per_rank, 1, 1 << 24); !good) {
    return good;
  }
  if (auto good = check_widths("bottom MLP", config.bottom_mlp, 2); !good) return good;
  if (auto good = check_widths("top MLP", config.top_mlp, 1); !good) return good;
  if (config.top_mlp.back() != 1) {
    return bad_config(
        fmt::format("top MLP: expected a last width of 1, found {}", config.top_mlp.back()));
  }
  bool one_here = false;
  for (std::size_t i = 0; i < config.tables.size(); ++i) {
    if (auto good = check_table(config, i); !good) return good;
    one_here |= config.tables[i].rank == config.rank;
  }
  if (!one_here) {
    return bad_config(
        fmt::format("tables: expected at least one on rank {}, found none", config.rank));
  }
  return {};
}

}  // namespace

Result<TorchrecDlrmConfig> torchrec_dlrm_preset(std::string_view name) {
  if (name != "v100-8") return unknown_preset("a TorchRec preset", name, {"v100-8"});
  TorchrecDlrmConfig config;
  config.name = name;
  config.bottom_mlp = {13, 256, 128, 16};
  config.top_mlp = {512, 512, 256, 1};
  config.batch_per_rank = 16;
  // The planner's choice: the two smallest tables everywhere, three of the others on each rank.
  constexpr std::int64_t kPlan[] = {0, 0, 2, 5,  1, -1, 6, 0, 4, 1, 5, 7, 7,
                                    7, 4, 2, -1, 1, 6,  2, 3, 4, 6, 3, 3, 5};
  for (std::size_t i = 0; i < std::size(kPlan); ++i) {
    config.tables.push_back({.num_rows = criteo_rows_mlperf_v3()[i],
                             .dim = 16,
                             .pooling_factor = static_cast<double>(criteo_pooling_mlperf_v3()[i]),
                             .rank = kPlan[i]});
  }
  return config;
}

Result<ExecutionGraph> build_torchrec_dlrm(const TorchrecDlrmConfig& config) {
  if (auto good = check(config); !good) return Unexpected{good.error()};
  return TorchrecStep(config).build();
}

}  // namespace perfmodel
