#include "transformer_step.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "layout/durations.hpp"
#include "layout/bucket_timeline.hpp"
#include "decoder_kernels.hpp"
#include "perfmodel/detail/schedule.hpp"

namespace perfmodel::parallel {
namespace {

/// Host lane and stream lane.
class IssueQueue {
 public:
  explicit IssueQueue(double launch_latency_us) : latency_us_(launch_latency_us) {}

  void add(const OpList& list) {
    for (const IssuedOp& op : list) {
      const auto call = graph_.add_task(kHost, op.host_us);
      if (!op.launches) continue;
      graph_.add_edge(call, graph_.add_task(kStream, op.device_us), latency_us_);
    }
  }
  /// Marks the present end of the queue.
  std::size_t mark() const { return graph_.size(); }

  Result<Schedule> run() const { return run_schedule(graph_); }

 private:
  enum Lane : std::int32_t { kHost, kStream };
  TaskGraph graph_;
  double latency_us_;
};

/// Latest end among the first `count` tasks.
double end_of(const Schedule& schedule, std::size_t count) {
  return *std::max_element(schedule.end_us.begin(),
                           schedule.end_us.begin() + static_cast<std::ptrdiff_t>(count));
}

/// From an idle host and stream to the end of the last kernel.
Result<double> alone_us(const OpList& list, double launch_latency_us) {
  if (list.empty()) return 0.0;
  IssueQueue queue(launch_latency_us);
  queue.add(list);
  const auto schedule = queue.run();
  if (!schedule) return Unexpected(schedule.error());
  return schedule->makespan_us();
}

Unexpected expected_positive(const std::string& what, std::int64_t value) {
  return fail(ErrorCode::kImpossible, "expected " + what + " >= 1, found " + std::to_string(value));
}

Unexpected expected_multiple(const std::string& what, std::int64_t value, const std::string& of,
                             std::int64_t divisor) {
  return fail(ErrorCode::kImpossible, "expected " + what + " to be a multiple of " + of + " = " +
                                          std::to_string(divisor) + ", found " +
                                          std::to_string(value));
}

Result<void> check(const DecoderShape& shape, const StepCosts& costs) {
  const std::pair<const char*, std::int64_t> sizes[] = {{"hidden", shape.hidden},
                                                        {"heads", shape.heads},
                                                        {"layers", shape.layers},
                                                        {"seq", shape.seq},
                                                        {"vocab", shape.vocab}};
  for (const auto& [name, value] : sizes) {
    if (value < 1) return expected_positive(name, value);
  }
  if (shape.ffn_hidden < 0) return expected_positive("ffn_hidden", shape.ffn_hidden);
  if (shape.hidden % shape.heads != 0) {
    return expected_multiple("hidden", shape.hidden, "heads", shape.heads);
  }
  if (!costs.gpu) return fail(ErrorCode::kImpossible, "expected a GPU, found none");
  if (!costs.models) return fail(ErrorCode::kImpossible, "expected kernel models, found none");
  if (!costs.collective_us) {
    return fail(ErrorCode::kImpossible, "expected a cost of collectives, found none");
  }
  if (shape.flash_attention && !(costs.flash_attention_share > 0)) {
    return fail(ErrorCode::kImpossible, "expected flash_attention_share > 0, found " +
                                            std::to_string(costs.flash_attention_share));
  }
  const HostCost& host = costs.host;
  const std::pair<const char*, double> times[] = {
      {"forward_op_us", host.forward_op_us},
      {"backward_op_us", host.backward_op_us},
      {"collective_us", host.collective_us},
      {"recompute_us", host.recompute_us},
      {"microbatch_us", host.microbatch_us},
      {"launch_latency_us", host.launch_latency_us},
      {"kernel_factor", costs.kernel_factor},
      {"optimizer_bytes_per_param", costs.optimizer_bytes_per_param}};
  for (const auto& [name, value] : times) {
    if (!is_duration(value)) return not_a_duration(name, value);
  }
  return {};
}

Result<void> check(const DecoderShape& shape, const MegatronPlan& plan) {
  const std::pair<const char*, std::int64_t> sizes[] = {{"tp", plan.tp},
                                                        {"dp", plan.dp},
                                                        {"pp", plan.pp},
                                                        {"virtual_stages", plan.virtual_stages},
                                                        {"micro_batch", plan.micro_batch},
                                                        {"global_batch", plan.global_batch},
                                                        {"gpus_per_node", plan.gpus_per_node}};
  for (const auto& [name, value] : sizes) {
    if (value < 1) return expected_positive(name, value);
  }
  if (plan.sequence_parallel && shape.seq % plan.tp != 0) {
    return expected_multiple("seq", shape.seq, "tp", plan.tp);
  }
  if (shape.heads % plan.tp != 0) return expected_multiple("heads", shape.heads, "tp", plan.tp);
  const std::int64_t chunks = plan.pp * plan.virtual_stages;
  if (shape.layers % chunks != 0) {
    return expected_multiple("layers", shape.layers, "pp virtual_stages", chunks);
  }
  const std::int64_t together = plan.dp * plan.micro_batch;
  if (plan.global_batch % together != 0) {
    return expected_multiple("global_batch", plan.global_batch, "dp micro_batch", together);
  }
  if (plan.gpipe && plan.virtual_stages > 1) {
    return fail(ErrorCode::kImpossible, "expected one virtual stage with GPipe, found " +
                                            std::to_string(plan.virtual_stages));
  }
  return {};
}

std::int64_t nodes_of(std::int64_t ranks, std::int64_t gpus_per_node) {
  return (ranks + gpus_per_node - 1) / gpus_per_node;
}

/// The same costs; the first collective whose cost is no duration is kept in `problem`, which must
/// outlive them.
StepCosts watched(const StepCosts& costs, std::optional<Error>& problem) {
  StepCosts result = costs;
  result.collective_us = [price = costs.collective_us, &problem](const CollectiveCall& call) {
    const double us = price(call);
    if (!is_duration(us) && !problem) {
      problem =
          not_a_duration("cost of " + std::string(call.kind) + " of " + std::to_string(call.bytes) +
                             " bytes on " + std::to_string(call.ranks) + " ranks",
                         us)
              .value();
    }
    return us;
  };
  return result;
}

/// Kernels are priced by the caller's models: what is no number came from there.
Result<StepTime> checked(const StepTime& time, const std::optional<Error>& problem) {
  if (problem) return Unexpected(*problem);
  if (!is_duration(time.step_us)) return not_a_duration("step time", time.step_us);
  return time;
}

/// One Megatron step in the making.
class MegatronStep {
 public:
  MegatronStep(const DecoderShape& shape, const MegatronPlan& plan, const StepCosts& costs)
      : shape_(padded(shape, plan.tp)),
        plan_(plan),
        costs_(watched(costs, problem_)),
        kernels_(shape_, costs_, plan.micro_batch, plan.tp, plan.gpus_per_node,
                 plan.sequence_parallel),
        microbatches_(plan.global_batch / (plan.dp * plan.micro_batch)),
        chunks_(plan.pp * plan.virtual_stages),
        layers_per_chunk_(shape.layers / chunks_) {
    layer_forward_ = kernels_.layer_forward();
    layer_backward_ = kernels_.layer_backward(plan.recompute, microbatches_ > 1);
  }

