#include "prediction_fields.hpp"

#include <fmt/format.h>

#include <tuple>
#include <utility>

#include "perfmodel/predict.hpp"

namespace perfmodel {
namespace {

constexpr FieldRange kScales = {1 / kMostHostScale, kMostHostScale}, kMegabytes = {.low = 0},
                     kRanks = {1, 1 << 20}, kInterference = {1, 1000}, kDraws = {1, 1e7},
                     kLinkSpeeds = {1e-6, 1e6},
                     kStarts = {-1e16, 1e16};  // epoch stamps are 1.7e15 us

// A field that is only given together with another one.
template <class AnyField>
constexpr AnyField needing(std::string_view other, std::string_view name,
                           decltype(AnyField::member) member, std::string_view help,
                           std::string_view takes = {}, FieldRange range = {}) {
  return {name, member, help, takes, range, {}, nullptr, other};
}

constexpr PredictionField kPredictionFields[] = {
    {"gpu", &PredictionQuestion::gpu,
     "Name of a known GPU (see `gpus`), or a GPU file; NAME:COUNT,... or one name per rank for a "
     "job on several kinds",
     "NAME"},
    {"kernel_times", &PredictionQuestion::kernel_times,
     "Take durations from a trace of the same program: one for all graphs or one per graph",
     "TRACE"},
    {"iterations", &PredictionQuestion::iterations, "Iterations to use (see below)"},
    needing<PredictionField>("kernel_times", "kernel_iterations",
                             &PredictionQuestion::kernel_iterations,
                             "Iterations of the trace to take durations from"),
    {"against", &PredictionQuestion::against,
     "Compare the prediction with a measured trace of the same program, one trace per graph",
     "TRACE"},
    needing<PredictionField>("against", "against_iterations",
                             &PredictionQuestion::against_iterations,
                             "Iterations of that trace to compare with"),
    {"world", &PredictionQuestion::world,
     "Number of ranks, for --strategy and for collectives whose group size is not recorded", "N",
     kRanks},
    {"topology", &PredictionQuestion::topology,
     "How GPUs and nodes are connected: a name of data/topologies/ or a file (default: the usual "
     "node of this GPU)",
     "NAME"},
    needing<PredictionField>("strategy", "bucket_mb", &PredictionQuestion::bucket_mb,
                             "DDP: MiB of gradients per all-reduce (default 25, the first one 1)",
                             "MIB", kMegabytes),
    needing<PredictionField>("strategy", "unit_mb", &PredictionQuestion::unit_mb,
                             "FSDP: MB of parameters per unit (default 100)", "MB", kMegabytes),
    needing<PredictionField>("strategy", "delay_allreduce", &PredictionQuestion::delay_allreduce,
                             "DDP: reduce all gradients after the backward pass, in one buffer per "
                             "type (Apex's delay_allreduce)"),
    needing<PredictionField>("world", "stages", &PredictionQuestion::stages,
                             "Stages of the pipeline that the one graph is a rank of; its sends "
                             "and receives cut it into microbatches, and the other stages are "
                             "copies of it (default: 1)",
                             "P", kRanks),
    needing<PredictionField>("stages", "stage_layers", &PredictionQuestion::stage_layers,
                             "Layers of each stage, if they differ: a stage's work takes as many "
                             "times the recorded one's as it has more layers",
                             "N,...", kRanks),
    {"interference", &PredictionQuestion::interference,
     "Multiply the time of collectives on the wire by this (kernels that run meanwhile slow "
     "without it)",
     "X", kInterference},
    {"rank_start", &PredictionQuestion::rank_start_us,
     "Time at which each rank begins the step, in microseconds on one clock: predicts this one "
     "step instead of the steady state",
     "US", kStarts},
    {"missing_collectives", &PredictionQuestion::missing_collectives,
     "Go on where a rank lacks a collective that others have"},
};

constexpr UnlikeRanksField kUnlikeRanksFields[] = {
    {"host_scale", &UnlikeRanks::host_scales,
     "Multiplies the host's own time: one value, or one per rank", "X,...", kScales},
    {"slowdown", &UnlikeRanks::slowdowns,
     "Multiplies all times of a rank except of collectives: one value, or one per rank", "X,...",
     kScales},
    {"link_gb_per_s", &UnlikeRanks::links_gb_per_s,
     "Rate of a rank's link to the others in one direction, if it is less than the "
     "topology's: one value, or one per rank",
     "X,...", kLinkSpeeds},
    {"straggler", &UnlikeRanks::straggler,
     "Distribution of a rank's times, drawn for each step: lognormal:DEVIATION, uniform:SHARE, "
     "exponential:SHARE, pause:PROBABILITY:FACTOR",
     "TEXT"},
    needing<UnlikeRanksField>("straggler", "seed", &UnlikeRanks::seed,
                              "Seed of the stragglers (default: 0)", "N"),
    needing<UnlikeRanksField>("straggler", "draws", &UnlikeRanks::draws,
                              "Steps that are drawn (default: 1000)", "N", kDraws),
};

// Finds a part of the question that a job of unlike ranks has no answer to.
std::optional<QuestionProblem> problem_of_unlike_ranks(const PredictionQuestion& question) {
  const std::pair<bool, const char*> refused[] = {
      {!question.kernel_times.empty(), "--kernel-times"},
      {!question.against.empty(), "--against"},
      {!question.rank_start_us.empty(), "--rank-start"},
      {question.keep_chakra, "--chakra"},
      {question.measured.us.has_value(), "--measured-step"},
      {question.iterations.has_value(), "--iterations"},
      {question.strategy == ParallelStrategy::kFsdp, "--strategy fsdp"}};
  for (const auto& [given, flag] : refused) {
    if (!given) continue;
    return QuestionProblem{
        flag, "expected ranks that are alike, found several GPUs or times and links per rank"};
  }
  if (question.overheads.size() <= 1) return std::nullopt;
  return QuestionProblem{"--overheads", "expected one for all ranks, found several"};
}

std::optional<QuestionProblem> problem_of_stages(const PredictionQuestion& question) {
  if (question.stages == 1) return std::nullopt;
  const auto problem = [](std::string message) {
    return QuestionProblem{"--stages", std::move(message)};
  };
  if (question.graphs.size() > 1) {
    return problem(
        fmt::format("expected the graph of one rank, found {} graphs", question.graphs.size()));
  }
  if (!question.rank_start_us.empty()) return problem("expected no --rank-start, found one");
  if (question.has_unlike_ranks()) return problem("expected ranks that are alike");
  return std::nullopt;
}

}  // namespace

std::span<const PredictionField> prediction_fields() { return kPredictionFields; }
std::span<const UnlikeRanksField> unlike_ranks_fields() { return kUnlikeRanksFields; }

std::optional<FieldProblem> problem_of_ranks(std::int64_t world, std::int64_t stages,
                                             std::optional<ParallelStrategy> strategy,
                                             bool delay_allreduce) {
  if (delay_allreduce && strategy != ParallelStrategy::kDdp) {
    return FieldProblem{"delay_allreduce", fmt::format("expected the strategy ddp, found {}",
                                                       strategy ? "fsdp" : "none")};
  }
  if (stages == 1) return std::nullopt;
  if (stages < 1 || world < stages || world % stages != 0) {
    return FieldProblem{"stages",
                        fmt::format("expected a divisor of {} ranks, found {}", world, stages)};
  }
  if (strategy) return FieldProblem{"stages", "expected no strategy, found one"};
  return std::nullopt;
}

std::optional<QuestionProblem> problem_of(const PredictionQuestion& question) {
  if (question.has_unlike_ranks()) {
    if (auto problem = problem_of_unlike_ranks(question)) return problem;
  }
  const std::size_t graphs = question.graphs.size();
  if (graphs == 0) return QuestionProblem{"GRAPH", ""};
  const std::string several =
      fmt::format("expected the graph of one rank, found {} graphs", graphs);
  if (question.measured.us && graphs > 1) return QuestionProblem{"--measured-step", several};
  const std::tuple<const char*, std::size_t, std::size_t, const char*> lists[] = {
      {"--overheads", question.overheads.size(), 1, "one file for all graphs or one"},
      {"--kernel-times", question.kernel_times.size(), 1, "one file for all graphs or one"},
      {"--against", question.against.size(), 0, "one trace"},
      {"--rank-start", question.rank_start_us.size(), 0, "one start"}};
  for (const auto& [flag, count, for_all, expected] : lists) {
    if (count <= for_all || count == graphs) continue;
    return QuestionProblem{
        flag, fmt::format("expected {} per graph ({}), found {}", expected, graphs, count)};
  }
  if (auto problem = problem_of_ranks(question.world, question.stages, question.strategy,
                                      question.delay_allreduce)) {
    return QuestionProblem{flag_of(problem->field), std::move(problem->message)};
  }
  if (auto problem = problem_of_stages(question)) return problem;
  if (!question.strategy) return std::nullopt;
  if (question.delay_allreduce && question.bucket_mb) {
    return QuestionProblem{"--delay-allreduce", "expected no --bucket-mb: there are no buckets"};
  }
  if (question.world == 0 && !question.names_several_gpus()) return QuestionProblem{"--world", ""};
  const bool is_ddp = question.strategy == ParallelStrategy::kDdp;
  if (is_ddp ? question.unit_mb : question.bucket_mb) {
    return is_ddp ? QuestionProblem{"--unit-mb", "expected --strategy fsdp, found ddp"}
                  : QuestionProblem{"--bucket-mb", "expected --strategy ddp, found fsdp"};
  }
  if (graphs > 1) return QuestionProblem{"--strategy", several};
  return std::nullopt;
}

}  // namespace perfmodel
