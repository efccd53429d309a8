#include "run_models.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "perfmodel/predictors/detail/board_power.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "rewrites/model_batch.hpp"
#include "rewrites/rewrite_options.hpp"

namespace perfmodel {
namespace {

Result<std::int64_t> changed_batch(std::int64_t batch, double factor) {
  const double samples = static_cast<double>(batch) * factor;
  if (samples >= 1 && samples == std::floor(samples)) return static_cast<std::int64_t>(samples);
  return decline(fmt::format("{} samples are no whole batch", samples));
}

void add_machine(const Gpu& gpu, const Topology& topology, RunModel& model) {
  const std::int64_t node = topology.gpus_per_node;
  model.nodes = (model.setting.world + node - 1) / node;
  model.clock_mhz = gpu.boost_clock_mhz;
  model.power_w = gpu.tdp_w;
  model.idle_w = idle_power_w(gpu);
  model.device_bytes = gpu.usable_memory().value;
  model.link_gb_per_s = topology.intra.gpu_bandwidth.value * 1e-9;
  model.network_gb_per_s = topology.nic ? topology.nic->bandwidth.value * 1e-9 : 0;
}

Result<Topology> topology_of(const Gpu& gpu, const std::string& name) {
  return name.empty() ? topology_for(gpu) : TopologyCatalog::builtin().find(name);
}

/// A layout, asked again under changes. Machines are kept: their layers are priced once.
class LayoutRun {
 public:
  LayoutRun(Predictor predictor, LayoutMachine machine, LayoutJob job, ParallelLayout layout)
      : predictor_(std::move(predictor)),
        machine_(std::move(machine)),
        job_(std::move(job)),
        layout_(layout) {}

  Result<RunOutlook> ask(const RunChange& change, const RunSetting& at) {
    LayoutJob job = job_;
    ParallelLayout layout = layout_;
    if (at.batch > 0) job.global_batch = at.batch;
    PERFMODEL_TRY(batch, changed_batch(job.global_batch, change.batch));
    job.global_batch = *batch;
    PERFMODEL_TRY_TO(place(at, layout));
    PERFMODEL_TRY_TO(take(change, job, layout));
    PERFMODEL_TRY(pricer, pricer_of(change));
    PERFMODEL_TRY(made, (*pricer)->predict(job, layout));
    PERFMODEL_TRY(products, product_share());
    const double slowed = *products / change.clock;
    return outlook(*made, slowed / (slowed + 1 - *products));
  }

 private:
  static Result<void> place(const RunSetting& at, ParallelLayout& layout) {
    const std::int64_t world = at.world > 0 ? at.world : layout.gpus();
    if (at.tp > 0) layout.tp = at.tp;
    if (at.pp > 0) layout.pp = at.pp;
    if (at.micro_batch > 0) layout.micro_batch = at.micro_batch;
    layout.dp = world;  // divided one by one: the product of what was given may be too large
    for (const std::int64_t part : {layout.tp, layout.pp, layout.cp}) {
      if (part < 1 || layout.dp % part != 0) {
        return decline(
            fmt::format("world: expected a multiple of tp x pp x cp ({} x {} x {}), found {}",
                        layout.tp, layout.pp, layout.cp, world));
      }
      layout.dp /= part;
    }
    return {};
  }

  static Result<void> take(const RunChange& change, LayoutJob& job, ParallelLayout& layout) {
    if (change.recompute) {
      if (layout.recompute == LayoutRecompute::kFull) return decline("so they are");
      layout.recompute = LayoutRecompute::kFull;
    }
    if (change.eager_attention) {
      if (job.attention == LayoutJob::Attention::kEager) return decline("so it is");
      job.attention = LayoutJob::Attention::kEager;
    }
    return {};
  }

  Result<const LayoutPricer*> pricer_of(RunChange change) {
    change.batch = 1;
    change.recompute = change.eager_attention = false;
    const auto known = pricers_.find(change);
    if (known != pricers_.end()) return &known->second;
    LayoutMachine machine = machine_;
    machine.host_scale *= change.host;
    PERFMODEL_TRY(made, LayoutPricer::make(predictor_, machine,
                                           {.kernels = change.kernels,
                                            .products = 1 / change.clock,
                                            .link_share = change.link,
                                            .network_share = change.network,
                                            .no_overlap = change.no_overlap}));
    return &pricers_.emplace(change, std::move(*made)).first->second;
  }

