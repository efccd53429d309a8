#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "framework.hpp"
#include "perfmodel/layout.hpp"
#include "shard_costs.hpp"
#include "step_bytes.hpp"
#include "step_time.hpp"

namespace perfmodel {
namespace {

Unexpected impossible_layout(std::string message) {
  return fail(ErrorCode::kImpossible, std::move(message));
}

Result<void> expect_divides(std::string_view what, std::int64_t value, std::string_view by_what,
                            std::int64_t by) {
  if (by > 0 && value % by == 0) return {};
  return impossible_layout(
      fmt::format("{}: expected a multiple of {} = {}, found {}", what, by_what, by, value));
}

Result<void> check_sizes_of(const LayoutJob& job, const ParallelLayout& layout) {
  const DecoderModel& model = job.model;
  const std::pair<std::string_view, std::int64_t> sizes[] = {{"layers", model.layers},
                                                             {"hidden", model.hidden},
                                                             {"heads", model.heads},
                                                             {"feed_forward", model.feed_forward},
                                                             {"vocabulary", model.vocabulary},
                                                             {"sequence", job.sequence},
                                                             {"global_batch", job.global_batch},
                                                             {"dp", layout.dp},
                                                             {"tp", layout.tp},
                                                             {"pp", layout.pp},
                                                             {"vp", layout.vp},
                                                             {"micro_batch", layout.micro_batch}};
  for (const auto& [name, size] : sizes) {
    if (size < 1) {
      return impossible_layout(fmt::format("{}: expected at least 1, found {}", name, size));
    }
  }
  if (layout.cp != 1 || layout.ep != 1) {
    return impossible_layout(fmt::format(
        "expected cp and ep of 1 (context and expert parallelism are not modelled), found {} and "
        "{}",
        layout.cp, layout.ep));
  }
  return {};
}

Result<void> check_division(const LayoutJob& job, const ParallelLayout& layout) {
  const DecoderModel& model = job.model;
  const std::int64_t kv_heads = model.kv_heads > 0 ? model.kv_heads : model.heads;
  const std::int64_t together = layout.dp * layout.micro_batch;
  if (auto good = expect_divides("heads", model.heads, "tp", layout.tp); !good) return good;
  if (auto good = expect_divides("kv_heads", kv_heads, "tp", layout.tp); !good) return good;
  if (auto good = expect_divides("feed_forward", model.feed_forward, "tp", layout.tp); !good) {
    return good;
  }
  if (auto good = expect_divides("hidden", model.hidden, "heads", model.heads); !good) return good;
  if (layout.sequence_parallel) {
    if (auto good = expect_divides("sequence", job.sequence, "tp", layout.tp); !good) return good;
  }
  if (auto good = expect_divides("global_batch", job.global_batch, "dp micro_batch", together);
      !good) {
    return good;
  }
  if (layout.vp == 1) return {};
  if (layout.pp == 1) {
    return impossible_layout(
        fmt::format("vp: expected 1 without pipeline stages, found {}", layout.vp));
  }
  if (layout.order == PipelineOrder::kGpipe) {
    return impossible_layout(fmt::format("vp: expected 1 with GPipe, found {}", layout.vp));
  }
  return expect_divides("microbatches", job.global_batch / together, "pp", layout.pp);
}

Result<void> check_sharding(const ParallelLayout& layout) {
  const bool gathers = layout.zero == Sharding::kZero3 || layout.zero == Sharding::kFsdp ||
                       layout.zero == Sharding::kHsdp;
  if (!gathers || layout.pp == 1) return {};
  return impossible_layout(
      fmt::format("zero {}: expected pp of 1 (gathers inside of a pipeline are not modelled), "
                  "found {}",
                  to_string(layout.zero), layout.pp));
}

DType products_of(LayoutJob::Precision precision) {
  switch (precision) {
    case LayoutJob::Precision::kBf16:
      return DType::kBFloat16;
    case LayoutJob::Precision::kFp16:
      return DType::kFloat16;
    case LayoutJob::Precision::kFp8:
      return DType::kFloat8;
    case LayoutJob::Precision::kFp32:
      return DType::kFloat32;
  }
  return DType::kBFloat16;
}

double dense_peak(const Gpu& gpu, LayoutJob::Precision precision) {
  return gpu.peak(products_of(precision), precision != LayoutJob::Precision::kFp32).value;
}

/// FLOP computed again over the model's: a third of the layers' with full recomputation, of eager
/// attention's with selective.
double recomputed_share(const LayoutJob& job, LayoutRecompute recompute) {
  if (recompute == LayoutRecompute::kNone) return 0;
  const DecoderModel& model = job.model;
  const double attention = 4 * static_cast<double>(model.layers * model.hidden * job.sequence);
  const double all = model_flop_per_token(model, job.sequence);
  if (recompute == LayoutRecompute::kSelective) {
    return job.attention == LayoutJob::Attention::kEager ? attention / all : 0;
  }
  const double output = 6 * static_cast<double>(model.vocabulary * model.hidden);
  return (all - output) / 3 / all;
}

}  // namespace

struct LayoutPricer::State {
  State(Predictor with, Gpu on, Topology links, AskOptions asked)
      : predictor(std::move(with)),
        gpu(std::move(on)),
        topology(std::move(links)),
        options(std::move(asked)) {}