  Result<StepTime> run() {
    auto ends = plan_.pp == 1 ? one_stage() : pipeline();
    if (!ends) return Unexpected(ends.error());
    double reduced = 0, last_backward = 0;
    for (std::int64_t stage = 0; stage < plan_.pp; ++stage) {
      const double end = (*ends)[static_cast<std::size_t>(stage)];
      const auto exposed = gradient_reduction_us(stage);
      if (!exposed) return Unexpected(exposed.error());
      last_backward = std::max(last_backward, end);
      reduced = std::max(reduced, end + *exposed);
      time_.params_per_rank = std::max(time_.params_per_rank, params(stage));
    }
    const double tied = tied_embedding_us();
    time_.exposed_comm_us = reduced - last_backward + tied;
    time_.optimizer_us = kernels_.optimizer_us(time_.params_per_rank);
    time_.step_us = reduced + tied + time_.optimizer_us;
    return checked(time_, problem_);
  }

 private:
  static DecoderShape padded(DecoderShape shape, std::int64_t tp) {
    const std::int64_t multiple = 128 * tp;
    shape.vocab = (shape.vocab + multiple - 1) / multiple * multiple;
    return shape;
  }

  double params(std::int64_t stage) const {
    const double layers = static_cast<double>(shape_.layers / plan_.pp);
    const bool embeds = stage == 0 || stage == plan_.pp - 1;
    return layers * kernels_.layer_params() + (embeds ? kernels_.embedding_params() : 0);
  }

