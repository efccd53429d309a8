#include "predict_mixed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "arguments.hpp"
#include "base/impossible.hpp"
#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/predictors/detail/collective_model.hpp"
#include "program/data_parallel_graph.hpp"
#include "read_files.hpp"
#include "sync/mixed_job.hpp"
#include "terminal/cli11.hpp"

namespace perfmodel::cli {
namespace {

/// What tells the ranks of a job apart.
struct RankKind {
  std::string gpu;
  double host_scale = 1, slowdown = 1, link_gb_per_s = 0;  ///< link 0: that of the topology
  std::size_t graph = 0;
  bool operator==(const RankKind&) const = default;
};

struct CountedKind {
  RankKind kind;
  std::int64_t count = 0;
};

Result<double> value_of_rank(const std::vector<double>& values, const char* flag, std::size_t rank,
                             std::size_t ranks, double otherwise) {
  if (values.empty()) return otherwise;
  if (values.size() == 1) return values.front();
  if (values.size() == ranks) return values[rank];
  return impossible(fmt::format("one value of {} or one per rank ({})", flag, ranks),
                    values.size());
}

// Neighbours and others that are alike are one kind, in the order of their first ranks.
Result<std::vector<CountedKind>> kinds_of(const MixedArguments& mixed,
                                          const MixedQuestion& question) {
  auto gpus = sync::gpus_of_ranks(question.gpus);
  if (!gpus) return Unexpected{gpus.error()};
  const std::size_t lists = std::max({mixed.host_scales.size(), mixed.slowdowns.size(),
                                      mixed.links_gb_per_s.size(), question.graphs.size()});
  if (gpus->size() == 1) gpus->resize(std::max<std::size_t>(lists, 1), gpus->front());
  const std::size_t ranks = gpus->size();
  if (question.graphs.size() > 1 && question.graphs.size() != ranks) {
    return impossible(fmt::format("one graph for all ranks or one per rank ({})", ranks),
                      question.graphs.size());
  }
  std::vector<CountedKind> kinds;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto host =
        value_of_rank(mixed.host_scales, "--host-scale", r, ranks, question.host_scale);
    const auto slow = value_of_rank(mixed.slowdowns, "--slowdown", r, ranks, 1);
    const auto link = value_of_rank(mixed.links_gb_per_s, "--link-gb-per-s", r, ranks, 0);
    for (const auto* value : {&host, &slow, &link}) {
      if (!*value) return Unexpected{value->error()};
    }
    const RankKind kind{.gpu = (*gpus)[r],
                        .host_scale = *host,
                        .slowdown = *slow,
                        .link_gb_per_s = *link,
                        .graph = question.graphs.size() > 1 ? r : 0};
    const auto known = std::ranges::find(kinds, kind, &CountedKind::kind);
    if (known == kinds.end()) {
      kinds.push_back({kind, 1});
    } else {
      ++known->count;
    }
  }
  return kinds;
}

class MixedRun {
 public:
  MixedRun(const MixedArguments& mixed, const MixedQuestion& question)
      : mixed_(mixed), question_(question) {}

  Result<PredictionReport> run() {
    auto kinds = kinds_of(mixed_, question_);
    if (!kinds) return Unexpected{kinds.error()};
    kinds_ = std::move(*kinds);
    for (const CountedKind& kind : kinds_) ranks_ += kind.count;
    if (auto done = read(); !done) return Unexpected{done.error()};
    for (const CountedKind& kind : kinds_) {
      if (auto done = place(kind); !done) return Unexpected{done.error()};
    }
    if (auto done = predict(); !done) return Unexpected{done.error()};
    if (auto readable = chosen_.check(); !readable) return Unexpected{readable.error()};
    report();
    report_.mixed_graphs = std::move(graphs_);
    return std::move(report_);
  }

 private:
  /// A kind of ranks with what prices it.
  struct Place {
    Gpu gpu;
    std::unique_ptr<KernelModel> collectives, linked;
    KernelModels models;
    ChosenOverheads overheads;
  };

