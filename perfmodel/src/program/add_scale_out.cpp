#include "add_scale_out.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>

#include "core/parameter_gradients.hpp"
#include "perfmodel/predictors/detail/collective_model.hpp"

namespace perfmodel {
namespace {

constexpr std::string_view kAccumulate = "torch::autograd::AccumulateGrad";
constexpr std::int64_t kFirstSequence = std::int64_t{1} << 40;  // beyond recorded numbers
constexpr double kLeastKernelUs = 2;
constexpr std::int32_t kOwnGroup = std::numeric_limits<std::int32_t>::max();  // of no record
constexpr std::int64_t kMostRanks = std::int64_t{1} << 24;

// A gradient of one step, in the order of readiness.
struct Gradient {
  std::int32_t item = -1;      // its AccumulateGrad
  std::int32_t producer = -1;  // item of the backward op before it
  std::int32_t forward = -1;   // item of the op that used the parameter
  double bytes = 0;
  DType dtype = DType::kFloat32;
};

class Scaler {
 public:
  Scaler(const ExecutionGraph& graph, const Gpu& gpu, const OverheadTable& table,
         const PredictOptions& options, bool reduces_gradients, HostProgram& program)
      : graph_(graph),
        gpu_(gpu),
        table_(table),
        models_(*options.models),
        reduces_gradients_(reduces_gradients),
        how_(*options.scale_out),
        topology_(how_.topology ? *how_.topology : topology_for(gpu)),
        program_(program) {}