  /// Share of products and attention in the kernels of the question's own step: what it grows by
  /// when they alone take longer.
  Result<double> product_share() {
    if (product_share_) return *product_share_;
    constexpr double kLonger = 1.01;
    const auto compute = [&](double products) -> Result<double> {
      PERFMODEL_TRY(pricer, pricer_of({.clock = 1 / products}));
      return (*pricer)->predict(job_, layout_).map([](const LayoutPrediction& made) {
        return made.terms_ms[static_cast<std::size_t>(LayoutTerm::kCompute)];
      });
    };
    const auto as_is = compute(1), longer = compute(kLonger);
    if (!as_is || !longer) return Unexpected{(as_is ? longer : as_is).error()};
    product_share_ = std::clamp((*longer / *as_is - 1) / (kLonger - 1), 0.0, 1.0);
    return *product_share_;
  }

  static RunOutlook outlook(const LayoutPrediction& made, double product_share) {
    const auto us = [&](LayoutTerm term) {
      return made.terms_ms[static_cast<std::size_t>(term)] * 1e3;
    };
    const double step = made.step_ms * 1e3, compute = us(LayoutTerm::kCompute);
    return {.step_us = step,
            .low_us = made.low_ms * 1e3,
            .high_us = made.high_ms * 1e3,
            .busy_us = step - us(LayoutTerm::kHost),
            .kernels_us = compute + us(LayoutTerm::kOptimizer),
            .products_us = compute * product_share,
            .collectives_us = made.exposed_comm_share * step,
            .memory_bytes = made.reserved_bytes,
            .later_us = step};
  }

  Predictor predictor_;
  LayoutMachine machine_;
  LayoutJob job_;
  ParallelLayout layout_;
  std::map<RunChange, LayoutPricer> pricers_;
  std::optional<double> product_share_;
};

bool is_product(const PredictedKernel& kernel) {
  return kernel.family == KernelFamily::kGemm || kernel.family == KernelFamily::kConvolution ||
         kernel.family == KernelFamily::kAttention;
}

double product_us(const Prediction& made) {
  double sum = 0;
  for (const PredictedOp& op : made.ops) {
    for (const PredictedKernel& kernel : op.kernels) {
      if (is_product(kernel)) sum += kernel.price.time.count();
    }
  }
  return sum / static_cast<double>(std::max<std::size_t>(1, made.iterations.size()));
}

/// The graph of one rank, asked again under changes.
class GraphRun {
 public:
  GraphRun(Predictor predictor, std::string gpu, AskOptions asked, std::int64_t node)
      : predictor_(std::move(predictor)),
        gpu_(std::move(gpu)),
        asked_(std::move(asked)),
        node_(node) {}

  Result<std::optional<std::int64_t>> prepare(RecordedProgram program) {
    if (lacks_sizes(program.graph)) {
      return decline("expected a trace with shapes (record_shapes=True), found one without");
    }
    graph_ = program.graph;
    // Kernels are priced, not taken as recorded; so is the host.
    PERFMODEL_TRY(made, predictor_.prepare(std::move(program.graph)));
    prepared_.emplace(std::move(*made));
    return prepared_->batch();
  }

  Result<RunOutlook> ask(const RunChange& change, const RunSetting& at) {
    if (at.tp > 0 || at.pp > 0 || at.micro_batch > 0) {
      return decline("expected batch=B or world=N after @ of a graph, found a layout's");
    }
    AskOptions options = asked_;
    if (at.batch > 0) options.batch = at.batch;
    if (at.world > 0) options.world = at.world;
    if (options.world <= 1) {
      options.strategy.reset();
      options.delay_allreduce = false;
    }
    PERFMODEL_TRY_TO(take(change, options));
    PERFMODEL_TRY(graph, graph_with(change));
    PERFMODEL_TRY(products, product_share(**graph, options, change.recompute));
    // Products at a share of the clock.
    const double slowed = *products / change.clock, all = slowed + 1 - *products;
    options.device_scale *= change.kernels * all;
    PERFMODEL_TRY(made, predictor_.predict(**graph, gpu_, options));
    return outlook(*made, slowed / all);
  }

 private:
  Result<void> take(const RunChange& change, AskOptions& options) const {
    if (change.link != 1 && options.world > node_) {
      return decline("a graph on several nodes does not tell it from the network");
    }
    options.host_scale *= change.host;
    options.interference /= change.link * change.network;
    if (change.batch != 1) {
      const auto whole = options.batch > 0 ? options.batch : prepared_->batch().value_or(0);
      PERFMODEL_TRY(batch, changed_batch(whole, change.batch));
      options.batch = *batch;
    }
    if (change.eager_attention) return decline("the graph says which ops attention has");
    if (!change.no_overlap) return {};
    if (options.strategy != ParallelStrategy::kDdp || options.delay_allreduce) {
      return decline("expected gradients that DDP sums during the backward pass");
    }
    options.delay_allreduce = true;
    return {};
  }

