#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "attention_kernel.hpp"
#include "base/stop_point.hpp"
#include "framework.hpp"
#include "host_offload.hpp"
#include "layer_kinds.hpp"
#include "layout_checks.hpp"
#include "layout_request.hpp"
#include "layout_traces.hpp"
#include "layout_work.hpp"
#include "machine_trouble.hpp"
#include "packed_lengths.hpp"
#include "parallel_traffic.hpp"
#include "perfmodel/layout.hpp"
#include "recomputed_layer.hpp"
#include "searched_stages.hpp"
#include "shard_collectives.hpp"
#include "shard_costs.hpp"
#include "step_bytes.hpp"
#include "step_calibration.hpp"
#include "step_time.hpp"

namespace perfmodel {
namespace {

/// The type of products, and the rates without which a GPU has no units for it; none: any GPU.
struct Products {
  LayoutJob::Precision precision;
  DType type;
  std::optional<double> Gpu::Peaks::*vector = nullptr, Gpu::Peaks::*matrix = nullptr;

  bool run_on(const Gpu& gpu) const {
    return !vector || gpu.peak_tflop_per_s.*vector || gpu.peak_tflop_per_s.*matrix;
  }
};

constexpr Products kProducts[] = {
    {LayoutJob::Precision::kBf16, DType::kBFloat16, &Gpu::Peaks::bf16, &Gpu::Peaks::bf16_matrix},
    {LayoutJob::Precision::kFp16, DType::kFloat16, &Gpu::Peaks::fp16, &Gpu::Peaks::fp16_matrix},
    {LayoutJob::Precision::kFp8, DType::kFloat8, &Gpu::Peaks::fp8_matrix, &Gpu::Peaks::fp8_matrix},
    {LayoutJob::Precision::kFp32, DType::kFloat32},
    {LayoutJob::Precision::kFp4, DType::kFloat4, &Gpu::Peaks::fp4_matrix, &Gpu::Peaks::fp4_matrix}};

const Products& products_of(LayoutJob::Precision precision) {
  return *std::ranges::find(kProducts, precision, &Products::precision);
}

double dense_peak(const Gpu& gpu, LayoutJob::Precision precision) {
  const DType dtype = products_of(precision).type;
  return gpu.peak(dtype, gemm_uses_matrix_units(dtype, gpu)).value;
}

/// FLOP computed again over the model's: a third of the layers' with full recomputation, half of
/// their products' by op, of eager attention's with selective.
double recomputed_share(const LayoutJob& job, const ParallelLayout& layout) {
  const LayoutRecompute& recompute = layout.recompute;
  if (recompute == LayoutRecompute::kNone) return 0;
  const DecoderModel& model = job.model;
  const double attention = attention_flop_per_token(model, job.sequence) / 3;
  const double all = model_flop_per_token(model, job.sequence);
  if (recompute == LayoutRecompute::kSelective) {
    return job.attention == LayoutJob::Attention::kEager ? attention / all : 0;
  }
  const double output = 6 * static_cast<double>(model.vocabulary * model.hidden);
  if (recompute == LayoutRecompute::kOp) return (all - output - 3 * attention) / 6 / all;
  if (recompute.what == LayoutRecompute::kModules) {
    const bool attends = (recompute.modules & LayoutRecompute::kCoreAttention) != 0;
    double products = 0;  // recomputed in a layer, on average
    for (const LayerKind& kind : layer_kinds(model)) {
      products += static_cast<double>(kind.layers) / static_cast<double>(model.layers) *
                  recomputed_products(recompute, model, kind);
    }
    return (products * (all - output - 3 * attention) / 3 + (attends ? attention : 0)) / all;
  }
  const double layers = static_cast<double>(model.layers);
  return recomputed_layers(recompute, model.layers, layout.pp * layout.vp) / layers *
         (all - output) / 3 / all;
}

// A kilobyte each: a server may be asked for ever.
constexpr std::size_t kMostShards = 1 << 16;

// A wider type would be priced in its place.
Result<void> check_precision(const Gpu& gpu, LayoutJob::Precision precision) {
  if (products_of(precision).run_on(gpu)) return {};
  std::vector<std::string_view> known;
  for (const Products& other : kProducts) {
    if (other.run_on(gpu)) known.push_back(to_string(other.precision));
  }
  return decline(fmt::format("precision: expected a type that {} has units for ({}), found {}",
                             gpu.name, fmt::join(known, ", "), to_string(precision)));
}

double device_bytes(const Gpu& gpu, const Framework& framework) {
  return gpu.usable_memory().value - static_cast<double>(gpu.architecture.context_bytes) -
         framework.outside_bytes;
}

LayoutPrediction prediction_of(const StepQuestion& question, const StepTime& time,
                               const StepBytes& bytes) {
  const Gpu& gpu = *question.gpu;
  const LayoutJob& job = *question.job;
  const ParallelLayout& layout = *question.layout;
  LayoutPrediction made;
  made.step_ms = time.step_us * 1e-3;
  made.low_ms = time.low_us * 1e-3;
  made.high_ms = time.high_us * 1e-3;
  std::size_t largest = 0;
  for (std::size_t i = 0; i < kLayoutTerms; ++i) {
    made.terms_ms[i] = time.terms_us[i] * 1e-3;
    if (made.terms_ms[i] > made.terms_ms[largest]) largest = i;
  }
  made.limit = static_cast<LayoutTerm>(largest);
  const auto share = [&](LayoutTerm term) {
    return made.terms_ms[static_cast<std::size_t>(term)] / made.step_ms;
  };
  made.bubble_share = std::max(0.0, share(LayoutTerm::kBubble));  // a difference may round below 0
  made.exposed_comm_share = share(LayoutTerm::kTensorParallel) +
                            share(LayoutTerm::kPipelineTransfers) +
                            share(LayoutTerm::kDataParallel) + share(LayoutTerm::kExpertParallel) +
                            share(LayoutTerm::kContextParallel);
  const double tokens = static_cast<double>(job.global_batch) * static_cast<double>(job.sequence);
  const double per_gpu = tokens / static_cast<double>(layout.gpus());
  made.tokens_per_s_per_gpu = per_gpu / (made.step_ms * 1e-3);
  const double flop = job_flop_per_token(job);
  made.mfu = made.tokens_per_s_per_gpu * flop / dense_peak(gpu, job.precision);
  made.hfu = made.mfu * (1 + recomputed_share(job, layout));
  made.allocated_bytes = bytes.allocated();
  made.reserved_bytes = bytes.reserved();
  made.weight_bytes = bytes.weights;
  made.gradient_bytes = bytes.gradients;
  made.optimizer_bytes = bytes.optimizer;
  made.activation_bytes = bytes.activations;
  made.logit_bytes = bytes.logits;
  made.working_bytes = bytes.working;
  made.gathered_bytes = bytes.gathered;
  made.program_bytes = bytes.program;
  made.allocator_bytes = bytes.allocator;
  made.fullest_stage = bytes.stage;
  made.software = question.framework->name;
  made.attention = to_string(attention_kernel(question));
  made.attention_share = slowest_packed_share(job, layout);
  made.device_bytes = device_bytes(gpu, *question.framework);
  made.host_bytes = bytes.host.total();
  made.host_weight_bytes = bytes.host.weights;
  made.host_gradient_bytes = bytes.host.gradients;
  made.host_optimizer_bytes = bytes.host.optimizer;
  made.host_activation_bytes = bytes.host.activations;
  made.host_pinned_bytes = bytes.host.pinned;
  const bool host_fits = job.host_memory_bytes <= 0 || made.host_bytes <= job.host_memory_bytes;
  made.fits = made.reserved_bytes <= made.device_bytes && host_fits;
  return made;
}

/// Equal steps differ by about a third of what runs of a program differ from their predictions by:
/// the middle 80 % of a normal spread is 2.56 deviations wide.
double noise_of_spread(double log_spread) { return std::max(0.01, 0.3 * log_spread / 2.56); }

Result<void> expect_measured(const StepCalibration& calibration, const LayoutJob& job) {
  const std::string layer = layer_words(job.model);
  if (calibration.knows_layer(layer)) return {};
  return decline(fmt::format("measured steps: expected some of {} (layers of {}), found {} alone",
                             job.model.name.empty() ? "this model" : job.model.name, layer,
                             fmt::join(calibration.layers(), "; ")));
}

std::vector<std::string> defaults_that_surprise(const LayoutJob& job,
                                                const ParallelLayout& layout) {
  std::vector<std::string> warnings;
  if (job.model.experts.experts > 0 && layout.tp > 1 && layout.etp == 1) {
    warnings.push_back(
        "etp: 1, each expert's matrices are whole on a rank, whatever tp is (Megatron's own "
        "default "
        "is tp)");
  }
  if (job.cuda_graphs != 0) {
    warnings.push_back("cuda_graphs: their memory pools are not counted");
  }
  return warnings;
}

// A shard with one expert per layer as if it held so many, at no cost for kernels.
std::shared_ptr<const ShardCosts> holding(ShardCosts shard, std::int64_t experts) {
  for (PartCosts* part : {&shard.layer, &shard.head}) {
    const double more = static_cast<double>(experts - 1) * part->experts;
    part->experts += more;
    part->parameters += more;
  }
  return std::make_shared<const ShardCosts>(std::move(shard));
}

std::vector<std::int64_t> layers_of_stages(const ParallelLayout& layout,
                                           const std::vector<ChunkLayers>& chunks) {
  std::vector<std::int64_t> layers(layout.pp);
  for (std::int64_t stage = 0; stage < layout.pp; ++stage) {
    for (std::int64_t chunk = 0; chunk < layout.vp; ++chunk) {
      layers[stage] += chunks[chunk_place(layout, stage, chunk)].layers;
    }
  }
  return layers;
}

}  // namespace

struct LayoutPricer::State {
  State(Predictor with, Gpu on, Topology links, AskOptions asked)
      : predictor(std::move(with)),
        gpu(std::move(on)),
        topology(std::move(links)),
        options(std::move(asked)) {}