  /// Ops of one microbatch on model chunk `place` (0 .. chunks_ - 1, in model order).
  OpList forward_ops(std::int64_t place) const {
    OpList list;
    if (place == 0) list = kernels_.embedding_forward();
    if (place == chunks_ - 1) {
      list.push_back({.host_us = costs_.host.microbatch_us, .launches = false});
    }
    for (std::int64_t i = 0; i < layers_per_chunk_; ++i) append(list, layer_forward_);
    if (place == chunks_ - 1) append(list, kernels_.head_forward());
    return list;
  }
  OpList backward_ops(std::int64_t place) const {
    OpList list;
    if (place == chunks_ - 1) list = kernels_.head_backward();
    for (std::int64_t i = 0; i < layers_per_chunk_; ++i) append(list, layer_backward_);
    if (place == 0) append(list, kernels_.embedding_backward());
    return list;
  }

  void count(const OpList& forward, const OpList& backward) {
    const auto m = static_cast<double>(microbatches_);
    kernel_us_now_ += m * (kernel_us(forward) + kernel_us(backward));
    tensor_comm_us_now_ += m * (collective_us(forward) + collective_us(backward));
    host_us_now_ += m * (host_us(forward) + host_us(backward));
  }
  void close_stage() {
    time_.kernel_us = std::max(time_.kernel_us, kernel_us_now_);
    time_.tensor_comm_us = std::max(time_.tensor_comm_us, tensor_comm_us_now_);
    time_.host_us = std::max(time_.host_us, host_us_now_);
    kernel_us_now_ = tensor_comm_us_now_ = host_us_now_ = 0;
  }

  /// The host runs ahead of the stream over microbatch borders.
  Result<std::vector<double>> one_stage() {
    OpList forward, backward;
    for (std::int64_t place = 0; place < chunks_; ++place) append(forward, forward_ops(place));
    for (std::int64_t place = chunks_; place-- > 0;) append(backward, backward_ops(place));
    count(forward, backward);
    close_stage();
    IssueQueue queue(costs_.host.launch_latency_us);
    const auto laid_out = std::min<std::int64_t>(microbatches_, 3);
    std::vector<std::size_t> marks;
    std::size_t forward_mark = 0;
    for (std::int64_t i = 0; i < laid_out; ++i) {
      queue.add(forward);
      if (i == 0) forward_mark = queue.mark();
      queue.add(backward);
      marks.push_back(queue.mark());
    }
    const auto schedule = queue.run();
    if (!schedule) return Unexpected(schedule.error());
    time_.forward_us = end_of(*schedule, forward_mark);
    time_.backward_us = end_of(*schedule, marks[0]) - time_.forward_us;
    last_backward_us_ = time_.backward_us;
    double end = end_of(*schedule, marks.back());
    if (laid_out > 1) {
      const double period = end - end_of(*schedule, marks[marks.size() - 2]);
      end += static_cast<double>(microbatches_ - laid_out) * period;
    }
    return std::vector<double>{end};
  }

  Result<std::vector<double>> pipeline() {
    PipelineWork work{.schedule = plan_.virtual_stages > 1 ? PipelineSchedule::kInterleaved
                                  : plan_.gpipe            ? PipelineSchedule::kGpipe
                                                           : PipelineSchedule::k1F1B,
                      .microbatches = microbatches_};
    const IssuedOp send{.host_us = costs_.host.collective_us, .launches = false};
    for (std::int64_t stage = 0; stage < plan_.pp; ++stage) {
      auto& forward_row = work.forward_us.emplace_back();
      auto& backward_row = work.backward_us.emplace_back();
      for (std::int64_t chunk = 0; chunk < plan_.virtual_stages; ++chunk) {
        const std::int64_t place = chunk * plan_.pp + stage;
        OpList forward = forward_ops(place), backward = backward_ops(place);
        forward.push_back(send);
        backward.push_back(send);
        count(forward, backward);
        const auto f = alone_us(forward, costs_.host.launch_latency_us);
        const auto b = alone_us(backward, costs_.host.launch_latency_us);
        if (!f) return Unexpected(f.error());
        if (!b) return Unexpected(b.error());
        forward_row.push_back(*f);
        backward_row.push_back(*b);
        time_.forward_us = std::max(time_.forward_us, *f);
        time_.backward_us = std::max(time_.backward_us, *b);
      }
      close_stage();
    }
    last_backward_us_ = time_.backward_us;
    work.hop_delay_us = hop_us();
    const auto timeline = pipeline_timeline(work);
    if (!timeline) return Unexpected(timeline.error());
    time_.bubble_share = timeline->bubble_share;
    return timeline->end_of_last_backward_us;
  }