  Result<void> read() {
    auto data = find_data_folder();
    if (!data) return Unexpected{data.error()};
    data_ = *data;
    tables_.emplace(data_);
    auto models = choose_kernel_models(question_.models);
    if (!models) return Unexpected{models.error()};
    chosen_ = std::move(*models);
    report_.models = question_.models;
    if (!chosen_.warning.empty()) {
      warn(chosen_.warning);
      report_.models = "heuristic";
    }
    if (!question_.topology.empty()) {
      auto found = TopologyCatalog::builtin().find(question_.topology);
      if (!found) return Unexpected{found.error()};
      topology_ = std::move(*found);
      if (auto good = check_fits(*topology_, ranks_); !good) return good;
      for (std::string& sentence : stand_ins(*topology_)) warn(std::move(sentence));
    }
    auto inputs = read_programs(question_.graphs, question_.reading);
    if (!inputs) return Unexpected{inputs.error()};
    for (RecordedProgram& input : *inputs) {
      if (input.trace) {
        return impossible("graphs of ranks that differ", "a trace, which knows its own machine");
      }
      if (auto made = take_graph(std::move(input.graph)); !made) return made;
    }
    return {};
  }

  // As one rank of DistributedDataParallel, where that is asked for.
  Result<void> take_graph(ExecutionGraph graph) {
    if (!question_.ddp) {
      graphs_.push_back(std::move(graph));
      return {};
    }
    ScaleOut how{.world = ranks_};
    if (question_.bucket_mb > 0) {
      how.ddp.bucket_cap_bytes = how.ddp.first_bucket_bytes = question_.bucket_mb * 1024 * 1024;
    }
    if (const std::size_t updates = fused_updates(graph); updates > 0) {
      warn(
          fmt::format("{} updates of embedding tables in the backward pass itself, without "
                      "gradients: ddp keeps all these tables on every rank and does not "
                      "synchronise them",
                      updates));
    }
    auto made = make_data_parallel_graph(graph, how);
    if (!made) return Unexpected{made.error()};
    graphs_.push_back(std::move(made->graph));
    return {};
  }

  Result<void> place(const CountedKind& kind) {
    Place& made = places_.emplace_back();
    auto gpu = find_gpu(kind.kind.gpu, data_ / "gpus");
    if (!gpu) return Unexpected{gpu.error()};
    made.gpu = std::move(*gpu);
    for (std::string& sentence : stand_ins(made.gpu)) warn(std::move(sentence));
    made.models = chosen_.models;
    made.collectives = make_collective_model(topology_ ? *topology_ : topology_for(made.gpu),
                                             {.interference = question_.interference});
    made.models.set(KernelFamily::kCollective, made.collectives.get());
    if (kind.kind.link_gb_per_s > 0) {
      made.linked =
          sync::make_linked_collectives(*made.collectives, {kind.kind.link_gb_per_s * 1e9});
      made.models.set(KernelFamily::kCollective, made.linked.get());
    }
    auto chosen = tables_->choose(question_.overheads, made.gpu);
    if (!chosen) return Unexpected{chosen.error()};
    if (!chosen->warning.empty()) warn(chosen->warning);
    made.overheads = std::move(*chosen);
    return {};
  }

  Result<void> predict() {
    std::vector<PlacedRank> ranks;
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      const Place& place = places_[i];
      PlacedRank rank{.rank = {.graph = &graphs_[kinds_[i].kind.graph],
                               .table = place.overheads.table.get(),
                               .options = {.models = &place.models, .world_size = ranks_},
                               .name = title(i)},
                      .gpu = &place.gpu,
                      .count = kinds_[i].count,
                      .slowdown = kinds_[i].kind.slowdown};
      PredictOptions& options = rank.rank.options;
      options.host_scale = kinds_[i].kind.host_scale;
      options.sustained = question_.sustained;
      options.launching = question_.launching;
      options.what_if_steps = question_.what_if_steps;
      options.keep_calls = question_.keep_calls;
      options.host_sensitivity = true;
      ranks.push_back(std::move(rank));
    }
    std::optional<sync::StragglerDraws> draws;
    if (!mixed_.straggler.empty()) {
      const auto straggler = sync::Straggler::parse(mixed_.straggler);
      if (!straggler) return Unexpected{straggler.error()};
      draws = {.straggler = *straggler, .seed = mixed_.seed, .draws = mixed_.draws};
    }
    auto made = sync::predict_mixed_job(
        ranks, {.rank_start_us = {}, .missing_collectives = question_.missing_collectives}, draws);
    if (!made) return Unexpected{made.error()};
    job_ = std::move(made->job);
    report_.drawn = made->drawn;
    return {};
  }

  std::string title(std::size_t i) const {
    return fmt::format("{} x {}", kinds_[i].count, places_[i].gpu.name);
  }