  struct Software {
    Software(Framework costs, Topology links, std::shared_ptr<const AstraSimNetwork> network)
        : framework(std::move(costs)), collectives(std::move(links), std::move(network)) {}
    Framework framework;
    CollectiveTimes collectives;  ///< with the share of the NICs that this program reaches
  };

  Result<std::shared_ptr<Software>> software(const std::string& name) {
    const std::lock_guard lock(mutex);
    const auto known = frameworks.find(name);
    if (known != frameworks.end()) return known->second;
    PERFMODEL_TRY(framework, find_framework(name, data));
    Topology links = topology;
    if (links.nic) links.nic->bandwidth.value *= framework->network_share;
    if (trouble.no_overlap) overlap_nothing(*framework);
    auto made = std::make_shared<Software>(std::move(*framework), std::move(links), network);
    return frameworks.emplace(name, std::move(made)).first->second;
  }

  /// Prices a shard that was not asked for before, outside of the lock: two threads may do the same
  /// work.
  Result<std::shared_ptr<const ShardCosts>> shard(const ShardQuestion& question) {
    const std::string key = key_of(question);
    {
      const std::lock_guard lock(mutex);
      const auto known = shards.find(key);
      if (known != shards.end()) return known->second;
    }
    const auto once = [&](const std::string& of, const auto& price) { return kind(of, price); };
    PERFMODEL_TRY(costs, shard_costs(question, predictor, gpu.name, options, once));
    if (own_collectives) {
      PERFMODEL_TRY_TO(reprice_collectives(question.tp, *own_collectives, *costs));
    }
    scale_products(trouble.products, *costs);
    auto made = std::make_shared<const ShardCosts>(std::move(*costs));
    const std::lock_guard lock(mutex);
    if (shards.size() >= kMostShards) shards.clear();
    return shards.emplace(key, std::move(made)).first->second;
  }

