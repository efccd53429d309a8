#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "base/impossible.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/predictors/detail/collective_model.hpp"
#include "predict/report_maker.hpp"
#include "program/data_parallel_graph.hpp"

namespace perfmodel {
namespace {

Result<double> value_of_rank(const std::vector<double>& values, const char* flag, std::size_t rank,
                             std::size_t ranks, double otherwise) {
  if (values.empty()) return otherwise;
  if (values.size() == 1) return values.front();
  if (values.size() == ranks) return values[rank];
  return impossible(fmt::format("one value of {} or one per rank ({})", flag, ranks),
                    values.size());
}

// One name per rank; one GPU is on all ranks that the question has.
Result<std::vector<std::string>> gpus_of(const PredictionQuestion& question) {
  PERFMODEL_TRY(gpus, sync::gpus_of_ranks(question.gpu));
  const auto world = static_cast<std::size_t>(question.world);
  if (world > 0 && gpus->size() > 1 && world != gpus->size()) {
    return decline(fmt::format("expected as many GPUs as --world says ({}), found {}",
                               question.world, gpus->size()));
  }
  const UnlikeRanks& unlike = question.unlike;
  const std::size_t lists = std::max({unlike.host_scales.size(), unlike.slowdowns.size(),
                                      unlike.links_gb_per_s.size(), question.graphs.size()});
  if (gpus->size() == 1) {
    gpus->resize(world > 1 ? world : std::max<std::size_t>(lists, 1), gpus->front());
  }
  return gpus;
}

// Neighbours and others that are alike are one kind, in the order of their first ranks.
Result<std::vector<KindOfRanks>> kinds_of(const PredictionQuestion& question) {
  PERFMODEL_TRY(gpus, gpus_of(question));
  const UnlikeRanks& unlike = question.unlike;
  const std::size_t ranks = gpus->size();
  if (question.graphs.size() > 1 && question.graphs.size() != ranks) {
    return impossible(fmt::format("one graph for all ranks or one per rank ({})", ranks),
                      question.graphs.size());
  }
  std::vector<KindOfRanks> kinds;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto host =
        value_of_rank(unlike.host_scales, "--host-scale", r, ranks, question.host_scale);
    const auto slow = value_of_rank(unlike.slowdowns, "--slowdown", r, ranks, 1);
    const auto link = value_of_rank(unlike.links_gb_per_s, "--link-gb-per-s", r, ranks, 0);
    for (const auto* value : {&host, &slow, &link}) {
      if (!*value) return Unexpected{value->error()};
    }
    const KindOfRanks kind{.gpu = (*gpus)[r],
                           .slowdown = *slow,
                           .link_gb_per_s = *link,
                           .host_scale = *host,
                           .graph = question.graphs.size() > 1 ? r : 0};
    const auto known = std::ranges::find_if(kinds, [&](KindOfRanks other) {
      other.count = kind.count;
      return other == kind;
    });
    if (known == kinds.end()) {
      kinds.push_back(kind);
    } else {
      ++known->count;
    }
  }
  return kinds;
}

class MixedRanks : ReportMaker {
 public:
  MixedRanks(const PredictionQuestion& question, const QuestionReaders& read)
      : ReportMaker(question), read_(read) {}

  Result<PredictionReport> run() {
    PERFMODEL_TRY(kinds, kinds_of(question_));
    kinds_ = std::move(*kinds);
    for (const KindOfRanks& kind : kinds_) ranks_ += kind.count;
    PERFMODEL_TRY(data, find_data_folder());
    PERFMODEL_TRY_TO(choose_models(ranks_));
    PERFMODEL_TRY_TO(read_graphs());
    OverheadTables tables(*data);
    for (const KindOfRanks& kind : kinds_) PERFMODEL_TRY_TO(set_up(kind, *data / "gpus", tables));
    PERFMODEL_TRY_TO(predict());
    add_ranks();
    PERFMODEL_TRY_TO(finish());
    add_warnings();
    report_.mixed_graphs = std::move(graphs_);
    return std::move(report_);
  }

 private:
  /// The GPU and the models that price one kind of ranks.
  struct Machine {
    Gpu gpu;
    std::unique_ptr<KernelModel> collectives, linked;
    KernelModels models;
    ChosenOverheads overheads;
  };

  Result<void> read_graphs() {
    PERFMODEL_TRY(inputs, read_.programs(question_.graphs));
    for (RecordedProgram& input : *inputs) {
      if (input.trace) {
        return impossible("graphs of ranks that differ", "a trace, which knows its own machine");
      }
      PERFMODEL_TRY_TO(retarget_program(input.graph));
      if (!question_.rewrites.empty()) {
        PERFMODEL_TRY(rewritten, rewrite_input(input.graph, question_.rewrites));
        input.graph = std::move(*rewritten);
      }
      PERFMODEL_TRY_TO(add_graph(std::move(input.graph)));
    }
    return {};
  }

  // All ranks of a captured graph call the libraries of one vendor.
  Result<void> retarget_program(ExecutionGraph& graph) const {
    if (!is_to_retarget(graph)) return {};
    PERFMODEL_TRY(data, find_data_folder());
    std::vector<Gpu> gpus;
    for (const KindOfRanks& kind : kinds_) {
      PERFMODEL_TRY(gpu, find_gpu(kind.gpu, *data / "gpus"));
      gpus.push_back(std::move(*gpu));
    }
    if (std::ranges::any_of(gpus, [&](const Gpu& g) { return g.vendor != gpus[0].vendor; })) {
      return impossible("GPUs of one vendor for a captured graph", "GPUs of several");
    }
    return retarget_for(gpus[0], graph, question_.rewrites);
  }