  Result<const PreparedGraph*> graph_with(const RunChange& change) {
    if (!change.recompute) return &*prepared_;
    if (!recomputed_) {
      PERFMODEL_TRY(rewrite, rewrite_of("recompute", "full"));
      PERFMODEL_TRY(graph, apply_rewrites(graph_, std::span(&*rewrite, 1)));
      PERFMODEL_TRY(made, predictor_.prepare(std::move(*graph)));
      recomputed_.emplace(std::move(*made));
    }
    return &*recomputed_;
  }

  /// Share of products and attention in the kernels of a step of that size.
  Result<double> product_share(const PreparedGraph& graph, AskOptions options, bool recomputes) {
    const auto key = std::tuple(options.batch, options.world, recomputes);
    const auto known = product_shares_.find(key);
    if (known != product_shares_.end()) return known->second;
    options.keep_ops = true;
    PERFMODEL_TRY(made, predictor_.predict(graph, gpu_, options));
    const double share = std::min(1.0, product_us(*made) / made->compute_kernel_us);
    return product_shares_.emplace(key, share).first->second;
  }

  static RunOutlook outlook(const Prediction& made, double product_share) {
    return {.step_us = made.e2e_us,
            .low_us = made.e2e_low_us,
            .high_us = made.e2e_high_us,
            .busy_us = made.gpu_active_us,
            .kernels_us = made.compute_kernel_us,
            .products_us = product_share * made.compute_kernel_us,
            .collectives_us = made.communication.exposed_us,
            .memory_bytes = made.memory.peak_reserved_bytes,
            .later_us = made.e2e_us};
  }

  Predictor predictor_;
  std::string gpu_;
  AskOptions asked_;
  std::int64_t node_;
  ExecutionGraph graph_;
  std::optional<PreparedGraph> prepared_, recomputed_;
  std::map<std::tuple<std::int64_t, std::int64_t, bool>, double> product_shares_;
};

}  // namespace

Result<RunModel> layout_run_model(const Predictor& predictor, const LayoutMachine& machine,
                                  const LayoutJob& job, const ParallelLayout& layout) {
  PERFMODEL_TRY(gpu, predictor.gpu(machine.gpu));
  PERFMODEL_TRY(topology, topology_of(*gpu, machine.topology));
  const double sequences = static_cast<double>(job.global_batch);
  RunModel model{.setting = {.batch = job.global_batch,
                             .world = layout.gpus(),
                             .tp = layout.tp,
                             .pp = layout.pp,
                             .micro_batch = layout.micro_batch},
                 .samples = sequences,
                 .tokens = sequences * static_cast<double>(job.sequence),
                 .batch_of_job = true};
  add_machine(*gpu, *topology, model);
  const auto run = std::make_shared<LayoutRun>(predictor, machine, job, layout);
  model.ask = [run](const RunChange& change, const RunSetting& at) { return run->ask(change, at); };
  return remembering(std::move(model));
}

Result<RunModel> graph_run_model(const Predictor& predictor, RecordedProgram program,
                                 std::string_view gpu_name, const AskOptions& asked) {
  PERFMODEL_TRY(gpu, predictor.gpu(gpu_name));
  PERFMODEL_TRY(topology, topology_of(*gpu, asked.topology));
  const auto run =
      std::make_shared<GraphRun>(predictor, std::string(gpu_name), asked, topology->gpus_per_node);
  if (auto built = model_with_batch(program.graph, asked.batch)) {
    if (!*built) return Unexpected{built->error()};
    program.graph = std::move(**built);
  }
  PERFMODEL_TRY(batch, run->prepare(std::move(program)));
  constexpr double kNineOfTen = 3.29;  // standard deviations
  RunModel model{.setting = {.batch = asked.batch > 0 ? asked.batch : batch->value_or(0),
                             .world = std::max<std::int64_t>(1, asked.world)},
                 .range_deviations = kNineOfTen};
  model.samples =
      static_cast<double>(model.setting.batch) * static_cast<double>(model.setting.world);
  model.tokens = model.samples * static_cast<double>(asked.sequence);
  add_machine(*gpu, *topology, model);
  model.ask = [run](const RunChange& change, const RunSetting& at) { return run->ask(change, at); };
  return remembering(std::move(model));
}

RunModel remembering(RunModel model) {
  using Answers = std::map<std::pair<RunChange, RunSetting>, Result<RunOutlook>>;
  const auto known = std::make_shared<Answers>();
  model.ask = [known, ask = std::move(model.ask)](const RunChange& change, const RunSetting& at) {
    const auto found = known->find({change, at});
    if (found != known->end()) return found->second;
    return known->emplace(std::pair(change, at), ask(change, at)).first->second;
  };
  return model;
}

}  // namespace perfmodel
