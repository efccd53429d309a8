#include "perfmodel/graph/rewrites/training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "builders/emit/collectives.hpp"
#include "builders/emit/concat.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/views.hpp"
#include "core/gradient_buckets.hpp"
#include "ops/catalogue.hpp"
#include "rewrite/change_tensors.hpp"
#include "rewrite/graph_edit.hpp"
#include "step/autograd_names.hpp"
#include "step/dialect.hpp"
#include "step/optimizer_weights.hpp"
#include "step/parameter_gradients.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace {

Unexpected refuse_data_parallel(std::string message) {
  return fail(ErrorCode::kImpossible, "data-parallel: " + std::move(message));
}

struct ReadyGradient {
  std::int32_t node = -1;    ///< the evaluate_function around the AccumulateGrad
  std::uint32_t kept = 0;    ///< the parameter's kept gradient; into ExecutionGraph::tensors
  bool accumulates = false;  ///< added to what was kept (zero_grad without None)
};

/// Children of `region` from `begin` on, before node `end`; -1: not found.
struct ModelRegion {
  std::int32_t region = -1, begin = -1, end = 0;
};

struct DataParallelStep {
  std::vector<ReadyGradient> ready;  ///< in order
  /// The last function of the backward pass: callbacks of the engine run after it.
  std::int32_t last_backward = -1;
  ModelRegion model;
  std::vector<std::uint32_t> statistics, counters;  ///< buffers of batch norms
};

bool is_gpu_tensor(const ExecutionGraph& graph, const Argument& argument) {
  return argument.kind == Argument::Kind::kTensor && graph.tensors[argument.index].on_gpu();
}

/// With several backward passes, only the last one reduces (no_sync is around the others), and the
/// first one shows whether the gradient was there before the step.
Result<std::vector<ReadyGradient>> ready_gradients(const StepView& step,
                                                   const GraphIteration& range) {
  const ExecutionGraph& graph = step.graph();
  std::vector<ReadyGradient> ready;
  FactsOfValues<std::int32_t> position(step.tensors(), -1);  // in `ready`
  for (std::int32_t i = range.begin; i < range.end; ++i) {
    if (!step.parameter_gradients()[i]) continue;
    const Node& node = graph.node(i);
    const auto kept = kept_gradient(graph, node);
    if (!kept) continue;
    const Tensor& gradient = graph.tensors[*kept];
    if (gradient.storage_id == 0) {
      return refuse_data_parallel(fmt::format(
          "expected dense gradients, found a sparse one of [{}], which NCCL does not reduce",
          fmt::join(graph.shape(gradient), ", ")));
    }
    if (!gradient.on_gpu()) {
      return refuse_data_parallel("expected gradients on a GPU, found one on a CPU");
    }
    const bool is_evaluated = node.parent >= 0 && graph.name(node.parent).ends_with(kAccumulate);
    ReadyGradient made{.node = is_evaluated ? node.parent : i,
                       .kept = *kept,
                       .accumulates = adds_to_gradient(graph, node)};
    if (const std::int32_t earlier = position[gradient]; earlier >= 0) {
      made.accumulates = ready[earlier].accumulates;
      ready[earlier].node = -1;
    }
    position[gradient] = static_cast<std::int32_t>(ready.size());
    ready.push_back(made);
  }
  std::erase_if(ready, [](const ReadyGradient& one) { return one.node < 0; });
  return ready;
}

// The engine runs inside a checkpoint's function as well: the outermost functions tell the end.
std::int32_t find_last_backward(const ExecutionGraph& graph, const GraphIteration& range,
                                const std::vector<ReadyGradient>& ready) {
  std::int32_t outermost = ready.front().node;
  for (std::int32_t i = outermost; i >= 0; i = graph.node(i).parent) {
    if (is_evaluate_function(graph, graph.node(i))) outermost = i;
  }
  const Node& first = graph.node(outermost);
  for (std::int32_t i = range.end; i-- > range.begin;) {
    const Node& node = graph.node(i);
    const bool is_sibling = node.thread == first.thread && node.parent == first.parent;
    if (is_sibling && is_evaluate_function(graph, node)) return i;
  }
  return ready.back().node;
}

