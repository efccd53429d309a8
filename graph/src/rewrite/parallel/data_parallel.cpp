#include "perfmodel/graph/rewrites/training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "builders/emit/collectives.hpp"
#include "builders/emit/concat.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/views.hpp"
#include "core/gradient_buckets.hpp"
#include "core/parameter_gradients.hpp"
#include "ops/catalogue.hpp"
#include "rewrite/graph_copy.hpp"
#include "rewrite/tensor_substitution.hpp"
#include "step/autograd_names.hpp"
#include "step/dialect.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace {

using Kind = Argument::Kind;

// A gradient that becomes ready; positions in the graph.
struct Ready {
  std::int32_t node = -1;    // the evaluate_function around the AccumulateGrad
  std::int64_t kept = -1;    // tensor that the parameter keeps
  bool accumulates = false;  // added to what was kept (zero_grad without None)
};

struct Step {
  std::vector<Ready> ready;         // in order
  std::int32_t last_backward = -1;  // the last node directly under the thread of gradients
  std::int32_t region = -1;         // node under which the forward pass stands
  std::int32_t begin = -1,
               end = 0;  // its children from `begin` on, before node `end`, are the model
  std::vector<std::int64_t> statistics, counters;  // buffers of batch norms
};

bool is_gpu_tensor(const ExecutionGraph& graph, const Argument& argument) {
  return argument.kind == Kind::kTensor && graph.tensors[argument.index].on_gpu();
}

class StepFinder {
 public:
  StepFinder(const ExecutionGraph& graph, const std::vector<bool>& of_parameter,
             const GraphIteration& range)
      : graph_(graph), of_parameter_(of_parameter), range_(range) {}

  Result<Step> find() {
    for (std::int32_t i = range_.begin; i < range_.end; ++i) {
      if (of_parameter_[i]) {
        if (auto good = take_gradient(i); !good) return Unexpected{good.error()};
      }
    }
    std::erase_if(step_.ready, [](const Ready& ready) { return ready.node < 0; });
    if (step_.ready.empty()) return std::move(step_);
    find_last_backward();
    find_buffers();
    find_model();
    return std::move(step_);
  }

 private:
  Result<void> take_gradient(std::int32_t index) {
    const Node& node = graph_.node(index);
    Ready ready{.node = index};
    if (node.parent >= 0 && graph_.name(node.parent).ends_with(kAccumulate)) {
      ready.node = node.parent;
    }
    const auto kept = kept_gradient(graph_, node);
    if (!kept) return {};
    ready.kept = *kept;
    for (std::int32_t child : graph_.children(node)) {
      ready.accumulates |= graph_.name(child) == "aten::add_";
    }
    const Tensor& gradient = graph_.tensors[ready.kept];
    if (gradient.storage_id == 0) {
      return fail(
          ErrorCode::kImpossible,
          fmt::format("data-parallel: expected dense gradients, found a sparse one of [{}], "
                      "which NCCL does not reduce",
                      fmt::join(graph_.shape(gradient), ", ")));
    }
    if (!gradient.on_gpu()) {
      return fail(ErrorCode::kImpossible,
                  "data-parallel: expected gradients on a GPU, found one on a CPU");
    }
    // Of several backward passes the last one reduces (no_sync around the others); whether the
    // gradient was there before the step, the first one tells.
    const auto [before, is_first] = ready_at_.try_emplace(gradient.id, step_.ready.size());
    if (!is_first) {
      Ready& earlier = step_.ready[before->second];
      ready.accumulates = earlier.accumulates;
      earlier.node = -1;
      before->second = step_.ready.size();
    }
    step_.ready.push_back(ready);
    return {};
  }

  // Callbacks of the engine run when everything else of the backward pass is done.
  void find_last_backward() {
    const Node& first = graph_.node(step_.ready.front().node);
    for (std::int32_t i = range_.begin; i < range_.end; ++i) {
      const Node& node = graph_.node(i);
      if (node.thread == first.thread && node.parent == first.parent &&
          graph_.name(node).starts_with("autograd::engine::evaluate_function")) {
        step_.last_backward = i;
      }
    }
    if (step_.last_backward < 0) step_.last_backward = step_.ready.back().node;
  }