  /// Layers of one kind, which several shards have.
  Result<std::shared_ptr<const ShardCosts>> kind(const std::string& key,
                                                 const std::function<Result<ShardCosts>()>& price) {
    {
      const std::lock_guard lock(mutex);
      const auto known = kinds.find(key);
      if (known != kinds.end()) return known->second;
    }
    PERFMODEL_TRY(costs, price());
    auto made = std::make_shared<const ShardCosts>(std::move(*costs));
    const std::lock_guard lock(mutex);
    if (kinds.size() >= kMostShards) kinds.clear();
    return kinds.emplace(key, std::move(made)).first->second;
  }

  /// A question with all that was found out for it, to which it points.
  struct Asked {
    std::shared_ptr<Software> software;
    std::shared_ptr<const ShardCosts> shard;
    std::vector<ChunkLayers> chunks;
    StepQuestion question;
  };
  /// `beyond`: of rows at the slowest rank of experts, what they exceed with that chance; 0: their
  /// mean. `at_least`: the kernels of all experts cost as much as one expert's.
  Result<Asked> ask(const LayoutJob& job, const ParallelLayout& layout, double beyond = 0,
                    bool at_least = false);

  /// The step as the models have it.
  struct TimedStep {
    Asked asked;
    StepTime time;
  };
  Result<TimedStep> timed(const LayoutJob& job, const ParallelLayout& layout);
  std::vector<StepEffect> effects(const LayoutJob& job, const ParallelLayout& layout) const {
    return effects_of(job, layout, topology.gpus_per_node);
  }