void find_buffers(const StepView& view, const GraphIteration& range, DataParallelStep& step) {
  const ExecutionGraph& graph = view.graph();
  FactsOfValues<bool> is_known(view.tensors());
  const auto add = [&](std::vector<std::uint32_t>& list, const Argument& argument) {
    if (!is_gpu_tensor(graph, argument) || is_known[graph.tensors[argument.index]]) return;
    is_known[graph.tensors[argument.index]] = true;
    list.push_back(argument.index);
  };
  for (std::int32_t i = range.begin; i < range.end; ++i) {
    const auto inputs = graph.inputs(i);
    if (graph.name(i) == "aten::batch_norm" && inputs.size() > 4) {
      add(step.statistics, inputs[3]);
      add(step.statistics, inputs[4]);
    }
    if (graph.name(i) != "aten::add_" || inputs.empty() || !is_gpu_tensor(graph, inputs[0])) {
      continue;
    }
    const Tensor& sum = graph.tensors[inputs[0].index];
    if (sum.rank == 0 && sum.dtype == DType::kInt64) add(step.counters, inputs[0]);
  }
}

// Copies of the batch and zero_grad do not belong to the model, nor does the loss.
bool opens_model(const ExecutionGraph& graph, std::int32_t index) {
  const Node& node = graph.node(index);
  const std::string_view name = graph.name(node);
  if (node.is_structural || node.is_label || is_zeros(name)) return false;
  const auto inputs = graph.inputs(node);
  const bool copies = is_conversion(name) || is_copy(name) || name == "aten::pin_memory";
  return !copies || inputs.empty() || is_gpu_tensor(graph, inputs[0]);
}

bool closes_model(const ExecutionGraph& graph, std::int32_t index) {
  const std::string_view name = graph.name(index);
  const bool leaves = graph.node(index).is_label && !name.starts_with("CheckpointFunction");
  return leaves || name == "aten::ones_like" || name.find("loss") != name.npos ||
         name.find("cross_entropy") != name.npos;
}

// If autocast wraps an op, the op's number is inside.
bool is_numbered(const ExecutionGraph& graph, std::int32_t index) {
  const Node& node = graph.node(index);
  return node.seq_id >= 0 ||
         (!node.is_label && std::ranges::any_of(graph.children(node), [&](std::int32_t child) {
           return is_numbered(graph, child);
         }));
}

bool is_first_of_model(const ExecutionGraph& graph, std::int32_t index) {
  const std::int32_t parent = graph.node(index).parent;
  if (parent < 0 || graph.name(parent).starts_with("Optimizer.")) return false;
  const Node& around = graph.node(parent);
  return (around.is_label || around.is_structural) && opens_model(graph, index) &&
         is_numbered(graph, index);
}

// The first op that autograd numbers is in the region of the forward pass.
ModelRegion model_region(const ExecutionGraph& graph, const GraphIteration& range) {
  const std::int32_t thread = graph.node(range.begin).thread;
  std::int32_t first = range.begin;
  while (first < range.end &&
         (graph.node(first).thread != thread || !is_first_of_model(graph, first))) {
    ++first;
  }
  if (first == range.end) return {};
  ModelRegion model{.region = graph.node(first).parent, .begin = first, .end = range.end};
  const auto children = graph.children(model.region);
  const auto closing = std::ranges::find_if(
      children, [&](std::int32_t child) { return child > first && closes_model(graph, child); });
  if (closing != children.end()) model.end = *closing;
  // In whole regions of the forward pass, earlier ops belong to it.
  if (graph.name(model.region).find("forward") == std::string_view::npos) return model;
  model.begin = *std::ranges::find_if(
      children, [&](std::int32_t child) { return child == first || opens_model(graph, child); });
  return model;
}