  void find_buffers() {
    std::set<std::int64_t> seen;
    const auto take = [&](std::vector<std::int64_t>& list, const Argument& argument) {
      if (!is_gpu_tensor(graph_, argument)) return;
      if (seen.insert(graph_.tensors[argument.index].id).second) list.push_back(argument.index);
    };
    for (std::int32_t i = range_.begin; i < range_.end; ++i) {
      const Node& node = graph_.node(i);
      const auto inputs = graph_.inputs(node);
      if (graph_.name(node) == "aten::batch_norm" && inputs.size() > 4) {
        take(step_.statistics, inputs[3]);
        take(step_.statistics, inputs[4]);
      }
      if (graph_.name(node) == "aten::add_" && !inputs.empty() &&
          is_gpu_tensor(graph_, inputs[0]) && graph_.tensors[inputs[0].index].rank == 0 &&
          graph_.tensors[inputs[0].index].dtype == DType::kInt64) {
        take(step_.counters, inputs[0]);
      }
    }
  }

  // Copies of the batch and zero_grad do not belong to the model, nor does the loss.
  bool opens_model(const Node& node) const {
    const std::string_view name = graph_.name(node);
    if (node.is_structural || node.is_label || is_zeros(name)) return false;
    const auto inputs = graph_.inputs(node);
    const bool copies = is_conversion(name) || is_copy(name) || name == "aten::pin_memory";
    return !(copies && !inputs.empty() && !is_gpu_tensor(graph_, inputs[0]));
  }
  bool closes_model(const Node& node) const {
    const std::string_view name = graph_.name(node);
    const bool leaves = node.is_label && !name.starts_with("CheckpointFunction");
    return leaves || name == "aten::ones_like" || name.find("loss") != name.npos ||
           name.find("cross_entropy") != name.npos;
  }

  bool is_under_region(const Node& node) const {
    return node.parent >= 0 &&
           (graph_.node(node.parent).is_label || graph_.node(node.parent).is_structural);
  }

  // What autocast wraps has its number inside.
  bool is_counted(std::int32_t index) const {
    const Node& node = graph_.node(index);
    if (node.seq_id >= 0) return true;
    const auto children = graph_.children(node);
    return !node.is_label && std::any_of(children.begin(), children.end(),
                                         [this](auto child) { return is_counted(child); });
  }

  // The first op that autograd numbers stands in the region of the forward pass.
  void find_model() {
    const std::int32_t thread = graph_.node(range_.begin).thread;
    std::int32_t first = -1;
    for (std::int32_t i = range_.begin; i < range_.end && first < 0; ++i) {
      const Node& node = graph_.node(i);
      const bool counted = node.thread == thread && is_under_region(node) && is_counted(i);
      if (counted && opens_model(node) && !in_optimizer(node)) first = i;
    }
    if (first < 0) return;
    step_.region = graph_.node(first).parent;
    step_.begin = first;
    step_.end = range_.end;
    for (std::int32_t child : graph_.children(step_.region)) {
      if (child <= first || !closes_model(graph_.node(child))) continue;
      step_.end = child;
      break;
    }
    // Whole regions around the forward pass: what stands in front belongs to it.
    if (graph_.name(step_.region).find("forward") == std::string_view::npos) return;
    for (std::int32_t child : graph_.children(step_.region)) {
      if (child < first && opens_model(graph_.node(child))) {
        step_.begin = std::min(step_.begin, child);
      }
    }
  }

  bool in_optimizer(const Node& node) const {
    return graph_.name(node.parent).starts_with("Optimizer.");
  }

  const ExecutionGraph& graph_;
  const std::vector<bool>& of_parameter_;
  const GraphIteration& range_;
  std::map<std::int64_t, std::size_t> ready_at_;  // id of a gradient -> position in `ready`
  Step step_;
};

// The buckets that all steps share.
class Reducer {
 public:
  Reducer(GraphCopy& copy, const DataParallelRewrite& rewrite, const Step& step,
          const std::map<std::int64_t, std::uint32_t>& parameters)
      : copy_(copy),
        graph_(copy.builder()),
        rewrite_(rewrite),
        parameters_(parameters),
        ranks_(graph_, 0, rewrite.world_size, rewrite.first_collective) {
    place_.resize(step.ready.size());
    for (const auto& members : buckets_of(step)) add_bucket(step, members);
  }