  /// An activation from one stage to the next. With `split_hops` each tensor-parallel rank sends
  /// its part, and the receiving ranks gather the whole inside their node; with `sequence_parallel`
  /// they hold no more than a part anyway.
  double hop_us() const {
    const bool split = plan_.split_hops && plan_.tp > 1 && !plan_.sequence_parallel;
    const double whole = kernels_.activation_bytes();
    const double sent = costs_.collective_us(
        {.kind = "send",
         .bytes = split ? whole / static_cast<double>(plan_.tp) : kernels_.held_bytes(),
         .ranks = 2,
         .nodes = plan_.tp * plan_.dp * plan_.pp > plan_.gpus_per_node ? 2 : 1,
         .groups_per_node = std::min(plan_.tp * plan_.dp, plan_.gpus_per_node)});
    if (!split) return sent;
    return sent + costs_.collective_us({.kind = "all_gather",
                                        .bytes = whole,
                                        .ranks = plan_.tp,
                                        .nodes = nodes_of(plan_.tp, plan_.gpus_per_node)});
  }

  double all_reduce_us(double bytes) const {
    return costs_.collective_us(
        {.kind = "all_reduce",
         .bytes = bytes,
         .ranks = plan_.dp,
         .nodes = std::min(plan_.dp, nodes_of(plan_.tp * plan_.dp, plan_.gpus_per_node)),
         .groups_per_node = std::min(plan_.tp, plan_.gpus_per_node)});
  }

  /// What the data-parallel all-reduce of a stage adds after its last backward.
  Result<double> gradient_reduction_us(std::int64_t stage) const {
    if (plan_.dp == 1) return 0.0;
    if (!plan_.overlap_gradients) return all_reduce_us(params(stage) * kernels_.item_bytes());
    std::vector<Gradient> gradients;  // of layers in model order, ready in equal steps
    const std::int64_t layers = shape_.layers / plan_.pp;
    const double step = last_backward_us_ / static_cast<double>(layers);
    for (std::int64_t i = 0; i < layers; ++i) {
      const double ready = static_cast<double>(layers - i) * step;
      for (int tensor = 0; tensor < 12; ++tensor) {
        gradients.push_back(
            {.bytes = kernels_.layer_params() / 12 * kernels_.item_bytes(), .ready_us = ready});
      }
    }
    if (stage == 0 || stage == plan_.pp - 1) {
      gradients.push_back({.bytes = kernels_.embedding_params() * kernels_.item_bytes(),
                           .ready_us = last_backward_us_});
    }
    const auto timeline = ddp_timeline(
        gradients,
        {.first_bucket_bytes = plan_.bucket_bytes, .bucket_cap_bytes = plan_.bucket_bytes},
        [&](double bytes) { return all_reduce_us(bytes); });
    if (!timeline) return Unexpected(timeline.error());
    return timeline->exposed_comm_us;
  }

  /// First and last stage add up the gradient of the embedding that they share.
  double tied_embedding_us() const {
    if (plan_.pp == 1) return 0;
    return costs_.collective_us(
        {.kind = "all_reduce",
         .bytes = kernels_.token_params() * kernels_.item_bytes(),
         .ranks = 2,
         .nodes = plan_.tp * plan_.dp * plan_.pp > plan_.gpus_per_node ? 2 : 1,
         .groups_per_node = std::min(plan_.tp * plan_.dp, plan_.gpus_per_node)});
  }