  Predictor predictor;
  Gpu gpu;
  Topology topology;
  AskOptions options;
  std::shared_ptr<const AstraSimNetwork> network;
  /// Prices collectives inside layers if the predictor does not know the topology by name.
  std::optional<CollectiveTimes> own_collectives;
  MachineTrouble trouble;
  std::filesystem::path data;
  std::vector<std::string> warnings;
  std::mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<const ShardCosts>> shards, kinds;
  std::map<std::string, std::shared_ptr<Software>> frameworks;
};

LayoutPricer::LayoutPricer(std::shared_ptr<State> state) : state_(std::move(state)) {}

Result<LayoutPricer> LayoutPricer::make(const Predictor& predictor, const LayoutMachine& machine) {
  return make(predictor, machine, {});
}

Result<LayoutPricer> LayoutPricer::make(const Predictor& predictor, const LayoutMachine& machine,
                                        const MachineTrouble& trouble) {
  PERFMODEL_TRY(gpu, predictor.gpu(machine.gpu));
  Topology topology = topology_for(*gpu);
  if (!machine.topology.empty()) {
    PERFMODEL_TRY(found, TopologyCatalog::builtin().find(machine.topology));
    topology = std::move(*found);
  }
  const bool has_slow_links = trouble.link_share != 1 || trouble.network_share != 1;
  if (has_slow_links) scale_links(trouble.link_share, trouble.network_share, topology);
  AskOptions options{
      .host_scale = machine.host_scale, .device_scale = trouble.kernels, .keep_ops = true};
  const bool is_known = TopologyCatalog::builtin().named(topology.name).has_value();
  options.topology = is_known ? topology.name : "";
  std::shared_ptr<const AstraSimNetwork> network;
  if (!machine.collectives.empty()) {
    PERFMODEL_TRY(read, read_astra_sim_network(machine.collectives));
    network = std::make_shared<const AstraSimNetwork>(std::move(*read));
  }
  auto state =
      std::make_shared<State>(predictor, std::move(*gpu), std::move(topology), std::move(options));
  state->data = predictor.data_folder();
  state->warnings = stand_ins(state->topology);
  state->network = std::move(network);
  const bool has_no_topology = machine.topology.empty();
  state->trouble = trouble;
  if (state->network || has_slow_links || !(is_known || has_no_topology)) {
    state->own_collectives.emplace(state->topology, state->network);
  }
  return LayoutPricer(std::move(state));
}

Result<LayoutPricer::State::Asked> LayoutPricer::State::ask(const LayoutJob& job,
                                                            const ParallelLayout& layout,
                                                            double beyond, bool at_least) {
  PERFMODEL_TRY_TO(check_layout(job, layout));
  PERFMODEL_TRY_TO(check_precision(gpu, job.precision));
  PERFMODEL_TRY_TO(check_fits(topology, layout.gpus()));
  if (layout.gpus() > topology.gpus_per_node && !topology.nic) {
    return decline(
        fmt::format("world: expected at most the {} GPUs of a {}, which has no network, found {}",
                    topology.gpus_per_node, topology.name, layout.gpus()));
  }
  if (layout.async_tp && layout.tp > topology.gpus_per_node) {
    return decline(
        fmt::format("async_tp: expected tp of at most the {} GPUs of a node, which write to each "
                    "other's memory, found {}",
                    topology.gpus_per_node, layout.tp));
  }
  PERFMODEL_TRY_TO(check_attention(gpu, job.attention));
  PERFMODEL_TRY(found,
                software(job.software.empty() ? std::string(suitable_software(gpu, job, layout))
                                              : job.software));
  const Framework& framework = (*found)->framework;
  auto costs = shard(
      {.model = job.model,
       .sequence = job.sequence,
       .micro_batch = layout.micro_batch,
       .tp = layout.tp,
       .sequence_parallel = layout.sequence_parallel && layout.tp > 1,
       .precision = job.precision,
       .attention = job.attention == LayoutJob::Attention::kEager ? LayoutJob::Attention::kEager
                                                                  : LayoutJob::Attention::kFlash,
       .dropout = job.dropout,
       .recompute = layout.recompute,
       .chunks = layout.pp * layout.vp,
       .compiled = job.compiled,
       .cp = layout.cp,
       .context_balanced = layout.context_balanced,
       .ep = at_least ? job.model.experts.experts : layout.ep,
       .etp = layout.etp,
       .expert_load = slowest_expert_load(job, layout, beyond),
       .lora_rank = job.lora_rank,
       .lora_on_all = job.lora_on_all,
       .fp8_activations = job.fp8_activations,
       .fused_layers = framework.fused_layers && !job.compiled,
       .fused_sinks =
           knows_sinks(attention_kernel({.job = &job, .framework = &framework, .gpu = &gpu})),
       .fused_pointwise = framework.fused_pointwise,
       .plain = framework.plain_pytorch && !job.compiled,
       .copies_gradients =
           framework.plain_pytorch && layout.dp > 1 && layout.zero == Sharding::kNone});
  if (!costs) return Unexpected{costs.error()};
  if (at_least) costs = holding(**costs, job.model.experts.experts / layout.ep);
  PERFMODEL_TRY(chunks, spread_layers(job.model, layout.pp * layout.vp,
                                      framework.balanced_stages && layout.vp == 1));
  StepQuestion question{.job = &job,
                        .layout = &layout,
                        .shard = costs->get(),
                        .framework = &framework,
                        .gpu = &gpu,
                        .collectives = &(*found)->collectives,
                        .expert_load = slowest_expert_load(job, layout, beyond)};
  if (layout.searched_stages && layout.pp > 1) {
    chunks = search_stages(question, std::move(*chunks));
    if (!chunks) return Unexpected{chunks.error()};
  }
  return Asked{std::move(*found), std::move(*costs), std::move(*chunks), question};
}

Result<LayoutPricer::State::TimedStep> LayoutPricer::State::timed(const LayoutJob& job,
                                                                  const ParallelLayout& layout) {
  PERFMODEL_TRY(asked, ask(job, layout));
  PERFMODEL_TRY(time, step_time(asked->question, asked->chunks));
  return TimedStep{std::move(*asked), *time};
}

Result<LayoutPrediction> LayoutPricer::predict(const LayoutJob& job,
                                               const ParallelLayout& layout) const {
  stop_point();
  PERFMODEL_TRY(timed, state_->timed(job, layout));
  const StepQuestion& question = timed->asked.question;
  const std::vector<ChunkLayers>& chunks = timed->asked.chunks;
  if (calibration_) {
    PERFMODEL_TRY_TO(expect_measured(*calibration_, job));
    timed->time = calibration_->corrected(timed->time, state_->effects(job, layout));
  }
  auto made = prediction_of(question, timed->time, step_bytes(question, chunks));
  made.warnings = state_->warnings;
  if (job.expert_imbalance > 0 && layout.ep > 1 && job.expert_capacity == 0) {
    constexpr double kSeldom = 0.05;  // steps that take longer
    PERFMODEL_TRY(crowded, state_->ask(job, layout, kSeldom));
    PERFMODEL_TRY(longer, step_time(crowded->question, crowded->chunks));
    made.high_ms = std::max(made.high_ms, longer->high_us * 1e-3);
  }
  for (std::string& warning : defaults_that_surprise(job, layout)) {
    made.warnings.push_back(std::move(warning));
  }
  if (layout.order == PipelineOrder::kDualPipe && layout.tp > 1) {
    made.warnings.emplace_back(
        "dualpipe: collectives during another pass are taken to cost its kernels nothing, which "
        "was not measured");
  }
  if (layout.offload.optimizer && job.host_bytes_per_s == 0) {
    made.warnings.push_back(
        fmt::format("the optimizer on the CPUs is priced by {} bytes per parameter and 109 GB/s "
                    "per node, which "
                    "ZeRO-Offload reached on two Xeon 8168; the range has half and twice the time "
                    "(--host-gb-per-s says what a host reaches)",
                    question.framework->host_optimizer_bytes));
  }
  if (made.hfu > 1) {
    made.warnings.push_back(fmt::format(
        "a layout computes more than the dense peak of {} (HFU above 100 %): its step is too short",
        state_->gpu.name));
  }
  if (layout.searched_stages && layout.pp > 1) made.stage_layers = layers_of_stages(layout, chunks);
  return made;
}

std::optional<LeastStep> LayoutPricer::at_least(const LayoutJob& job,
                                                const ParallelLayout& layout) const {
  const bool known = job.model.experts.experts > layout.ep && !calibration_ &&
                     !splits_backward(layout.order) && !layout.searched_stages;
  if (!known) return std::nullopt;
  const auto asked = state_->ask(job, layout, 0, true);
  if (!asked) return std::nullopt;
  constexpr double kSettles = 0.98;  // the pace of long pipelines is known within 1 %
  LeastStep least{.reserved_bytes =
                      step_bytes(asked->question, asked->chunks).reserved() * (1 - 1e-9)};
  if (least.reserved_bytes > device_bytes(state_->gpu, *asked->question.framework)) return least;
  const auto time = step_time(asked->question, asked->chunks);
  if (!time) return std::nullopt;
  least.step_ms = time->step_us * 1e-3 * kSettles;
  return least;
}

Result<LayoutPricer> LayoutPricer::measured(std::span<const MeasuredStep> steps) const {
  std::vector<StepObservation> observations;
  double spread = 0;
  for (const MeasuredStep& step : steps) {
    if (!(step.step_ms > 0) || !std::isfinite(step.step_ms)) {
      return decline(fmt::format("step_ms: expected a time above 0, found {}", step.step_ms));
    }
    PERFMODEL_TRY(timed, state_->timed(step.job, step.layout));
    const Framework& framework = timed->asked.software->framework;
    spread = std::max(spread, std::log(framework.high_share / framework.low_share));
    StepObservation one{.predicted_us = part_times(timed->time),
                        .effects = state_->effects(step.job, step.layout),
                        .measured_us = step.step_ms * 1e3,
                        .layer = layer_words(step.job.model)};
    observations.push_back(one);
    if (!step.compute_ms) continue;
    // Kernels alone: of the parts that layers are made of, without waits for other stages.
    one.parts = 1U << static_cast<unsigned>(StepPart::kLayers);
    const auto term = [&](LayoutTerm which) {
      return timed->time.terms_us[static_cast<std::size_t>(which)];
    };
    one.predicted_us = {term(LayoutTerm::kCompute) + term(LayoutTerm::kOptimizer)};
    one.measured_us = *step.compute_ms * 1e3;
    observations.push_back(std::move(one));
  }
  PERFMODEL_TRY(fitted, StepCalibration::fit(std::move(observations), noise_of_spread(spread)));
  LayoutPricer made = *this;
  made.calibration_ = std::make_shared<const StepCalibration>(std::move(*fitted));
  return made;
}

std::optional<MeasuredFit> LayoutPricer::fit() const {
  if (!calibration_) return std::nullopt;
  return calibration_->report();
}

Result<std::vector<OpenEffect>> LayoutPricer::worth_measuring(const LayoutJob& job,
                                                              const ParallelLayout& layout) const {
  PERFMODEL_TRY(timed, state_->timed(job, layout));
  const PartTimes parts = part_times(timed->time);
  const std::vector<StepEffect> effects = state_->effects(job, layout);
  return calibration_ ? calibration_->open(parts, effects) : open_effects(parts, effects);
}

Result<LayoutTraces> LayoutPricer::traces(const LayoutJob& job, const ParallelLayout& layout,
                                          bool every_rank) const {
  if (layout.cp != 1 || layout.ep != 1 || layout.etp != 1) {
    return decline(
        fmt::format("export: expected cp, ep and etp of 1 (their exchanges are priced, not written "
                    "as tasks), found {}, {} and {}",
                    layout.cp, layout.ep, layout.etp));
  }
  if (layout.offload.any()) {
    return decline(
        fmt::format("export: expected offload none (copies to the host are priced, not written as "
                    "tasks), found {}",
                    to_string(layout.offload)));
  }
  if (splits_backward(layout.order)) {
    return decline(fmt::format("schedule: expected 1f1b or gpipe to write traces of, found {}",
                               to_string(layout.order)));
  }
  PERFMODEL_TRY(asked, state_->ask(job, layout));
  PERFMODEL_TRY(work, layout_work(asked->question, asked->chunks));
  return layout_traces(asked->question, *work, every_rank);
}

}  // namespace perfmodel