  bool fits(const Step& step) const { return step.ready.size() == place_.size(); }

  void broadcast_buffers(const Step& step) {
    struct Sent {
      TensorRef flat;
      std::vector<TensorRef> buffers;
      std::int64_t number;
    };
    std::vector<Sent> sent;
    for (const auto* list : {&step.statistics, &step.counters}) {
      if (list->empty()) continue;
      std::vector<TensorRef> buffers;
      for (std::int64_t index : *list) buffers.push_back(ref(index));
      const TensorRef flat = flattened(buffers);
      sent.push_back({flat, buffers, ranks_.broadcast(flat)});
    }
    for (const Sent& one : sent) {
      ranks_.wait(one.number);
      unflatten(one.flat, one.buffers);
    }
  }

  // Behind AccumulateGrad: into the bucket, and off with it when it is full and those in front of
  // it are gone.
  void ready(std::size_t i, const Ready& ready) {
    for (const Place& place : place_[i]) {
      take(place, ready);
      ++buckets_[place.bucket].arrived;
      for (; next_ < buckets_.size() && buckets_[next_].is_full(); ++next_) {
        ranks_.all_reduce(buckets_[next_].flat);
        buckets_[next_].arrived = 0;
      }
    }
  }

  void finish(const Step& step) {
    next_ = 0;
    for (const Bucket& bucket : buckets_) {
      std::vector<TensorRef> pieces;
      for (const Member& member : bucket.members) {
        const Place& place = place_[member.gradient][member.piece];
        const Shape shape = graph_.shape(place.view);
        pieces.push_back(
            as_strided(graph_, bucket.flat, shape, contiguous_strides(shape), place.offset, true));
      }
      if (rewrite_.gradient_as_bucket_view) continue;
      for (std::size_t k = 0; k < pieces.size(); ++k) {
        const Member& member = bucket.members[k];
        const std::int64_t kept = step.ready[member.gradient].kept;
        graph_.begin_plain("torch.distributed.ddp.reducer::copy_bucket_to_grad", {parameter(kept)});
        copy(graph_, part(kept, place_[member.gradient][member.piece]), pieces[k]);
        graph_.end_op();
      }
    }
  }

  /// With gradients in the buckets: what follows uses the pieces.
  void substitute(const Node& node) { pieces_.apply(graph_.graph_being_made(), node); }

 private:
  /// A gradient, or one of the pieces that a large one is reduced in.
  struct Member {
    std::size_t gradient = 0, piece = 0;
  };
  struct Bucket {
    TensorRef flat;
    std::vector<Member> members;
    std::size_t arrived = 0;

    bool is_full() const { return arrived == members.size(); }
  };
  struct Place {
    std::size_t bucket = 0;
    std::int64_t offset = 0;
    TensorRef view;
    std::int64_t first = 0, count = 0;  // elements of the gradient
    bool is_whole = true;
  };

  // What of a gradient goes to a place.
  TensorRef part(std::int64_t kept, const Place& place) {
    if (place.is_whole) return ref(kept);
    return narrow(graph_, view(graph_, ref(kept), {-1}), 0, place.first, place.count);
  }

  void take(const Place& place, const Ready& ready) {
    if (rewrite_.gradient_as_bucket_view && ready.accumulates) {
      div_in_place(place.view);
    } else {
      const TensorRef gradient = part(ready.kept, place);
      const TensorRef factor = wrapped_number(graph_, DType::kFloat64);
      graph_.begin_plain("torch::distributed::reducer::mul_out", {place.view});
      graph_.leaf_op("aten::mul.out", {gradient, factor, place.view}, {place.view});
      graph_.end_op();
    }
    if (rewrite_.gradient_as_bucket_view) {
      const ExecutionGraph& made = graph_.graph_being_made();
      const Node& last = made.nodes.back();  // its output is the piece of the bucket
      pieces_.replace(tensor(ready.kept).id, made.tensors[made.outputs(last)[0].index]);
    }
  }