  const DecoderShape shape_;
  const MegatronPlan& plan_;
  std::optional<Error> problem_;
  const StepCosts costs_;
  DecoderKernels kernels_;
  std::int64_t microbatches_, chunks_, layers_per_chunk_;
  OpList layer_forward_, layer_backward_;
  StepTime time_;
  double last_backward_us_ = 0, kernel_us_now_ = 0, tensor_comm_us_now_ = 0, host_us_now_ = 0;
};

double longer(const OpList& list) { return std::max(kernel_us(list), host_us(list)); }

}  // namespace

double decoder_parameters(const DecoderShape& shape) {
  const auto h = static_cast<double>(shape.hidden), layers = static_cast<double>(shape.layers);
  const double ffn = shape.ffn_hidden > 0 ? static_cast<double>(shape.ffn_hidden) : 4 * h;
  return layers * (4 * h * h + 2 * h * ffn + 9 * h + ffn) +
         static_cast<double>(shape.vocab + shape.seq) * h + 2 * h;
}

Result<StepTime> megatron_step(const DecoderShape& shape, const MegatronPlan& plan,
                               const StepCosts& costs) {
  if (auto ok = check(shape, costs); !ok) return Unexpected(ok.error());
  if (auto ok = check(shape, plan); !ok) return Unexpected(ok.error());
  return MegatronStep(shape, plan, costs).run();
}

Result<StepTime> fsdp_step(const DecoderShape& shape, const FsdpPlan& plan,
                           const StepCosts& given) {
  if (auto ok = check(shape, given); !ok) return Unexpected(ok.error());
  const std::pair<const char*, std::int64_t> sizes[] = {{"gpus", plan.gpus},
                                                        {"gpus_per_node", plan.gpus_per_node},
                                                        {"micro_batch", plan.micro_batch},
                                                        {"microbatches", plan.microbatches}};
  for (const auto& [name, value] : sizes) {
    if (value < 1) return expected_positive(name, value);
  }
  std::optional<Error> problem;
  const StepCosts costs = watched(given, problem);
  const DecoderKernels kernels(shape, costs, plan.micro_batch, 1, plan.gpus_per_node);
  const auto traffic_us = [&](std::string_view kind, double params) {
    return costs.collective_us({.kind = kind,
                                .bytes = params * kernels.item_bytes(),
                                .ranks = plan.gpus,
                                .nodes = nodes_of(plan.gpus, plan.gpus_per_node)});
  };
  const auto unit = [&](double params, const OpList& forward, const OpList& backward) {
    const bool alone = plan.gpus == 1;
    return FsdpUnit{.all_gather_us = alone ? 0 : traffic_us("all_gather", params),
                    .reduce_scatter_us = alone ? 0 : traffic_us("reduce_scatter", params),
                    .forward_us = longer(forward),
                    .backward_us = longer(backward)};
  };
  const Recompute recompute = plan.activation_checkpointing ? Recompute::kFull : Recompute::kNone;
  const OpList forward = kernels.layer_forward();
  const OpList backward = kernels.layer_backward(recompute, false);
  OpList last_forward = forward, last_backward = kernels.head_backward();
  append(last_forward, kernels.head_forward());
  append(last_backward, backward);

  std::vector<FsdpUnit> units = {
      unit(kernels.embedding_params(), kernels.embedding_forward(), kernels.embedding_backward())};
  units[0].keeps_params = true;
  units.resize(static_cast<std::size_t>(shape.layers),
               unit(kernels.layer_params(), forward, backward));
  units.push_back(unit(kernels.layer_params(), last_forward, last_backward));
  const auto timeline = fsdp_timeline(units, plan.fsdp);
  if (!timeline) return Unexpected(timeline.error());

  const auto m = static_cast<double>(plan.microbatches);
  StepTime time;
  time.params_per_rank = decoder_parameters(shape);
  time.optimizer_us = kernels.optimizer_us(time.params_per_rank / static_cast<double>(plan.gpus));
  time.forward_us = timeline->forward_end_us;
  time.backward_us = timeline->last_reduce_scatter_end_us - timeline->forward_end_us;
  time.exposed_comm_us = m * timeline->exposed_total_us;
  const OpList lists[] = {kernels.embedding_forward(), kernels.embedding_backward(),
                          kernels.head_forward(), kernels.head_backward()};
  for (const OpList& list : lists) {
    time.kernel_us += m * kernel_us(list);
    time.host_us += m * host_us(list);
  }
  const double layers = static_cast<double>(shape.layers);
  time.kernel_us += m * layers * (kernel_us(forward) + kernel_us(backward));
  time.host_us += m * (layers * (host_us(forward) + host_us(backward)) + costs.host.microbatch_us);
  time.step_us =
      std::max(m * timeline->last_reduce_scatter_end_us, time.host_us) + time.optimizer_us;
  return checked(time, problem);
}

}  // namespace perfmodel::parallel