  struct Software {
    Software(Framework costs, Topology links)
        : framework(std::move(costs)), collectives(std::move(links)) {}
    Framework framework;
    CollectiveTimes collectives;  ///< with the share of the NICs that this program reaches
  };

  Result<std::shared_ptr<Software>> software(const std::string& name) {
    const std::lock_guard lock(mutex);
    const auto known = frameworks.find(name);
    if (known != frameworks.end()) return known->second;
    auto framework = find_framework(name, data);
    if (!framework) return Unexpected{framework.error()};
    Topology links = topology;
    if (links.nic) links.nic->bandwidth.value *= framework->network_share;
    auto made = std::make_shared<Software>(std::move(*framework), std::move(links));
    return frameworks.emplace(name, std::move(made)).first->second;
  }

  /// Prices what nobody has asked for yet, outside of the lock: two threads may do the same work.
  Result<std::shared_ptr<const ShardCosts>> shard(const ShardQuestion& question) {
    const std::string key = question.key();
    {
      const std::lock_guard lock(mutex);
      const auto known = shards.find(key);
      if (known != shards.end()) return known->second;
    }
    auto costs = shard_costs(question, predictor, gpu.name, options);
    if (!costs) return Unexpected{costs.error()};
    auto made = std::make_shared<const ShardCosts>(std::move(*costs));
    const std::lock_guard lock(mutex);
    return shards.emplace(key, std::move(made)).first->second;
  }