  // Elements per piece, as even as they come.
  std::vector<std::int64_t> piece_sizes(const Tensor& gradient) const {
    const std::int64_t limit = rewrite_.split_bytes.value_or(0);
    const std::int64_t pieces =
        limit > 0 && gradient.bytes() > limit
            ? std::min((gradient.bytes() + limit - 1) / limit, gradient.numel)
            : 1;
    std::vector<std::int64_t> sizes(pieces, gradient.numel / pieces);
    for (std::size_t i = 0; i < static_cast<std::size_t>(gradient.numel % pieces); ++i) ++sizes[i];
    return sizes;
  }

  // Types never share a bucket.
  std::vector<std::vector<Member>> buckets_of(const Step& step) {
    std::vector<BucketedGradient> gradients;
    std::vector<Member> members;
    for (std::size_t i = 0; i < step.ready.size(); ++i) {
      const Tensor& gradient = tensor(step.ready[i].kept);
      std::int64_t first = 0;
      const auto sizes = piece_sizes(gradient);
      for (const std::int64_t size : sizes) {
        gradients.push_back(
            {.bytes = static_cast<double>(gradient.bytes()) * static_cast<double>(size) /
                      static_cast<double>(std::max<std::int64_t>(gradient.numel, 1)),
             .group = static_cast<std::int32_t>(gradient.dtype)});
        members.push_back({.gradient = i, .piece = place_[i].size()});
        Place place;
        place.first = first;
        place.count = size;
        place.is_whole = sizes.size() == 1;
        place_[i].push_back(place);
        first += size;
      }
    }
    std::vector<std::vector<Member>> buckets;
    for (const auto& bucket :
         gradient_buckets(gradients, static_cast<double>(rewrite_.first_bucket_bytes),
                          static_cast<double>(rewrite_.bucket_cap_bytes))) {
      buckets.emplace_back();
      for (const auto member : bucket) {
        buckets.back().push_back(members[member]);
      }
    }
    return buckets;
  }

  const Tensor& tensor(std::int64_t index) const { return copy_.source().tensors[index]; }
  TensorRef ref(std::int64_t index) {
    return graph_.tensor_of_source(static_cast<std::uint32_t>(index));
  }
  TensorRef parameter(std::int64_t gradient) {
    const auto known = parameters_.find(tensor(gradient).id);
    return ref(known == parameters_.end() ? gradient : known->second);
  }

  void add_bucket(const Step& step, const std::vector<Member>& members) {
    std::int64_t elements = 0;
    for (const Member& member : members) elements += place_of(member).count;
    const Tensor& first = tensor(step.ready[members.front().gradient].kept);
    Bucket bucket{.flat = graph_.new_tensor(first.dtype, first.device, {elements}),
                  .members = members};
    std::int64_t offset = 0;
    for (const Member& member : members) {
      const Tensor& gradient = tensor(step.ready[member.gradient].kept);
      const auto sizes = copy_.source().shape(gradient);
      Place& place = place_of(member);
      const Shape shape = place.is_whole ? Shape(sizes.begin(), sizes.end()) : Shape{place.count};
      place.bucket = buckets_.size();
      place.offset = offset;
      place.view = graph_.new_view(bucket.flat, shape, contiguous_strides(shape), offset);
      offset += place.count;
    }
    buckets_.push_back(std::move(bucket));
  }
  Place& place_of(const Member& member) { return place_[member.gradient][member.piece]; }

  void div_in_place(TensorRef view) {
    const TensorRef number = wrapped_number(graph_);
    graph_.begin_op("aten::div_.Scalar", {view, rewrite_.world_size});
    graph_.leaf_op("aten::div_.Tensor", {view, number}, {view});
    graph_.end_op({view});
  }

  TensorRef flattened(const std::vector<TensorRef>& tensors) {
    std::vector<TensorRef> flat;
    graph_.begin_op("aten::flatten_dense_tensors", {tensors});
    for (TensorRef t : tensors) {
      flat.push_back(view(graph_, t, {-1}));
    }
    const TensorRef made = cat(graph_, flat, 0);
    graph_.end_op({made});
    return made;
  }

  void unflatten(TensorRef flat, const std::vector<TensorRef>& tensors) {
    std::vector<TensorRef> pieces;
    std::int64_t offset = 0;
    graph_.begin_op("aten::unflatten_dense_tensors", {flat, tensors});
    for (TensorRef t : tensors) {
      const std::int64_t count = graph_.numel(t);
      const TensorRef part = narrow(graph_, flat, 0, offset, count);
      pieces.push_back(view(graph_, part, graph_.shape(t)));
      offset += count;
    }
    graph_.end_op({pieces});
    for (std::size_t i = 0; i < tensors.size(); ++i) copy(graph_, tensors[i], pieces[i], true);
  }

