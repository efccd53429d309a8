#include "perfmodel/predictor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cmath>
#include <mutex>
#include <new>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "files/lower_case.hpp"
#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/optimize.hpp"
#include "perfmodel/predictors/detail/collective_model.hpp"
#include "perfmodel/predictors/detail/price_cache.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "pipeline.hpp"
#include "predict_with.hpp"
#include "prediction_fields.hpp"
#include "program/data_parallel_graph.hpp"
#include "program/host_facts.hpp"
#include "rewrite/resize/size_plan.hpp"
#include "rewrites/model_batch.hpp"
#include "rewrites/rewrite_input.hpp"
#include "study/answer_rows.hpp"
#include "trace/moved_kernel_times.hpp"

namespace perfmodel {
namespace {

static_assert(kCachedPrices == PriceCache::kDefaultCapacity);

/// Runs `work`; an exception becomes its error. The message is short enough to need no memory.
template <class Work>
std::invoke_result_t<Work> guarded(Work&& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "out of memory");
  } catch (const std::system_error& error) {  // threads
    return decline(error.what());
  }
}

/// A GPU with all that its predictions need.
struct Target {
  Gpu gpu;
  std::size_t number = 0;  ///< position in the order of loading
  std::shared_ptr<const OverheadTable> overheads;
  std::size_t table = 0;  ///< number of `overheads` among those that were loaded
  std::string overheads_warning;
  std::vector<std::string> warnings;  ///< about all else
  Topology topology;                  ///< usual topology of the GPU

  /// Allocated with the first question. Null: prices are not remembered.
  PriceCache* prices(const KernelModels& models, std::size_t capacity) const {
    if (capacity == 0) return nullptr;
    std::call_once(once_, [&] {
      cache_ = std::make_unique<PriceCache>(models, gpu, capacity);
      ready_.store(cache_.get(), std::memory_order_release);
    });
    return cache_.get();
  }
  const PriceCache* prices_so_far() const { return ready_.load(std::memory_order_acquire); }

 private:
  mutable std::once_flag once_;
  mutable std::unique_ptr<PriceCache> cache_;
  mutable std::atomic<const PriceCache*> ready_ = nullptr;
};

}  // namespace

struct Predictor::State {
  std::filesystem::path data;
  ChosenKernelModels chosen;
  std::size_t cached_prices = 0;
  bool overheads_named = false;  ///< by the configuration: they hold for traces, too
  std::vector<std::unique_ptr<Target>> targets;            ///< by name
  std::unordered_map<std::string, const Target*> by_name;  ///< lower case
  std::vector<std::unique_ptr<KernelModel>> collectives;   ///< one per known topology
  std::vector<const OverheadTable*> tables;                ///< tables of the targets, each once

  Result<void> load(const PredictorConfig& config);
  Result<void> add_target(Gpu gpu, const std::string& asked_as, const PredictorConfig& config,
                          OverheadTables& read);
  Result<const Target*> target(std::string_view name) const;
  Result<const Topology*> topology(const Target& target, const AskOptions& options,
                                   std::vector<std::string>& warnings) const;
  const KernelModel* collectives_on(const Topology& topology) const;
  /// `prepared`: the state of `graph`, or of one that only differs in sizes; may be null. `last`:
  /// see predict_with; null: one that `prepared` lends.
  Result<Prediction> predict(const ExecutionGraph& graph, const PreparedGraph::State* prepared,
                             std::string_view gpu, const AskOptions& options,
                             JobMemory* last = nullptr) const;
  Result<Prediction> predict_resized(const ExecutionGraph& graph,
                                     const PreparedGraph::State* prepared, std::string_view gpu,
                                     const AskOptions& options) const;
  /// The same, and its batch.
  Result<Prediction> predict_batch(const ExecutionGraph& graph,
                                   const PreparedGraph::State* prepared, std::string_view gpu,
                                   const AskOptions& options) const;
  /// The same of a known model, which is built with that batch.
  Result<Prediction> predict_built(const ExecutionGraph& model,
                                   const PreparedGraph::State* prepared, std::string_view gpu,
                                   const AskOptions& options) const;
  Result<Prediction> predict_planned(const PreparedGraph::State& prepared, std::string_view gpu,
                                     const AskOptions& options) const;
  /// With strategy ddp; null: the graph needs no collectives.
  Result<std::shared_ptr<const PreparedGraph::State>> data_parallel(
      const PreparedGraph::State& prepared, std::string_view gpu, const AskOptions& options) const;
  /// `same_batch`: a graph with as many samples per step; null: the graph's inputs show them.
  std::shared_ptr<PreparedGraph::State> prepare(
      ExecutionGraph graph, const PreparedGraph::State* same_batch = nullptr) const;
  /// A captured graph as one of the GPU's vendor.
  Result<std::shared_ptr<const PreparedGraph::State>> retargeted(const ExecutionGraph& graph,
                                                                 std::string_view gpu) const;
  Result<std::shared_ptr<const PreparedGraph::State>> retargeted(
      const PreparedGraph::State& prepared, std::string_view gpu) const;
};