  Predictor predictor;
  Gpu gpu;
  Topology topology;
  AskOptions options;
  std::filesystem::path data;
  std::vector<std::string> warnings;
  std::mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<const ShardCosts>> shards;
  std::map<std::string, std::shared_ptr<Software>> frameworks;
};

LayoutPricer::LayoutPricer(std::shared_ptr<State> state) : state_(std::move(state)) {}

Result<LayoutPricer> LayoutPricer::make(const Predictor& predictor, const LayoutMachine& machine) {
  auto gpu = predictor.gpu(machine.gpu);
  if (!gpu) return Unexpected{gpu.error()};
  Topology topology = topology_for(*gpu);
  if (!machine.topology.empty()) {
    auto found = TopologyCatalog::builtin().find(machine.topology);
    if (!found) return Unexpected{found.error()};
    topology = std::move(*found);
  }
  AskOptions options{.host_scale = machine.host_scale, .keep_ops = true};
  options.topology = TopologyCatalog::builtin().named(topology.name) ? topology.name : "";
  auto state =
      std::make_shared<State>(predictor, std::move(*gpu), std::move(topology), std::move(options));
  state->data = predictor.data_folder();
  state->warnings = stand_ins(state->topology);
  return LayoutPricer(std::move(state));
}

Result<LayoutPrediction> LayoutPricer::predict(const LayoutJob& job,
                                               const ParallelLayout& layout) const {
  if (auto good = check_sizes_of(job, layout); !good) return Unexpected{good.error()};
  if (auto good = check_division(job, layout); !good) return Unexpected{good.error()};
  if (auto good = check_sharding(layout); !good) return Unexpected{good.error()};
  State& state = *state_;
  if (layout.gpus() > state.topology.gpus_per_node && !state.topology.nic) {
    return impossible_layout(fmt::format("expected at most the {} GPUs of a {}, found {}",
                                         state.topology.gpus_per_node, state.topology.name,
                                         layout.gpus()));
  }
  const double peak = dense_peak(state.gpu, job.precision);
  const KernelWork product{.family = KernelFamily::kGemm, .dtype = products_of(job.precision)};
  const bool narrow = job.precision != LayoutJob::Precision::kFp32;
  if (!(peak > 0) || (narrow && lacks_units(product, state.gpu))) {
    return impossible_layout(
        fmt::format("precision: expected a type that {} computes with, found one that it lacks",
                    state.gpu.name));
  }
  const auto software = state.software(job.software);
  if (!software) return Unexpected{software.error()};
  const ShardQuestion asked{.model = job.model,
                            .sequence = job.sequence,
                            .micro_batch = layout.micro_batch,
                            .tp = layout.tp,
                            .sequence_parallel = layout.sequence_parallel && layout.tp > 1,
                            .precision = job.precision,
                            .attention = job.attention,
                            .dropout = job.dropout,
                            .recompute = layout.recompute};
  const auto shard = state.shard(asked);
  if (!shard) return Unexpected{shard.error()};
  const Framework& framework = (*software)->framework;
  const StepQuestion question{.job = &job,
                              .layout = &layout,
                              .shard = shard->get(),
                              .framework = &framework,
                              .gpu = &state.gpu,
                              .collectives = &(*software)->collectives};
  const auto chunks =
      spread_layers(job.model, layout.pp * layout.vp, framework.balanced_stages && layout.vp == 1);
  if (!chunks) return Unexpected{chunks.error()};
  const auto time = step_time(question, *chunks);
  if (!time) return Unexpected{time.error()};
  const StepBytes bytes = step_bytes(question, *chunks);

  LayoutPrediction made;
  made.step_ms = time->step_us * 1e-3;
  made.low_ms = time->low_us * 1e-3;
  made.high_ms = time->high_us * 1e-3;
  std::size_t largest = 0;
  for (std::size_t i = 0; i < kLayoutTerms; ++i) {
    made.terms_ms[i] = time->terms_us[i] * 1e-3;
    if (made.terms_ms[i] > made.terms_ms[largest]) largest = i;
  }
  made.limit = static_cast<LayoutTerm>(largest);
  const auto share = [&](LayoutTerm term) {
    return made.terms_ms[static_cast<std::size_t>(term)] / made.step_ms;
  };
  made.bubble_share = share(LayoutTerm::kBubble);
  made.exposed_comm_share = share(LayoutTerm::kTensorParallel) +
                            share(LayoutTerm::kPipelineTransfers) +
                            share(LayoutTerm::kDataParallel);
  const double tokens = static_cast<double>(job.global_batch) * static_cast<double>(job.sequence);
  const double per_gpu = tokens / static_cast<double>(layout.gpus());
  made.tokens_per_s_per_gpu = per_gpu / (made.step_ms * 1e-3);
  const double flop = model_flop_per_token(job.model, job.sequence);
  made.mfu = made.tokens_per_s_per_gpu * flop / peak;
  made.hfu = made.mfu * (1 + recomputed_share(job, layout.recompute));
  made.allocated_bytes = bytes.allocated;
  made.reserved_bytes = bytes.reserved;
  made.weight_bytes = bytes.weights;
  made.gradient_bytes = bytes.gradients;
  made.optimizer_bytes = bytes.optimizer;
  made.activation_bytes = bytes.activations;
  made.device_bytes = state.gpu.usable_memory().value -
                      static_cast<double>(state.gpu.architecture.context_bytes) -
                      framework.outside_bytes;
  made.fits = bytes.reserved <= made.device_bytes;
  made.warnings = state.warnings;
  return made;
}

}  // namespace perfmodel