  GraphCopy& copy_;
  GraphBuilder& graph_;
  const DataParallelRewrite& rewrite_;
  const std::map<std::int64_t, std::uint32_t>& parameters_;  // of gradients, by id
  Communicator ranks_;
  std::vector<Bucket> buckets_;
  std::size_t next_ = 0;                   // bucket to launch
  std::vector<std::vector<Place>> place_;  // of gradients' pieces, in the order of readiness
  TensorSubstitution pieces_;
};

// Whose gradients the optimizers take.
std::map<std::int64_t, std::uint32_t> parameters_by_gradient(const ExecutionGraph& graph) {
  std::map<std::int64_t, std::uint32_t> parameters;
  for (std::int32_t label : optimizer_steps(graph)) {
    const auto step = read_optimizer_step(graph, label);
    if (!step) continue;
    for (const ReadGroup& group : step->groups) {
      for (const ReadUpdate& update : group.updates) {
        const Tensor& gradient = graph.tensors[update.gradient];
        const std::int64_t weight = update.weight >= 0 ? update.weight : update.parameter;
        parameters[gradient.id] = static_cast<std::uint32_t>(weight);
      }
    }
  }
  return parameters;
}

class DataParallel {
 public:
  DataParallel(const ExecutionGraph& graph, const DataParallelRewrite& rewrite,
               std::vector<Step> steps)
      : source_(graph),
        rewrite_(rewrite),
        steps_(std::move(steps)),
        copy_(graph, dialect_of(graph)),
        parameters_(parameters_by_gradient(graph)),
        reducer_(copy_, rewrite, steps_.front(), parameters_),
        copied_(graph.nodes.size(), false) {
    for (std::size_t s = 0; s < steps_.size(); ++s) note(s);
  }

  Result<ExecutionGraph> write(std::vector<std::int32_t>* copies) {
    for (const Step& step : steps_) {
      if (!reducer_.fits(step)) {
        return fail(ErrorCode::kImpossible,
                    fmt::format("data-parallel: expected {} gradients in every step, found {}",
                                steps_.front().ready.size(), step.ready.size()));
      }
    }
    for (std::int32_t i = 0; i < node_count(); ++i) {
      if (copied_[i]) continue;
      if (const auto step = models_.find(i); step != models_.end()) open_model(*step->second);
      if (const auto gradient = gradients_.find(i); gradient != gradients_.end()) {
        copy_tree(i);
        copy_.close_to(i);
        reducer_.ready(gradient->second.second,
                       steps_[gradient->second.first].ready[gradient->second.second]);
      } else if (lasts_.contains(i)) {
        copy_tree(i);
      } else {
        copy(i);
        if (i == group_behind_) describe_group();
      }
      if (const auto step = lasts_.find(i); step != lasts_.end()) {
        copy_.close_beside(i);
        reducer_.finish(*step->second);
      }
    }
    if (copies) {
      for (std::int32_t i = 0; i < node_count(); ++i) copies->push_back(copy_.copied(i));
    }
    return copy_.finish();
  }

 private:
  std::int32_t node_count() const { return static_cast<std::int32_t>(source_.nodes.size()); }

  void note(std::size_t s) {
    const Step& step = steps_[s];
    for (std::size_t k = 0; k < step.ready.size(); ++k) gradients_[step.ready[k].node] = {s, k};
    lasts_[step.last_backward] = &step;
    if (step.begin >= 0) models_[step.begin] = &step;
    // The process group is made before everything else on the thread of the forward pass.
    for (std::int32_t i = 0; i < step.begin && group_behind_ < 0; ++i) {
      const Node& node = source_.node(i);
      const bool thread_node =
          node.is_structural && node.parent <= 0 && node.thread == source_.node(step.begin).thread;
      if (thread_node && i > 0) group_behind_ = i;
    }
  }