  // As one rank of DistributedDataParallel, if the question asks for that.
  Result<void> add_graph(ExecutionGraph graph) {
    if (!question_.strategy) {
      graphs_.push_back(std::move(graph));
      return {};
    }
    ScaleOut how{.world = ranks_};
    how.ddp.delayed = question_.delay_allreduce;
    if (question_.bucket_mb.value_or(0) > 0) {
      how.ddp.bucket_cap_bytes = how.ddp.first_bucket_bytes = *question_.bucket_mb * 1024 * 1024;
    }
    if (const std::size_t updates = fused_updates(graph); updates > 0) {
      warn(
          fmt::format("{} updates of embedding tables in the backward pass itself, without "
                      "gradients: ddp keeps all these tables on every rank and does not "
                      "synchronise them",
                      updates));
    }
    PERFMODEL_TRY(parallel, make_data_parallel_graph(graph, how));
    graphs_.push_back(std::move(parallel->graph));
    return {};
  }

  Result<void> set_up(const KindOfRanks& kind, const std::filesystem::path& gpus,
                      OverheadTables& tables) {
    Machine& machine = machines_.emplace_back();
    PERFMODEL_TRY(gpu, find_gpu(kind.gpu, gpus));
    machine.gpu = std::move(*gpu);
    for (std::string& sentence : stand_ins(machine.gpu)) warn(std::move(sentence));
    machine.models = chosen_.models;
    machine.collectives = make_collective_model(topology_ ? *topology_ : topology_for(machine.gpu),
                                                {.interference = question_.interference});
    machine.models.set(KernelFamily::kCollective, machine.collectives.get());
    if (kind.link_gb_per_s > 0) {
      machine.linked =
          sync::make_linked_collectives(*machine.collectives, {kind.link_gb_per_s * 1e9});
      machine.models.set(KernelFamily::kCollective, machine.linked.get());
    }
    PERFMODEL_TRY(
        chosen,
        tables.choose(question_.overheads.empty() ? "" : question_.overheads.front(), machine.gpu));
    warn(chosen->warning);
    machine.overheads = std::move(*chosen);
    return {};
  }

  Result<void> predict() {
    std::vector<PlacedRank> ranks;
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      const Machine& machine = machines_[i];
      PlacedRank rank{.rank = {.graph = &graphs_[kinds_[i].graph],
                               .table = machine.overheads.table.get(),
                               .options = {.models = &machine.models, .world_size = ranks_},
                               .name = fmt::format("{} x {}", kinds_[i].count, machine.gpu.name)},
                      .gpu = &machine.gpu,
                      .count = kinds_[i].count,
                      .slowdown = kinds_[i].slowdown};
      PredictOptions& options = rank.rank.options;
      options.topology = topology_ ? &*topology_ : nullptr;
      options.host_scale = kinds_[i].host_scale;
      options.sustained = question_.sustained;
      options.launching = question_.launching;
      options.what_if_steps = question_.what_if_steps;
      options.keep_calls = question_.keep_calls;
      options.host_sensitivity = true;
      ranks.push_back(std::move(rank));
    }
    std::optional<sync::StragglerDraws> draws;
    const UnlikeRanks& unlike = question_.unlike;
    if (!unlike.straggler.empty()) {
      PERFMODEL_TRY(straggler, sync::Straggler::parse(unlike.straggler));
      draws = {.straggler = *straggler, .seed = unlike.seed, .draws = unlike.draws};
    }
    PERFMODEL_TRY(
        predicted,
        sync::predict_mixed_job(
            ranks, {.rank_start_us = {}, .missing_collectives = question_.missing_collectives},
            draws));
    job_ = std::move(predicted->job);
    report_.drawn = predicted->drawn;
    return {};
  }

  void add_ranks() {
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      const KindOfRanks& kind = kinds_[i];
      RankPrediction& rank =
          report_.ranks.emplace_back(rank_of(question_.graphs[kind.graph], graphs_[kind.graph],
                                             machines_[i].overheads, kind.host_scale));
      rank.mixed = kind;
      rank.mixed->gpu = machines_[i].gpu.name;
      rank.prediction = std::move(job_.ranks[i]);
      rank.prediction.ranks = std::max(rank.prediction.ranks, ranks_);
    }
    report_.job = job_.job;
    report_.gpu = machines_[report_.slowest()].gpu;
  }

  void add_warnings() {
    for (const RankPrediction& rank : report_.ranks) {
      for (const std::string& warning : rank.prediction.warnings) warn(warning);
    }
    for (std::string& warning : job_.warnings) warn(std::move(warning));
    warn(report_.mfu_warning());
    if (!communicates() && ranks_ > 1) {
      warn(
          "there are no collectives: the ranks do not wait for each other (--strategy ddp runs "
          "the graph of one rank on all of them; `whatif GRAPH --gpus` compares GPUs)");
    }
  }

  const QuestionReaders& read_;
  std::vector<KindOfRanks> kinds_;
  std::int64_t ranks_ = 0;
  std::deque<ExecutionGraph> graphs_;
  std::deque<Machine> machines_;
  JobPrediction job_;
};

}  // namespace

Result<PredictionReport> report_mixed_job(const PredictionQuestion& question,
                                          const QuestionReaders& read) {
  return MixedRanks(question, read).run();
}

}  // namespace perfmodel