/// Steps without gradients are left out.
Result<std::vector<DataParallelStep>> data_parallel_steps(const StepView& view) {
  std::vector<DataParallelStep> steps;
  for (const GraphIteration& range : iterations(view.graph())) {
    PERFMODEL_TRY(ready, ready_gradients(view, range));
    if (ready->empty()) continue;
    DataParallelStep step{.last_backward = find_last_backward(view.graph(), range, *ready),
                          .model = model_region(view.graph(), range)};
    step.ready = std::move(*ready);
    find_buffers(view, range, step);
    if (!steps.empty() && step.ready.size() != steps.front().ready.size()) {
      return refuse_data_parallel(fmt::format("expected {} gradients in every step, found {}",
                                              steps.front().ready.size(), step.ready.size()));
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

/// The part of a gradient that has a place in a bucket.
struct GradientPiece {
  std::size_t gradient = 0;           ///< in the order of readiness
  std::int64_t first = 0, count = 0;  ///< elements
  bool is_whole = true;
  std::size_t bucket = 0;
  TensorRef view;  ///< its place in the bucket
};

/// Cuts gradients, as even as they come, into pieces of at most `split_bytes`.
std::vector<GradientPiece> gradient_pieces(const ExecutionGraph& graph,
                                           const std::vector<ReadyGradient>& ready,
                                           std::int64_t split_bytes) {
  std::vector<GradientPiece> pieces;
  for (std::size_t i = 0; i < ready.size(); ++i) {
    const Tensor& gradient = graph.tensors[ready[i].kept];
    const bool splits = split_bytes > 0 && gradient.bytes() > split_bytes;
    const std::int64_t parts =
        splits ? std::min((gradient.bytes() + split_bytes - 1) / split_bytes, gradient.numel) : 1;
    for (std::int64_t part = 0, first = 0; part < parts; ++part) {
      const std::int64_t count = gradient.numel / parts + (part < gradient.numel % parts ? 1 : 0);
      pieces.push_back({.gradient = i, .first = first, .count = count, .is_whole = parts == 1});
      first += count;
    }
  }
  return pieces;
}

/// The buckets that all steps share.
class GradientReducer {
 public:
  GradientReducer(GraphBuilder& builder, const StepView& view, const DataParallelRewrite& rewrite,
                  const std::vector<ReadyGradient>& ready)
      : source_(view.graph()),
        builder_(builder),
        rewrite_(rewrite),
        weights_(weights_by_gradient(view)),
        ranks_(builder, 0, rewrite.world_size, rewrite.first_collective),
        pieces_(gradient_pieces(source_, ready, rewrite.split_bytes.value_or(0))),
        instead_(view.tensors()) {
    make_buckets(ready);
  }

  /// Returns the view that is read instead of a gradient in a bucket.
  const std::optional<Tensor>& instead_of(const Tensor& mention) const { return instead_[mention]; }

  void describe_group() const { ranks_.describe_groups({}, "0"); }

  void broadcast_buffers(const DataParallelStep& step) {
    std::vector<std::pair<TensorRef, std::int64_t>> sent;  // with the number to wait for
    for (const auto* buffers : {&step.statistics, &step.counters}) {
      if (buffers->empty()) continue;
      const TensorRef flat = flattened(sources(*buffers));
      sent.emplace_back(flat, ranks_.broadcast(flat));
    }
    for (std::size_t i = 0; i < sent.size(); ++i) {
      ranks_.wait(sent[i].second);
      unflatten(sent[i].first, sources(i == 0 ? step.statistics : step.counters));
    }
  }

  /// After AccumulateGrad: into the bucket, which is reduced once it and the earlier ones are full.
  void add(std::size_t position, const ReadyGradient& ready) {
    if (rewrite_.delayed) return;
    for (auto piece = std::ranges::lower_bound(pieces_, position, {}, &GradientPiece::gradient);
         piece != pieces_.end() && piece->gradient == position; ++piece) {
      copy_to_bucket(*piece, ready);
      ++buckets_[piece->bucket].arrived;
      for (; next_ < buckets_.size() && buckets_[next_].is_full(); ++next_) {
        ranks_.all_reduce(buckets_[next_].flat);
        buckets_[next_].arrived = 0;
      }
    }
  }

  void reduce_together(const DataParallelStep& step) {
    builder_.begin_label("apex.parallel.DistributedDataParallel.allreduce_fallback");
    for (const Bucket& bucket : buckets_) {
      std::vector<std::uint32_t> kept;
      for (const std::size_t member : bucket.pieces) {
        kept.push_back(step.ready[pieces_[member].gradient].kept);
      }
      const std::vector<TensorRef> gradients = sources(kept);
      const TensorRef flat = flattened(gradients);
      ranks_.all_reduce(flat);
      divide_in_bucket(flat);
      unflatten(flat, gradients);
    }
    builder_.end_op();
  }

  void finish(const DataParallelStep& step) {
    if (rewrite_.delayed) return reduce_together(step);
    next_ = 0;
    for (const Bucket& bucket : buckets_) {
      std::vector<TensorRef> views;
      for (const std::size_t member : bucket.pieces) {
        const TensorRef view = pieces_[member].view;
        const Shape shape = builder_.shape(view);
        views.push_back(as_strided(builder_, bucket.flat, shape, contiguous_strides(shape),
                                   builder_.offset(view), true));
      }
      if (rewrite_.gradient_as_bucket_view) continue;
      for (std::size_t k = 0; k < views.size(); ++k) {
        const GradientPiece& piece = pieces_[bucket.pieces[k]];
        const std::uint32_t kept = step.ready[piece.gradient].kept;
        builder_.begin_plain("torch.distributed.ddp.reducer::copy_bucket_to_grad", {weight(kept)});
        copy(builder_, part(kept, piece), views[k]);
        builder_.end_op();
      }
    }
  }

 private:
  struct Bucket {
    TensorRef flat;
    std::vector<std::size_t> pieces;
    std::size_t arrived = 0;

    bool is_full() const { return arrived == pieces.size(); }
  };

  TensorRef source(std::uint32_t entry) {
    return builder_.tensor_of_source(source_.tensors[entry]);
  }

  std::vector<TensorRef> sources(const std::vector<std::uint32_t>& entries) {
    std::vector<TensorRef> tensors;
    for (const std::uint32_t entry : entries) tensors.push_back(source(entry));
    return tensors;
  }

  TensorRef weight(std::uint32_t gradient) {
    const std::int64_t known = weights_[source_.tensors[gradient]];
    return source(known < 0 ? gradient : static_cast<std::uint32_t>(known));
  }

  TensorRef part(std::uint32_t kept, const GradientPiece& piece) {
    if (piece.is_whole) return source(kept);
    return narrow(builder_, view(builder_, source(kept), {-1}), 0, piece.first, piece.count);
  }

  void copy_to_bucket(const GradientPiece& piece, const ReadyGradient& ready) {
    if (rewrite_.gradient_as_bucket_view && ready.accumulates) {
      divide_in_bucket(piece.view);
    } else {
      const TensorRef gradient = part(ready.kept, piece);
      const TensorRef factor = wrapped_number(builder_, DType::kFloat64);
      builder_.begin_plain("torch::distributed::reducer::mul_out", {piece.view});
      builder_.leaf_op("aten::mul.out", {gradient, factor, piece.view}, {piece.view});
      builder_.end_op();
    }
    if (!rewrite_.gradient_as_bucket_view) return;
    instead_[source_.tensors[ready.kept]] = builder_.mention_of(piece.view);
  }

  // Types never share a bucket.
  void make_buckets(const std::vector<ReadyGradient>& ready) {
    std::vector<BucketedGradient> sizes;
    for (const GradientPiece& piece : pieces_) {
      const Tensor& gradient = source_.tensors[ready[piece.gradient].kept];
      sizes.push_back(
          {.bytes = static_cast<double>(gradient.bytes()) * static_cast<double>(piece.count) /
                    static_cast<double>(std::max<std::int64_t>(gradient.numel, 1)),
           .group = static_cast<std::int32_t>(gradient.dtype)});
    }
    constexpr double kUnlimited = std::numeric_limits<double>::infinity();
    const auto limit = [&](std::int64_t bytes) {
      return rewrite_.delayed ? kUnlimited : static_cast<double>(bytes);
    };
    for (const auto& members : gradient_buckets(sizes, limit(rewrite_.first_bucket_bytes),
                                                limit(rewrite_.bucket_cap_bytes))) {
      make_bucket(ready, members);
    }
  }

  void make_bucket(const std::vector<ReadyGradient>& ready,
                   const std::vector<std::size_t>& members) {
    std::int64_t elements = 0;
    for (const std::size_t member : members) elements += pieces_[member].count;
    const Tensor& first = source_.tensors[ready[pieces_[members.front()].gradient].kept];
    const TensorRef flat = builder_.new_tensor(first.dtype, first.device, {elements});
    std::int64_t offset = 0;
    for (const std::size_t member : members) {
      GradientPiece& piece = pieces_[member];
      const auto sizes = source_.shape(source_.tensors[ready[piece.gradient].kept]);
      const Shape shape = piece.is_whole ? Shape(sizes.begin(), sizes.end()) : Shape{piece.count};
      piece.bucket = buckets_.size();
      piece.view = builder_.new_view(flat, shape, contiguous_strides(shape), offset);
      offset += piece.count;
    }
    buckets_.push_back({.flat = flat, .pieces = members});
  }

  void divide_in_bucket(TensorRef view) {
    const TensorRef number = wrapped_number(builder_);
    builder_.begin_op("aten::div_.Scalar", {view, rewrite_.world_size});
    builder_.leaf_op("aten::div_.Tensor", {view, number}, {view});
    builder_.end_op({view});
  }

  TensorRef flattened(const std::vector<TensorRef>& tensors) {
    std::vector<TensorRef> flat;
    builder_.begin_op("aten::flatten_dense_tensors", {tensors});
    for (const TensorRef tensor : tensors) flat.push_back(view(builder_, tensor, {-1}));
    const TensorRef made = cat(builder_, flat, 0);
    return builder_.end_with(made);
  }

  void unflatten(TensorRef flat, const std::vector<TensorRef>& tensors) {
    std::vector<TensorRef> pieces;
    std::int64_t offset = 0;
    builder_.begin_op("aten::unflatten_dense_tensors", {flat, tensors});
    for (const TensorRef tensor : tensors) {
      const std::int64_t count = builder_.numel(tensor);
      const TensorRef piece = narrow(builder_, flat, 0, offset, count);
      pieces.push_back(view(builder_, piece, builder_.shape(tensor)));
      offset += count;
    }
    builder_.end_op({pieces});
    for (std::size_t i = 0; i < tensors.size(); ++i) copy(builder_, tensors[i], pieces[i], true);
  }

  const ExecutionGraph& source_;
  GraphBuilder& builder_;
  const DataParallelRewrite& rewrite_;
  const FactsOfValues<std::int64_t> weights_;
  Communicator ranks_;
  std::vector<GradientPiece> pieces_;  // first all pieces of the gradient that is ready first
  FactsOfValues<std::optional<Tensor>> instead_;
  std::vector<Bucket> buckets_;
  std::size_t next_ = 0;  // bucket to launch
};

class DataParallelWriter {
 public:
  DataParallelWriter(const StepView& view, const DataParallelRewrite& rewrite,
                     const std::vector<DataParallelStep>& steps)
      : source_(view.graph()),
        edit_(source_, dialect_of(source_)),
        reducer_(edit_.builder(), view, rewrite, steps.front().ready) {
    for (const DataParallelStep& step : steps) change(step);
    if (const std::int32_t node = first_thread(steps); node >= 0) {
      edit_.follow(node, [this] { reducer_.describe_group(); });
    }
    edit_.on_each_copy([this](std::int32_t node, Node& copy) { change_copy(node, copy); });
  }

  ExecutionGraph write(std::vector<std::int32_t>* copies) {
    ExecutionGraph made = edit_.write();
    for (std::int32_t i = 0; copies && i < std::ssize(source_.nodes); ++i) {
      copies->push_back(edit_.copy().copied(i));
    }
    return made;
  }

 private:
  void change(const DataParallelStep& step) {
    if (step.model.begin >= 0) {
      edit_.precede(step.model.begin, [this, &step] { open_model(step); });
    }
    edit_.follow_tree(step.last_backward, [this, &step] { finish(step); });
    for (std::size_t k = 0; k < step.ready.size(); ++k) {
      const ReadyGradient& ready = step.ready[k];
      edit_.follow_tree(ready.node, [this, &step, &ready, k] {
        edit_.copy().close_to(ready.node);
        reducer_.add(k, ready);
        if (ready.node == step.last_backward) finish(step);
      });
    }
  }

  void finish(const DataParallelStep& step) {
    edit_.copy().close_beside(step.last_backward);
    reducer_.finish(step);
  }

  // The process group is made before everything else on the thread of the forward pass.
  std::int32_t first_thread(const std::vector<DataParallelStep>& steps) const {
    for (const DataParallelStep& step : steps) {
      for (std::int32_t i = 1; i < step.model.begin; ++i) {
        const Node& node = source_.node(i);
        const bool is_thread = node.is_structural && node.parent <= 0;
        if (is_thread && node.thread == source_.node(step.model.begin).thread) return i;
      }
    }
    return -1;
  }

  // Writes the region's node and the broadcasts in it; ops of the model get it as parent.
  void open_model(const DataParallelStep& step) {
    edit_.copy().close_to(step.model.region);
    edit_.builder().begin_label("DistributedDataParallel.forward");
    label_ = edit_.made().nodes.back().id;
    model_ = step.model;
    if (!step.statistics.empty()) reducer_.broadcast_buffers(step);
    edit_.builder().end_op();
  }

  void change_copy(std::int32_t node, Node& copy) {
    change_copied_tensors(source_, source_.node(node), edit_.made(), copy,
                          [this](const Tensor& source, Tensor& mention) {
                            const auto& by = reducer_.instead_of(source);
                            if (by) take_place(mention, *by);
                          });
    const bool is_in_model = label_ != 0 && source_.node(node).parent == model_.region;
    if (is_in_model && node < model_.end) copy.parent_id = label_;
  }

  const ExecutionGraph& source_;
  GraphEdit edit_;
  GradientReducer reducer_;
  ModelRegion model_;  // the one opened last
  std::int64_t label_ = 0;
};

Result<void> check_options(const DataParallelRewrite& rewrite) {
  if (rewrite.world_size < 1) {
    return refuse_data_parallel(
        fmt::format("expected at least 1 GPU, found {}", rewrite.world_size));
  }
  if (rewrite.first_bucket_bytes < 1 || rewrite.bucket_cap_bytes < 1) {
    return refuse_data_parallel(fmt::format("expected buckets of at least 1 B, found {} and {}",
                                            rewrite.first_bucket_bytes, rewrite.bucket_cap_bytes));
  }
  if (rewrite.split_bytes && *rewrite.split_bytes < 1) {
    return refuse_data_parallel(
        fmt::format("expected pieces of at least 1 B, found {}", *rewrite.split_bytes));
  }
  if (rewrite.delayed && (rewrite.split_bytes || rewrite.gradient_as_bucket_view)) {
    return refuse_data_parallel(
        "expected one buffer after the backward pass, or views or pieces in buckets, found both");
  }
  if (!rewrite.split_bytes || !rewrite.gradient_as_bucket_view) return {};
  return refuse_data_parallel(
      "expected views of buckets or gradients in pieces, found both: views are not copied");
}

}  // namespace

Result<ExecutionGraph> rewrite_data_parallel(const ExecutionGraph& graph,
                                             const DataParallelRewrite& rewrite,
                                             std::vector<std::int32_t>* copies) {
  if (auto good = check_options(rewrite); !good) return Unexpected{good.error()};
  const StepView view(graph);
  if (auto good = view.check("data-parallel", {.no_collectives = true}); !good) {
    return Unexpected{good.error()};
  }
  PERFMODEL_TRY(steps, data_parallel_steps(view));
  if (steps->empty()) {
    return refuse_data_parallel("expected a backward pass with AccumulateGrad, found none");
  }
  return DataParallelWriter(view, rewrite, *steps).write(copies);
}

}  // namespace perfmodel