  void describe_group() {
    GraphBuilder& graph = copy_.builder();
    graph.begin_label("## process_group:init ##",
                      {fmt::format("[{{\"pg_name\": \"0\", \"pg_desc\": \"default_pg\", "
                                   "\"backend_config\": \"cuda:nccl\", \"ranks\": [], "
                                   "\"group_size\": {}, \"group_count\": 1}}]",
                                   rewrite_.world_size)
                           .c_str()});
    graph.end_op();
    graph.graph_being_made().process_groups.push_back({.name = "0",
                                                       .description = "default_pg",
                                                       .backend = "cuda:nccl",
                                                       .ranks = {},
                                                       .size = rewrite_.world_size});
  }

  // Writes the region's node and the broadcasts in it; ops of the model get it as parent.
  void open_model(const Step& step) {
    copy_.close_to(step.region);
    GraphBuilder& graph = copy_.builder();
    graph.begin_label("DistributedDataParallel.forward");
    model_ = graph.graph_being_made().nodes.back().id;
    region_ = step.region;
    model_end_ = step.end;
    if (!step.statistics.empty()) reducer_.broadcast_buffers(step);
    graph.end_op();
  }

  void copy(std::int32_t i) {
    copy_.copy(i);
    copied_[i] = true;
    ExecutionGraph& made = copy_.builder().graph_being_made();
    reducer_.substitute(made.node(copy_.copied(i)));
    if (source_.node(i).parent != region_ || i >= model_end_) return;
    made.node(copy_.copied(i)).parent_id = model_;
  }

  void copy_tree(std::int32_t i) {
    copy(i);
    for (std::int32_t child : source_.children(i)) copy_tree(child);
  }

  const ExecutionGraph& source_;
  const DataParallelRewrite& rewrite_;
  std::vector<Step> steps_;
  GraphCopy copy_;
  std::map<std::int64_t, std::uint32_t> parameters_;
  Reducer reducer_;
  std::vector<bool> copied_;
  std::map<std::int32_t, std::pair<std::size_t, std::size_t>> gradients_;  // node -> step, position
  std::map<std::int32_t, const Step*> lasts_, models_;
  std::int32_t group_behind_ = -1;
  std::int64_t model_ = 0;
  std::int32_t region_ = -2, model_end_ = 0;  // no node has the parent -2
};

Result<void> check(const ExecutionGraph& graph, const DataParallelRewrite& rewrite) {
  if (rewrite.world_size < 1) {
    return fail(
        ErrorCode::kImpossible,
        fmt::format("data-parallel: expected at least 1 GPU, found {}", rewrite.world_size));
  }
  if (rewrite.first_bucket_bytes < 1 || rewrite.bucket_cap_bytes < 1) {
    return fail(ErrorCode::kImpossible,
                fmt::format("data-parallel: expected buckets of at least 1 B, found {} and {}",
                            rewrite.first_bucket_bytes, rewrite.bucket_cap_bytes));
  }
  if (rewrite.split_bytes && *rewrite.split_bytes < 1) {
    return fail(ErrorCode::kImpossible,
                fmt::format("data-parallel: expected pieces of at least 1 B, found {}",
                            *rewrite.split_bytes));
  }
  if (rewrite.split_bytes && rewrite.gradient_as_bucket_view) {
    return fail(ErrorCode::kImpossible,
                "data-parallel: expected views of buckets or gradients in pieces, found both: "
                "views are not copied");
  }
  return check_graph(graph, "data-parallel", {.no_collectives = true});
}

}  // namespace

Result<ExecutionGraph> rewrite_data_parallel(const ExecutionGraph& graph,
                                             const DataParallelRewrite& rewrite,
                                             std::vector<std::int32_t>* copies) {
  if (auto good = check(graph, rewrite); !good) return Unexpected{good.error()};
  std::vector<Step> steps;
  const std::vector<bool> of_parameter = parameter_gradients(graph);
  for (const GraphIteration& iteration : iterations(graph)) {
    auto step = StepFinder(graph, of_parameter, iteration).find();
    if (!step) return Unexpected{step.error()};
    if (!step->ready.empty()) steps.push_back(std::move(*step));
  }
  if (steps.empty()) {
    return fail(ErrorCode::kImpossible,
                "data-parallel: expected a backward pass with AccumulateGrad, found none");
  }
  return DataParallel(graph, rewrite, std::move(steps)).write(copies);
}

}  // namespace perfmodel