/// Made once, when first asked for; a failed allocation leaves it to the next who asks.
template <class T>
class Lazy {
 public:
  template <class Make>
  const Result<T>& get(Make&& make) const {
    std::call_once(once_, [&] { made_.emplace(make()); });
    return *made_;
  }

 private:
  mutable std::once_flag once_;
  mutable std::optional<Result<T>> made_;
};

struct PreparedGraph::State {
  std::shared_ptr<const Predictor::State> predictor;
  ExecutionGraph graph;
  bool is_to_retarget = false;         ///< see captured.hpp
  std::optional<std::int64_t> batch;   ///< samples per step
  std::int64_t passes = 1;             ///< gradients of so many passes add up in a step
  std::vector<Lazy<HostFacts>> facts;  ///< per overhead table
  Lazy<SizePlan> batches, sequences;
  Lazy<std::shared_ptr<const State>>
      data_parallel[2];                              ///< graphs of strategy ddp by delay_allreduce
  Lazy<std::shared_ptr<const State>> retargeted[2];  ///< a captured graph by vendor
  std::optional<double> added_bytes;                 ///< in that one, see predict_with

  // For a trace: its own host, and its kernels if it has no shapes.
  std::shared_ptr<const Trace> trace;
  std::shared_ptr<const OverheadTable> own_overheads;
  std::vector<Lazy<MovedKernelTimes>> kernel_times;  ///< per target; none for a graph

  const OverheadTable& overheads(const Target& target) const {
    return own_overheads ? *own_overheads : *target.overheads;
  }

  Result<const HostFacts*> facts_with(const Target& target) const {
    const std::size_t table = own_overheads ? 0 : target.table;
    const auto& made =
        facts[table].get([&] { return make_host_facts(graph, overheads(target), std::nullopt); });
    if (!made) return Unexpected{made.error()};
    return &*made;
  }

  Result<const MovedKernelTimes*> kernel_times_for(const Target& target) const {
    if (kernel_times.empty()) return nullptr;
    const auto& made =
        kernel_times[target.number].get([&] { return kernel_times_on(graph, *trace, target.gpu); });
    if (!made) return Unexpected{made.error()};
    return &*made;
  }

  /// A known model built with another batch: `make()`, the first time.
  template <class Make>
  Result<std::shared_ptr<const State>> with_batch(std::int64_t wanted, Make&& make) const {
    constexpr std::size_t kMostNodes = 200'000;  // with their facts about 1 kB each
    {
      const std::lock_guard lock(lending_);
      if (const auto known = built_.find(wanted); known != built_.end()) return known->second;
    }
    PERFMODEL_TRY(made, make());
    const std::lock_guard lock(lending_);
    if ((built_.size() + 1) * graph.nodes.size() > kMostNodes) built_.clear();
    built_.insert_or_assign(wanted, *made);
    return made;
  }

  /// A graph in other sizes, and the last question's tasks.
  struct Lent {
    SizePlan::Scratch sizes;
    JobMemory job;
  };

  /// No more are lent than threads ask at once.
  class Lease {
   public:
    explicit Lease(const State& state) : state_(state) {
      const std::lock_guard lock(state.lending_);
      if (state.idle_.empty()) return;
      lent_ = std::move(state.idle_.back());
      state.idle_.pop_back();
    }
    ~Lease() {
      if (!lent_) return;
      const std::lock_guard lock(state_.lending_);
      state_.idle_.push_back(std::move(lent_));
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Lent& lent() {
      if (!lent_) {
        auto made = std::make_unique<Lent>();
        const std::lock_guard lock(state_.lending_);
        state_.idle_.reserve(++state_.lent_most_);  // so that giving it back needs no memory
        lent_ = std::move(made);
      }
      return *lent_;
    }

   private:
    const State& state_;
    std::unique_ptr<Lent> lent_;
  };