  Result<ScaledOut> run() {
    if (how_.world < 1) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("expected at least 1 rank, found {}", how_.world));
    }
    if (how_.world > kMostRanks) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("expected at most {} ranks, found {}", kMostRanks, how_.world));
    }
    if (!(how_.interference >= 1 && how_.interference < std::numeric_limits<double>::infinity())) {
      return fail(
          ErrorCode::kImpossible,
          fmt::format("expected an interference of at least 1, found {}", how_.interference));
    }
    model_ = make_collective_model(topology_, {.interference = how_.interference});
    made_.strategy = how_.strategy;
    made_.world = how_.world;
    made_.nodes =
        static_cast<int>((how_.world + topology_.gpus_per_node - 1) / topology_.gpus_per_node);
    find_stream();
    if (reduces_gradients_) return reprice();
    if (how_.world == 1 || how_.strategy == ParallelStrategy::kDdp) return made_;
    const std::size_t items = program_.items.size();
    before_.resize(items);
    after_.resize(items);
    for (std::size_t step = 0; step < program_.steps.size(); ++step) {
      const auto gradients = find_gradients(static_cast<std::int32_t>(step));
      if (gradients.empty()) {
        return fail(ErrorCode::kImpossible,
                    fmt::format("expected gradients to reduce (ops \"{}\"), found none in {}",
                                kAccumulate, graph_.source));
      }
      for (const Gradient& gradient : gradients) made_.parameter_bytes += gradient.bytes;
      if (auto done = fsdp(gradients); !done) return Unexpected{done.error()};
    }
    made_.parameter_bytes /= static_cast<double>(program_.steps.size());
    made_.collectives /= program_.steps.size();
    splice();
    return made_;
  }

 private:
  // Collectives that were recorded stay where they are; the group has another size.
  Result<ScaledOut> reprice() {
    if (how_.strategy == ParallelStrategy::kFsdp) {
      return fail(
          ErrorCode::kImpossible,
          "expected a graph without collectives for strategy fsdp, found some in " + graph_.source);
    }
    for (Instruction& at : program_.instructions) {
      if (!at.collective) continue;
      ++made_.collectives;
      auto& kernel = program_.items[static_cast<std::size_t>(at.op)]
                         .kernels[static_cast<std::size_t>(at.kernel)];
      if (kernel.price.bound == Bound::kMeasured || at.comm_work < 0) continue;
      KernelWork& work = program_.comm_works[static_cast<std::size_t>(at.comm_work)];
      if (auto* shape = std::get_if<CollectiveShape>(&work.shape)) {
        shape->world_size = how_.world;
        shape->ranks.clear();
      }
      kernel.price = model_->price(work, gpu_);
      scale(kernel.price, kernel.given_scale);
      at.device_us = kernel.price.time.count();
    }
    made_.collectives /= program_.steps.size();
    made_.own_collectives = true;
    return made_;
  }

  void find_stream() {
    for (const Instruction& at : program_.instructions) stream_ = std::max(stream_, at.stream + 1);
  }

  // ---- gradients
  // ---------------------------------------------------------------------------------

  // Bytes of the parameter's gradient that an AccumulateGrad node takes.
  double gradient_bytes(std::int32_t node, DType& dtype) const {
    double bytes = 0;
    const Node& at = graph_.nodes[static_cast<std::size_t>(node)];
    if (of_parameter_[static_cast<std::size_t>(node)]) {
      for_each_tensor(graph_, graph_.inputs(at), [&](const Tensor& tensor) {
        if (bytes > 0 || !tensor.on_gpu()) return;
        bytes = static_cast<double>(tensor.bytes());
        dtype = tensor.dtype;
      });
    }
    for (std::int32_t child : graph_.children(at)) {
      if (bytes > 0) break;
      bytes = gradient_bytes(child, dtype);
    }
    return bytes;
  }

  std::int32_t forward_item(std::int32_t node, const std::vector<std::int32_t>& partners) const {
    const std::int32_t partner = partners[static_cast<std::size_t>(node)];
    if (partner >= 0) {
      std::int32_t top = partner;
      while (top >= 0 && !item_of_.contains(top)) {
        top = graph_.nodes[static_cast<std::size_t>(top)].parent;
      }
      if (top >= 0) return item_of_.at(top);
    }
    for (std::int32_t child : graph_.children(graph_.nodes[static_cast<std::size_t>(node)])) {
      if (const std::int32_t found = forward_item(child, partners); found >= 0) return found;
    }
    return -1;
  }

  std::vector<Gradient> find_gradients(std::int32_t step) {
    if (item_of_.empty()) {
      for (std::size_t i = 0; i < program_.items.size(); ++i) {
        if (!program_.items[i].is_label) {
          item_of_[program_.items[i].node] = static_cast<std::int32_t>(i);
        }
      }
      partners_ = forward_partners(graph_);
      of_parameter_ = parameter_gradients(graph_);
    }
    std::vector<Gradient> gradients;
    std::int32_t producer = -1;
    for (std::size_t i = 0; i < program_.items.size(); ++i) {
      const ProgramItem& item = program_.items[i];
      if (item.is_label || item.iteration != step) continue;
      const std::string_view name = graph_.name(graph_.nodes[static_cast<std::size_t>(item.node)]);
      if (!name.ends_with(kAccumulate)) {
        if (forward_item(item.node, partners_) >= 0) producer = static_cast<std::int32_t>(i);
        continue;
      }
      Gradient gradient{.item = static_cast<std::int32_t>(i), .producer = producer};
      gradient.bytes = gradient_bytes(item.node, gradient.dtype);
      if (gradient.bytes <= 0) continue;  // of a tensor on the host
      if (producer >= 0) {
        gradient.forward =
            forward_item(program_.items[static_cast<std::size_t>(producer)].node, partners_);
      }
      gradients.push_back(gradient);
    }
    return gradients;
  }

  // ---- instructions
  // ------------------------------------------------------------------------------

  std::int32_t add_item(std::int32_t like, std::string_view title) {
    const ProgramItem& anchor = program_.items[static_cast<std::size_t>(like)];
    ProgramItem item{.node = anchor.node,
                     .thread = anchor.thread,
                     .phase = anchor.phase,
                     .iteration = anchor.iteration,
                     .title = title};
    item.subject = anchor.subject;
    item.gap_level = item.op_level = KeyLevel::kName;
    program_.items.push_back(std::move(item));
    return static_cast<std::int32_t>(program_.items.size()) - 1;
  }

  Instruction host(std::int32_t item, Term term, double us) const {
    return {.kind = Instruction::Kind::kHost,
            .term = term,
            .op = item,
            .thread = program_.items[static_cast<std::size_t>(item)].thread,
            .host_us = us};
  }

  Instruction launch(std::int32_t item, PredictedKernel kernel, bool collective) {
    auto& owner = program_.items[static_cast<std::size_t>(item)];
    Instruction made{.kind = Instruction::Kind::kLaunch,
                     .term = collective ? Term::kCollective : Term::kKernel,
                     .op = item,
                     .thread = owner.thread,
                     .stream = kernel.stream,
                     .host_us = table_.call_us(launch_name()).us,
                     .device_us = kernel.price.time.count(),
                     .latency_us = collective ? table_.device.collective_latency_us
                                              : table_.device.launch_latency_us,
                     .collective = collective,
                     .kernel = static_cast<std::int32_t>(owner.kernels.size())};
    owner.kernels.push_back(std::move(kernel));
    return made;
  }

  std::string launch_name() const {
    return gpu_.vendor == "amd" ? "hipLaunchKernel" : "cudaLaunchKernel";
  }

  // A collective as PyTorch launches one: host work like that of the recorded ones.
  std::vector<Instruction> collective(std::int32_t like, std::string_view title, const char* kind,
                                      double in, double out, DType dtype) {
    KernelWork work{.family = KernelFamily::kCollective,
                    .dtype = dtype,
                    .bytes_read = Bytes{in},
                    .bytes_written = Bytes{out},
                    .shape = CollectiveShape{.kind = kind, .world_size = how_.world}};
    PredictedKernel kernel{.name = "nccl:" + std::string(kind),
                           .family = KernelFamily::kCollective,
                           .stream = stream_,
                           .price = model_->price(work, gpu_)};
    const std::int32_t item = add_item(like, title);
    const std::uint64_t name = hash_text("record_param_comms");
    std::vector<Instruction> made;
    made.push_back(gap(item, 1));
    made.push_back(host(item, Term::kT2, table_.t2.find({}, name).us));
    made.push_back(launch(item, std::move(kernel), true));
    made.back().sequence = next_sequence_++;
    made.back().group = kOwnGroup;
    made.back().comm_bytes = in;
    made.back().comm_work = static_cast<std::int32_t>(program_.comm_works.size());
    program_.comm_works.push_back(work);
    made.push_back(host(item, Term::kT3, table_.t3.find({}, name).us));
    ++made_.collectives;
    return made;
  }

  // The host between `count` ops and those in front of them.
  Instruction gap(std::int32_t item, double count) const {
    return host(item, Term::kT1, count * table_.t1.find({}, gap_class_key(GapClass::kSibling)).us);
  }

  // `count` ops of one name that launch nothing.
  void add_ops(std::int32_t like, std::string_view title, std::string_view op, std::size_t count,
               std::vector<Instruction>& place) {
    const auto times = static_cast<double>(count);
    const std::int32_t item = add_item(like, title);
    place.push_back(gap(item, times));
    place.push_back(host(item, Term::kTx, times * table_.tx.find({}, hash_text(op)).us));
  }

  // An op with one kernel that reads and writes the same number of bytes.
  void add_kernel(std::int32_t like, std::string_view title, std::string_view op,
                  KernelFamily family, double bytes, DType dtype, std::vector<Instruction>& place) {
    const KernelWork work{.family = family,
                          .dtype = dtype,
                          .bytes_read = Bytes{bytes},
                          .bytes_written = Bytes{bytes}};
    PredictedKernel kernel{
        .name = std::string(title), .family = family, .price = models_.price(work, gpu_)};
    const std::int32_t item = add_item(like, title);
    const std::uint64_t name = hash_text(op);
    place.push_back(gap(item, 1));
    place.push_back(host(item, Term::kT2, table_.t2.find({}, name).us));
    place.push_back(launch(item, std::move(kernel), false));
    place.push_back(host(item, Term::kT3, table_.t3.find({}, name).us));
  }

  Instruction wait_for(std::int32_t item, std::int64_t sequence) const {
    return {.kind = Instruction::Kind::kCommWait,
            .op = item,
            .thread = program_.items[static_cast<std::size_t>(item)].thread,
            .sequence = sequence,
            .group = kOwnGroup};
  }

  static void append(std::vector<Instruction>& to, std::vector<Instruction> from) {
    to.insert(to.end(), from.begin(), from.end());
  }

  // ---- FSDP
  // --------------------------------------------------------------------------------------

  struct Unit {
    double bytes = 0;
    std::size_t parameters = 0;
    DType dtype = DType::kFloat32;
    std::int32_t forward_begin = std::numeric_limits<std::int32_t>::max(), forward_end = -1;
    std::int32_t backward_begin = std::numeric_limits<std::int32_t>::max(), backward_end = -1;
    std::int64_t gather = -1;
  };

  // Parameters in forward order, cut where a unit is large enough.
  Result<std::vector<Unit>> find_units(std::vector<Gradient> gradients) const {
    for (const Gradient& gradient : gradients) {
      if (gradient.forward < 0) {
        return fail(ErrorCode::kImpossible,
                    "expected the forward op of every gradient for strategy fsdp, found none for "
                    "one (sequence numbers are missing) in " +
                        graph_.source);
      }
    }
    std::stable_sort(gradients.begin(), gradients.end(),
                     [](const Gradient& a, const Gradient& b) { return a.forward < b.forward; });
    std::vector<Unit> units;
    for (const Gradient& gradient : gradients) {
      if (units.empty() || units.back().bytes >= how_.fsdp_unit_bytes) units.emplace_back();
      Unit& unit = units.back();
      unit.bytes += gradient.bytes;
      ++unit.parameters;
      unit.dtype = gradient.dtype;
      unit.forward_begin = std::min(unit.forward_begin, gradient.forward);
      unit.forward_end = std::max(unit.forward_end, gradient.forward);
      unit.backward_begin = std::min(unit.backward_begin, gradient.producer);
      unit.backward_end = std::max(unit.backward_end, gradient.item);
    }
    return units;
  }

  Result<void> fsdp(const std::vector<Gradient>& gradients) {
    auto found = find_units(gradients);
    if (!found) return Unexpected{found.error()};
    std::vector<Unit>& units = *found;
    const auto count = static_cast<std::int32_t>(units.size());
    const std::int32_t in_flight = std::max(1, how_.fsdp_gathers_in_flight);
    for (std::int32_t u = 0; u < count; ++u) {
      Unit& unit = units[static_cast<std::size_t>(u)];
      auto& begin = before_[static_cast<std::size_t>(unit.forward_begin)];
      gather(unit, unit.forward_begin, u >= in_flight ? u - in_flight : -1, begin);
      if (u == 0) wait_for_updates(begin);
      begin.push_back(wait_for(unit.forward_begin, unit.gather));
      add_ops(unit.forward_begin, "fsdp: split", "aten::split_with_sizes", 1, begin);
      add_ops(unit.forward_begin, "fsdp: views", "aten::view", unit.parameters, begin);
      after_[static_cast<std::size_t>(unit.forward_end)].push_back(mark(unit.forward_end, u));
    }
    const std::int64_t before_sum = pre_divide_factor(how_.world);
    // Backward: the last unit still holds its parameters; each unit first lets the next one's
    // gather go.
    const std::int32_t backward_marks = count;
    for (std::int32_t u = count; u-- > 0;) {
      Unit& unit = units[static_cast<std::size_t>(u)];
      auto& begin = before_[static_cast<std::size_t>(unit.backward_begin)];
      if (u > 0) {
        const std::int32_t freed = u - 1 + in_flight;
        gather(units[static_cast<std::size_t>(u - 1)], unit.backward_begin,
               freed < count ? backward_marks + freed : -1, begin);
      }
      if (u + 1 < count) begin.push_back(wait_for(unit.backward_begin, unit.gather));
      auto& end = after_[static_cast<std::size_t>(unit.backward_end)];
      end.push_back(mark(unit.backward_end, backward_marks + u));
      // The gradient of the flat parameter is that of its split.
      add_kernel(unit.backward_end, "fsdp: gradients to flat", "aten::cat", KernelFamily::kConcat,
                 unit.bytes, unit.dtype, end);
      if (before_sum > 1) {
        add_kernel(unit.backward_end, "fsdp: pre-divide", "aten::div_", KernelFamily::kElementwise,
                   unit.bytes, unit.dtype, end);
      }
      add_ops(unit.backward_end, "fsdp: chunk", "aten::chunk", 1, end);
      reduced_.push_back(next_sequence_);
      append(end, collective(unit.backward_end, "fsdp: reduce_scatter", "reduce_scatter",
                             unit.bytes, unit.bytes / static_cast<double>(how_.world), unit.dtype));
    }
    auto& end = after_[static_cast<std::size_t>(gradients.back().item)];
    for (std::int64_t sequence : reduced_) end.push_back(wait_for(gradients.back().item, sequence));
    reduced_.clear();
    for (const Unit& unit : units) {
      if (how_.world / before_sum <= 1) break;
      add_kernel(gradients.back().item, "fsdp: post-divide", "aten::div_",
                 KernelFamily::kElementwise, unit.bytes / static_cast<double>(how_.world),
                 unit.dtype, end);
    }
    shard_optimizer(gradients.back().item);
    return {};
  }

  // PyTorch divides gradients by about the root of the world before the sum, by the rest behind it.
  static std::int64_t pre_divide_factor(std::int64_t world) {
    std::int64_t factor = 1;
    while (world % factor == 0 && world / factor > factor) factor *= 2;
    return factor;
  }

  // A gather waits for no computation but, if told, for that of the unit whose memory it takes.
  void gather(Unit& unit, std::int32_t like, std::int32_t after_mark,
              std::vector<Instruction>& place) {
    auto made = collective(like, "fsdp: all_gather", "all_gather",
                           unit.bytes / static_cast<double>(how_.world), unit.bytes, unit.dtype);
    for (Instruction& at : made) {
      if (!at.collective) continue;
      at.waits_for_caller = false;
      at.after_mark = after_mark;
      unit.gather = at.sequence;
    }
    append(place, std::move(made));
    add_ops(like, "fsdp: flat parameter", "aten::slice", 1, place);
    add_ops(like, "fsdp: flat parameter", "aten::view", 1, place);
  }

  // The first gather of a step, and so all behind it, takes what the last step's optimizer wrote
  // (FullyShardedDataParallel._root_pre_forward waits for the stream of computation).
  static void wait_for_updates(std::vector<Instruction>& place) {
    for (Instruction& at : place) at.waits_for_caller |= at.collective;
  }

  Instruction mark(std::int32_t item, std::int32_t number) const {
    return {.kind = Instruction::Kind::kMark,
            .op = item,
            .thread = program_.items[static_cast<std::size_t>(item)].thread,
            .after_mark = number};
  }

  // Behind the last gradient a rank updates its shard only.
  void shard_optimizer(std::int32_t last_gradient) {
    const std::int32_t iteration =
        program_.items[static_cast<std::size_t>(last_gradient)].iteration;
    for (Instruction& at : program_.instructions) {
      if (at.op <= last_gradient || at.kernel < 0 || at.collective) continue;
      auto& item = program_.items[static_cast<std::size_t>(at.op)];
      if (item.iteration != iteration) continue;
      const std::string& phase = program_.phases[static_cast<std::size_t>(item.phase)].label;
      if (phase.find("ptimizer") == std::string::npos) continue;
      Price& price = item.kernels[static_cast<std::size_t>(at.kernel)].price;
      if (price.bound == Bound::kMeasured) continue;
      const double share = 1 / static_cast<double>(how_.world);
      for (Microseconds* time : {&price.time, &price.low, &price.high}) {
        *time = std::min(*time, std::max(Microseconds{kLeastKernelUs}, *time * share));
      }
      at.device_us = price.time.count();
    }
  }

  // Puts the new instructions between the old ones.
  void splice() {
    std::vector<Instruction> whole;
    whole.reserve(program_.instructions.size() * 2);
    std::vector<std::size_t> last(before_.size(), 0);
    std::vector<bool> begun(before_.size(), false);
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      last[static_cast<std::size_t>(program_.instructions[i].op)] = i;
    }
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      const auto item = static_cast<std::size_t>(program_.instructions[i].op);
      if (!begun[item]) append(whole, before_[item]);
      begun[item] = true;
      whole.push_back(program_.instructions[i]);
      if (last[item] == i) append(whole, after_[item]);
    }
    program_.instructions = std::move(whole);
  }

  const ExecutionGraph& graph_;
  const Gpu& gpu_;
  const OverheadTable& table_;
  const KernelModels& models_;
  const bool reduces_gradients_;
  const ScaleOut& how_;
  const Topology topology_;
  std::unique_ptr<KernelModel> model_;
  HostProgram& program_;
  ScaledOut made_;
  std::int32_t stream_ = 1;
  std::int64_t next_sequence_ = kFirstSequence;
  std::vector<std::int64_t> reduced_;
  std::map<std::int32_t, std::int32_t> item_of_;  // node -> item
  std::vector<std::int32_t> partners_;
  std::vector<bool> of_parameter_;                        // nodes that accumulate a gradient
  std::vector<std::vector<Instruction>> before_, after_;  // per item
};

}  // namespace

std::string_view to_string(ParallelStrategy strategy) {
  return strategy == ParallelStrategy::kDdp ? "ddp" : "fsdp";
}

Result<ScaledOut> add_scale_out(const ExecutionGraph& graph, const Gpu& gpu,
                                const OverheadTable& table, const PredictOptions& options,
                                bool reduces_gradients, HostProgram& program) {
  return Scaler(graph, gpu, table, options, reduces_gradients, program).run();
}

}  // namespace perfmodel