  void report() {
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      const RankKind& kind = kinds_[i].kind;
      const ChosenOverheads& host = places_[i].overheads;
      report_.ranks.push_back({.graph_file = file_name(question_.graphs[kind.graph]),
                               .graph = graphs_[kind.graph],
                               .overheads_file = host.file,
                               .overheads_method = host.table->method,
                               .overheads_gpu = host.table->gpu,
                               .overheads_sources = host.table->sources,
                               .overheads_programs = host.table->programs,
                               .host_scale = kind.host_scale});
      RankPrediction& rank = report_.ranks.back();
      rank.mixed = MixedRankFacts{.gpu = places_[i].gpu.name,
                                  .count = kinds_[i].count,
                                  .slowdown = kind.slowdown,
                                  .link_gb_per_s = kind.link_gb_per_s};
      rank.prediction = std::move(job_.ranks[i]);
      rank.prediction.ranks = std::max(rank.prediction.ranks, ranks_);
      if (const auto batch = samples_per_step(rank.graph)) rank.prediction.batch = *batch;
      for (const std::string& warning : rank.prediction.warnings) warn(warning);
    }
    report_.job = job_.job;
    for (std::string& warning : job_.warnings) warn(std::move(warning));
    const std::size_t slowest = report_.slowest();
    report_.gpu = places_[slowest].gpu;
    const RankPrediction& rank = report_.ranks[slowest];
    report_.work = step_work(rank.graph, report_.gpu, rank.prediction.batch);
    if (std::string warning = report_.mfu_warning(); !warning.empty()) warn(std::move(warning));
    if (chosen_.owner) report_.model_files = chosen_.owner->files_read();
    const bool communicates = std::ranges::any_of(report_.ranks, [](const RankPrediction& one) {
      return one.prediction.communication.collectives > 0;
    });
    if (!communicates && ranks_ > 1) {
      warn(
          "there are no collectives: the ranks do not wait for each other (--strategy ddp runs "
          "the graph of one rank on all of them; `whatif GRAPH --gpus` compares GPUs)");
    }
  }

  void warn(std::string warning) {
    if (std::ranges::find(report_.warnings, warning) == report_.warnings.end()) {
      report_.warnings.push_back(std::move(warning));
    }
  }

  const MixedArguments& mixed_;
  const MixedQuestion& question_;
  std::filesystem::path data_;
  std::optional<OverheadTables> tables_;
  ChosenKernelModels chosen_;
  std::optional<Topology> topology_;
  std::vector<CountedKind> kinds_;
  std::int64_t ranks_ = 0;
  std::deque<ExecutionGraph> graphs_;
  std::deque<Place> places_;
  JobPrediction job_;
  PredictionReport report_;
};

}  // namespace

void add_mixed_flags(CLI::App& app, MixedArguments& arguments) {
  app.add_option("--host-scale", arguments.host_scales,
                 "Multiplies the host's own time: one value, or one per rank")
      ->delimiter(',')
      ->check(between(1 / kMostHostScale, kMostHostScale))
      ->type_name("X,...");
  app.add_option("--slowdown", arguments.slowdowns,
                 "Multiplies all times of a rank but those of collectives: one value, or one per "
                 "rank")
      ->delimiter(',')
      ->check(between(1 / kMostHostScale, kMostHostScale))
      ->type_name("X,...");
  app.add_option("--link-gb-per-s", arguments.links_gb_per_s,
                 "What a rank's link to the others carries in one direction, where that is less "
                 "than the topology's: one value, or one per rank")
      ->delimiter(',')
      ->check(between(1e-6, 1e6))
      ->type_name("X,...");
  auto* straggler = app.add_option("--straggler", arguments.straggler,
                                   "Distribution of a rank's times, drawn for each step: "
                                   "lognormal:DEVIATION, uniform:SHARE, exponential:SHARE, "
                                   "pause:PROBABILITY:FACTOR")
                        ->type_name("TEXT");
  app.add_option("--seed", arguments.seed, "Seed of the stragglers (default: 0)")
      ->needs(straggler)
      ->type_name("N");
  app.add_option("--draws", arguments.draws, "Steps that are drawn (default: 1000)")
      ->check(between(1, 1e7))
      ->needs(straggler)
      ->type_name("N");
}

Result<PredictionReport> predict_mixed(const MixedArguments& mixed, const MixedQuestion& question) {
  return MixedRun(mixed, question).run();
}

}  // namespace perfmodel::cli