 private:
  mutable std::mutex lending_;
  mutable std::vector<std::unique_ptr<Lent>> idle_;
  mutable std::size_t lent_most_ = 0;
  mutable std::unordered_map<std::int64_t, std::shared_ptr<const State>> built_;  ///< by batch
};

Result<void> Predictor::State::load(const PredictorConfig& config) {
  data = config.data;
  if (data.empty()) {
    PERFMODEL_TRY(found, find_data_folder());
    data = std::move(*found);
  }
  PERFMODEL_TRY(models, choose_kernel_models(config.models, data));
  chosen = std::move(*models);
  if (chosen.owner && config.read_models) PERFMODEL_TRY_TO(chosen.owner->read_all());
  cached_prices = config.cached_prices;
  overheads_named = !config.overheads.empty();
  for (const Topology& topology : TopologyCatalog::builtin().topologies()) {
    collectives.push_back(make_collective_model(topology));
  }
  OverheadTables read(data);
  if (config.gpus.empty()) {
    PERFMODEL_TRY(gpus, read_gpus(data / "gpus"));
    for (Gpu& gpu : *gpus) PERFMODEL_TRY_TO(add_target(std::move(gpu), {}, config, read));
  }
  for (const std::string& name : config.gpus) {
    PERFMODEL_TRY(gpu, find_gpu(name, data / "gpus"));
    PERFMODEL_TRY_TO(add_target(std::move(*gpu), name, config, read));
  }
  std::ranges::sort(
      targets, {}, [](const auto& target) -> const auto& { return target->gpu.name; });
  return {};
}

Result<void> Predictor::State::add_target(Gpu gpu, const std::string& asked_as,
                                          const PredictorConfig& config, OverheadTables& read) {
  if (by_name.contains(lower_case(gpu.name))) return {};
  PERFMODEL_TRY(table, read.choose(config.overheads.string(), gpu));
  auto target = std::make_unique<Target>();
  target->warnings = stand_ins(gpu);
  if (!chosen.warning.empty()) target->warnings.push_back(chosen.warning);
  target->number = targets.size();
  target->overheads_warning = std::move(table->warning);
  target->overheads = std::move(table->table);
  const auto known = std::ranges::find(tables, target->overheads.get());
  target->table = static_cast<std::size_t>(known - tables.begin());
  if (known == tables.end()) tables.push_back(target->overheads.get());
  target->topology = topology_for(gpu);
  target->gpu = std::move(gpu);
  by_name.emplace(lower_case(target->gpu.name), target.get());
  by_name.emplace(lower_case(target->gpu.title), target.get());
  for (const std::string& alias : target->gpu.aliases) {
    by_name.emplace(lower_case(alias), target.get());
  }
  if (!asked_as.empty()) by_name.emplace(lower_case(asked_as), target.get());
  targets.push_back(std::move(target));
  return {};
}

Result<const Target*> Predictor::State::target(std::string_view name) const {
  const auto found = by_name.find(lower_case(name));
  if (found != by_name.end()) return found->second;
  std::vector<Gpu> gpus;
  for (const auto& one : targets) gpus.push_back(one->gpu);
  return Unexpected{find_gpu(name, gpus).error()};
}

Result<const Topology*> Predictor::State::topology(const Target& target, const AskOptions& options,
                                                   std::vector<std::string>& warnings) const {
  if (options.topology.empty()) return &target.topology;
  PERFMODEL_TRY(found, TopologyCatalog::builtin().named(options.topology));
  if (std::ranges::find((*found)->gpus, target.gpu.name) == (*found)->gpus.end()) {
    warnings.push_back("topology " + (*found)->name + " is not built with " + target.gpu.name +
                       ": only its links are used");
  }
  for (std::string& sentence : stand_ins(**found)) warnings.push_back(std::move(sentence));
  return found;
}

const KernelModel* Predictor::State::collectives_on(const Topology& topology) const {
  const auto& known = TopologyCatalog::builtin().topologies();
  return collectives[&topology - known.data()].get();
}

Result<Prediction> Predictor::State::predict(const ExecutionGraph& graph,
                                             const PreparedGraph::State* prepared,
                                             std::string_view gpu, const AskOptions& options,
                                             JobMemory* last) const {
  PERFMODEL_TRY(found, target(gpu));
  const Target& on = **found;
  std::vector<std::string> warnings = on.warnings;
  const bool own_host = prepared && prepared->own_overheads;
  if (!own_host && !on.overheads_warning.empty()) warnings.push_back(on.overheads_warning);
  PERFMODEL_TRY(links, topology(on, options, warnings));

  if (!(options.interference >= 1) || std::isinf(options.interference)) {
    return decline(
        fmt::format("expected an interference of at least 1, found {}", options.interference));
  }
  if (options.world < 0) {
    return decline(fmt::format("expected at least 0 ranks, found {}", options.world));
  }

  // Without a topology by name, the models find the one that the GPU usually sits in.
  std::unique_ptr<KernelModel> own_collectives;
  KernelModels models = chosen.models;
  if (options.interference != 1) {
    own_collectives = make_collective_model(**links, {.interference = options.interference});
    models.set(KernelFamily::kCollective, own_collectives.get());
  } else if (!options.topology.empty()) {
    models.set(KernelFamily::kCollective, collectives_on(**links));
  }
  PredictOptions asked{.recorded_waits = options.topology.empty() && options.interference == 1,
                       .models = &models,
                       .prices = on.prices(chosen.models, cached_prices),
                       .world_size = options.world / options.stages,
                       .launching = options.launching,
                       .topology = *links,
                       .keep_ops = options.keep_ops,
                       .what_if_steps = options.what_if_steps,
                       .host_scale = options.host_scale,
                       .device_scale = options.device_scale,
                       .step_range = !options.times_only,
                       .host_sensitivity = options.host_sensitivity,
                       .cancel = options.cancel};
  if (options.strategy) {
    asked.scale_out = ScaleOut{.world = options.world,
                               .strategy = *options.strategy,
                               .topology = *links,
                               .interference = options.interference,
                               .ddp = {.delayed = options.delay_allreduce}};
  }
  const HostFacts* facts = nullptr;
  if (prepared) {
    PERFMODEL_TRY(known, prepared->facts_with(on));
    facts = *known;
    PERFMODEL_TRY(times, prepared->kernel_times_for(on));
    if (*times) {
      asked.kernel_times = &(*times)->times;
      asked.use = (*times)->use;
      if ((*times)->sentence) warnings.push_back(*(*times)->sentence);
    }
  } else if (lacks_sizes(graph)) {
    return decline(
        "expected a prepared graph, found one of a trace without shapes: to prepare the trace "
        "gives it kernel times",
        graph.source);
  }
  const OverheadTable& overheads = prepared ? prepared->overheads(on) : *on.overheads;
  std::optional<PreparedGraph::State::Lease> lease;
  if (prepared && !last) {
    last = &lease.emplace(*prepared).lent().job;
    last->reshaped = nullptr;
  }
  auto prediction = predict_with(graph, on.gpu, overheads, facts, asked,
                                 prepared ? prepared->added_bytes : std::nullopt, options.stages,
                                 !options.times_only, last);
  PERFMODEL_TRY_TO(chosen.check());
  if (prediction && !warnings.empty()) {
    prediction->warnings.insert(prediction->warnings.begin(),
                                std::make_move_iterator(warnings.begin()),
                                std::make_move_iterator(warnings.end()));
  }
  return prediction;
}

namespace {

Result<ExecutionGraph> resized(const ExecutionGraph& graph, const AskOptions& options) {
  if (options.batch == 0) return set_sequence_length(graph, {.length = options.sequence});
  auto made = set_batch_size(graph, {.batch = options.batch});
  if (!made || options.sequence == 0) return made;
  return set_sequence_length(*made, {.length = options.sequence});
}

// Ops are found by their ids, which no change of sizes touches.
void name_ops_after(const ExecutionGraph& graph, Prediction& prediction) {
  for (PredictedOp& op : prediction.ops) {
    const auto node = std::ranges::lower_bound(graph.nodes, op.id, {}, &Node::id);
    op.name = graph.name(*node);
  }
}

}  // namespace

Result<Prediction> Predictor::State::predict_batch(const ExecutionGraph& graph,
                                                   const PreparedGraph::State* prepared,
                                                   std::string_view gpu,
                                                   const AskOptions& options) const {
  if (options.batch > 0 && is_known_model(graph)) {
    return predict_built(graph, prepared, gpu, options);
  }
  if (prepared ? prepared->is_to_retarget : is_to_retarget(graph)) {
    PERFMODEL_TRY(made, prepared ? retargeted(*prepared, gpu) : retargeted(graph, gpu));
    auto prediction = predict_batch((*made)->graph, made->get(), gpu, options);
    if (prediction && !prediction->graph) prediction->graph = {*made, &(*made)->graph};
    if (prediction) put_captured_first(prediction->warnings);
    return prediction;
  }
  if (auto problem = problem_of_ranks(options.world, options.stages, options.strategy,
                                      options.delay_allreduce)) {
    return decline(fmt::format("{}: {}", problem->field, problem->message));
  }
  auto prediction = predict_resized(graph, prepared, gpu, options);
  if (!prediction || options.stages > 1) return prediction;  // stages share their samples
  if (options.batch != 0) {
    prediction->batch = options.batch * (prepared ? prepared->passes : accumulated_passes(graph));
  } else if (prepared) {
    prediction->batch = prepared->batch;
  }
  return prediction;
}

Result<Prediction> Predictor::State::predict_built(const ExecutionGraph& model,
                                                   const PreparedGraph::State* prepared,
                                                   std::string_view gpu,
                                                   const AskOptions& options) const {
  const auto make = [&]() -> Result<std::shared_ptr<const PreparedGraph::State>> {
    auto built = model_with_batch(model, options.batch);
    if (!built)
      built = set_batch_size(model, {.batch = options.batch});  // a file named "model ..."
    if (!*built) return Unexpected{std::move(built->error())};
    return prepare(std::move(**built));
  };
  PERFMODEL_TRY(made, prepared ? prepared->with_batch(options.batch, make) : make());
  AskOptions asked = options;
  asked.batch = 0;
  auto prediction = predict_batch((*made)->graph, made->get(), gpu, asked);
  if (prediction && !prediction->graph) prediction->graph = {*made, &(*made)->graph};
  return prediction;
}

Result<Prediction> Predictor::State::predict_resized(const ExecutionGraph& graph,
                                                     const PreparedGraph::State* prepared,
                                                     std::string_view gpu,
                                                     const AskOptions& options) const {
  if (prepared && !is_from_trace(graph) && options.strategy == ParallelStrategy::kDdp) {
    PERFMODEL_TRY(made, data_parallel(*prepared, gpu, options));
    if (*made) {
      auto prediction = predict_resized((*made)->graph, made->get(), gpu, options);
      if (prediction) prediction->graph = {*made, &(*made)->graph};
      return prediction;
    }
  }
  if (options.batch == 0 && options.sequence == 0) return predict(graph, prepared, gpu, options);
  if (prepared && (options.batch == 0 || options.sequence == 0)) {
    return predict_planned(*prepared, gpu, options);
  }
  PERFMODEL_TRY(changed, resized(graph, options));
  auto prediction = predict(*changed, prepared, gpu, options);
  // Ops of a graph that was made for this question have names of its own.
  if (prediction && !prediction->graph) name_ops_after(graph, *prediction);
  return prediction;
}

Result<std::shared_ptr<const PreparedGraph::State>> Predictor::State::data_parallel(
    const PreparedGraph::State& prepared, std::string_view gpu, const AskOptions& options) const {
  PERFMODEL_TRY(found, target(gpu));
  PERFMODEL_TRY(facts, prepared.facts_with(**found));
  const ScaleOut how{.world = options.world, .ddp = {.delayed = options.delay_allreduce}};
  if (!asks_for_data_parallel(how, (*facts)->reduces_gradients)) return nullptr;
  // One graph serves all numbers of ranks: each question prices its collectives for its own number.
  const auto& made = prepared.data_parallel[options.delay_allreduce].get(
      [&]() -> Result<std::shared_ptr<const PreparedGraph::State>> {
        PERFMODEL_TRY(graph, make_data_parallel_graph(prepared.graph, how));
        auto state = prepare(std::move(graph->graph), &prepared);
        state->added_bytes = graph->gradient_bytes;
        return state;
      });
  return made;
}

Result<Prediction> Predictor::State::predict_planned(const PreparedGraph::State& prepared,
                                                     std::string_view gpu,
                                                     const AskOptions& options) const {
  const bool batch = options.batch != 0;
  const auto& plan =
      batch ? prepared.batches.get([&] { return SizePlan::batch(prepared.graph); })
            : prepared.sequences.get([&] { return SizePlan::sequence(prepared.graph); });
  if (!plan) return Unexpected{plan.error()};
  PreparedGraph::State::Lease lease(prepared);
  auto& [sizes, job] = lease.lent();
  PERFMODEL_TRY(done, plan->apply(batch ? options.batch : options.sequence, sizes));
  job.reshaped = sizes.reshaped();
  auto prediction = predict(sizes.graph(), &prepared, gpu, options, &job);
  if (prediction) name_ops_after(prepared.graph, *prediction);
  return prediction;
}

std::shared_ptr<PreparedGraph::State> Predictor::State::prepare(
    ExecutionGraph graph, const PreparedGraph::State* same_batch) const {
  auto state = std::make_shared<PreparedGraph::State>();
  state->passes = accumulated_passes(graph);
  if (same_batch) {
    state->batch = same_batch->batch;
  } else if (const auto batch = batch_size(graph)) {
    state->batch = *batch * state->passes;
  }
  state->graph = std::move(graph);
  state->is_to_retarget = is_to_retarget(state->graph);
  state->facts = std::vector<Lazy<HostFacts>>(tables.size());
  return state;
}

Result<std::shared_ptr<const PreparedGraph::State>> Predictor::State::retargeted(
    const ExecutionGraph& graph, std::string_view gpu) const {
  PERFMODEL_TRY(found, target(gpu));
  ExecutionGraph made = graph;
  PERFMODEL_TRY_TO(retarget_for((*found)->gpu, made));
  return prepare(std::move(made));
}

Result<std::shared_ptr<const PreparedGraph::State>> Predictor::State::retargeted(
    const PreparedGraph::State& prepared, std::string_view gpu) const {
  PERFMODEL_TRY(found, target(gpu));
  const auto vendor = static_cast<int>(vendor_of((*found)->gpu));
  return prepared.retargeted[vendor].get([&] { return retargeted(prepared.graph, gpu); });
}

Predictor::Predictor(std::shared_ptr<const State> state) : state_(std::move(state)) {}

Result<Predictor> Predictor::load(const PredictorConfig& config) {
  return guarded([&]() -> Result<Predictor> {
    auto state = std::make_shared<State>();
    PERFMODEL_TRY_TO(state->load(config));
    return Predictor(std::move(state));
  });
}

Result<PreparedGraph> Predictor::prepare(ExecutionGraph graph) const {
  return guarded([&]() -> Result<PreparedGraph> {
    if (top_level_ops(graph).empty()) {
      return decline("expected at least one op, found none", graph.source);
    }
    auto state = state_->prepare(std::move(graph));
    state->predictor = state_;
    return PreparedGraph(std::move(state));
  });
}

Result<PreparedGraph> Predictor::prepare(RecordedProgram program) const {
  if (!program.trace) return prepare(std::move(program.graph));
  return guarded([&]() -> Result<PreparedGraph> {
    auto state = state_->prepare(std::move(program.graph));
    state->trace = std::move(program.trace);
    if (!state_->overheads_named) {
      OverheadTables tables(state_->data);
      PERFMODEL_TRY(own, tables.own(*state->trace, state->graph));
      state->own_overheads = std::move(own->table);
    }
    state->kernel_times = std::vector<Lazy<MovedKernelTimes>>(state_->targets.size());
    state->predictor = state_;
    return PreparedGraph(std::move(state));
  });
}

Result<Prediction> Predictor::predict(const ExecutionGraph& graph, std::string_view gpu,
                                      const AskOptions& options) const {
  return guarded([&] { return state_->predict_batch(graph, nullptr, gpu, options); });
}

Result<Prediction> Predictor::predict(const PreparedGraph& graph, std::string_view gpu,
                                      const AskOptions& options) const {
  return guarded([&]() -> Result<Prediction> {
    if (graph.state_->predictor != state_) {
      return decline("expected a graph that this predictor prepared, found another's");
    }
    return state_->predict_batch(graph.state_->graph, graph.state_.get(), gpu, options);
  });
}

Result<StepScales> Predictor::match_step(const PreparedGraph& graph, std::string_view gpu,
                                         double measured_us, const AskOptions& options) const {
  return perfmodel::match_step(measured_us, [&](const StepScales& scales) {
    AskOptions asked = options;
    asked.host_scale = scales.host;
    asked.device_scale = scales.device;
    asked.times_only = true;
    return predict(graph, gpu, asked);
  });
}

Result<std::vector<Result<Prediction>>> Predictor::predict_many(
    std::span<const Question> questions, const AskManyOptions& options) const {
  return guarded([&]() -> Result<std::vector<Result<Prediction>>> {
    if (questions.empty()) {
      return decline("expected at least one question, found none");
    }
    std::vector<Result<Prediction>> answers(
        questions.size(), Result<Prediction>(fail(ErrorCode::kCancelled, "cancelled")));
    const auto answer = [&](const Question& question) -> Result<Prediction> {
      if ((question.graph != nullptr) == (question.prepared != nullptr)) {
        return guarded([&]() -> Result<Prediction> {
          return decline(fmt::format("expected one graph in a question, found {}",
                                     question.graph ? "two" : "none"));
        });
      }
      return question.graph ? predict(*question.graph, question.gpu, question.options)
                            : predict(*question.prepared, question.gpu, question.options);
    };
    const auto work = [&](std::size_t i) {
      if (options.cancel.stop_requested()) return false;
      answers[i] = answer(questions[i]);
      return true;
    };
    answer_rows(questions.size(), options.threads, options.progress, [&] { return work; });
    return answers;
  });
}

Result<Advice> Predictor::optimize(const PreparedGraph& graph, std::string_view gpu,
                                   const OptimizeOptions& options, const AskOptions& ask) const {
  return guarded([&]() -> Result<Advice> {
    if (graph.state_->predictor != state_) {
      return decline("expected a graph that this predictor prepared, found another's");
    }
    std::shared_ptr<const PreparedGraph::State> retargeted;
    if (graph.state_->is_to_retarget) {
      PERFMODEL_TRY(made, state_->retargeted(*graph.state_, gpu));
      retargeted = std::move(*made);
    }
    const PreparedGraph::State& prepared = retargeted ? *retargeted : *graph.state_;
    PERFMODEL_TRY(found, state_->target(gpu));
    const Target& on = **found;
    std::vector<std::string> warnings = on.warnings;
    PERFMODEL_TRY(links, state_->topology(on, ask, warnings));
    KernelModels models = state_->chosen.models;
    const auto collectives = make_collective_model(**links, {.interference = ask.interference});
    models.set(KernelFamily::kCollective, collectives.get());
    WhatIfTarget target{.gpu = on.gpu,
                        .overheads = &prepared.overheads(on),
                        .options = {.models = &models,
                                    .topology = *links,
                                    .host_scale = ask.host_scale,
                                    .device_scale = ask.device_scale,
                                    .cancel = ask.cancel}};
    PERFMODEL_TRY(times, prepared.kernel_times_for(on));
    if (*times) {
      target.options.kernel_times = &(*times)->times;
      target.options.use = (*times)->use;
    }
    OptimizeOptions asked = options;
    asked.cancel = ask.cancel;
    auto advice = perfmodel::optimize(prepared.graph, target, asked);
    PERFMODEL_TRY_TO(state_->chosen.check());
    if (advice) {
      advice->warnings.insert(advice->warnings.begin(), warnings.begin(), warnings.end());
    }
    return advice;
  });
}

Result<Explanation> Predictor::explain(const Prediction& prediction) const {
  return guarded([&]() -> Result<Explanation> { return perfmodel::explain(prediction); });
}

std::vector<std::string> Predictor::gpus() const {
  std::vector<std::string> names;
  for (const auto& target : state_->targets) names.push_back(target->gpu.name);
  return names;
}

const std::filesystem::path& Predictor::data_folder() const { return state_->data; }

Result<Gpu> Predictor::gpu(std::string_view name) const {
  return guarded([&]() -> Result<Gpu> {
    PERFMODEL_TRY(found, state_->target(name));
    return (*found)->gpu;
  });
}

Predictor::CacheReport Predictor::cache_report() const {
  CacheReport report;
  for (const auto& target : state_->targets) {
    const PriceCache* prices = target->prices_so_far();
    if (!prices) continue;
    report.misses += prices->misses();
    report.prices += prices->size();
    report.bytes += prices->capacity() * PriceCache::kEntryBytes;
  }
  return report;
}

PreparedGraph::PreparedGraph(std::shared_ptr<const State> state) : state_(std::move(state)) {}

const ExecutionGraph& PreparedGraph::graph() const { return state_->graph; }

std::optional<std::int64_t> PreparedGraph::batch() const { return state_->batch; }

}  // namespace perfmodel
