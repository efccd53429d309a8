#include "pipeline_stages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cut_step.hpp"
#include "program/given_times.hpp"

namespace perfmodel {
namespace {

// Numbers and streams of messages that no recorded collective has.
constexpr std::int64_t kFirstNumber = std::int64_t{1} << 40;
constexpr std::int32_t kMessages = 1 << 20, kFirstStream = 60;

std::string name_of(const PassOrder& order) {
  if (order.chunks == 1) return order.gpipe ? "GPipe" : "1F1B";
  return fmt::format("{} in {} chunks", order.gpipe ? "interleaved GPipe" : "interleaved 1F1B",
                     order.chunks);
}

/// The number of chunks with which an interleaved order looks the same on a stage in the middle
/// that runs all forward passes first; 0: with none.
std::int64_t chunks_unseen(const CutStep& step) {
  const PassOrder& at = step.order;
  const bool tells = step.stage == 0 || step.stage == at.stages - 1;
  if (!at.gpipe || tells || at.microbatches % at.stages != 0) return 0;
  const std::int64_t chunks = at.microbatches / at.stages;
  const PassOrder other{.stages = at.stages, .chunks = chunks, .microbatches = at.stages};
  return chunks > 1 && other.warm_up(step.stage) == step.warm_up ? chunks : 0;
}

/// Writes the program of one stage.
class StageWriter {
 public:
  /// `longer`: factor on all work of the stage.
  StageWriter(const RankProgram& rank, const CutStep& step, std::int64_t stage, double longer)
      : rank_(rank), step_(step), stage_(stage), longer_(longer), made_(rank) {
    made_.program.items.clear();
    made_.program.kernels.clear();
    made_.program.instructions.clear();
    made_.program.collectives.clear();
    made_.questions.clear();
    made_.notes.reset();
    made_.count = std::max<std::int64_t>(1, rank.rank.options.world_size);
    const auto& instructions = rank.program.instructions;
    begin_.assign(rank.program.items.size() + 1, instructions.size());
    for (std::size_t i = instructions.size(); i-- > 0;) begin_[instructions[i].item] = i;
    for (std::size_t i = rank.program.items.size(); i-- > 0;) {
      begin_[i] = std::min(begin_[i], begin_[i + 1]);
    }
  }

  /// The forward passes of the warm-up, then a backward and a forward pass in turn.
  RankProgram write() {
    const PassOrder& order = step_.order;
    std::int64_t done = 0;
    for (std::int64_t k = 0; k < order.passes(); ++k) {
      for (; done < std::min(k + order.warm_up(stage_), order.passes()); ++done) {
        write_pass(step_.forward[done], order.chunk_of(done), order.microbatch_of(done));
      }
      write_pass(step_.backward[k], order.chunks - 1 - order.chunk_of(k), order.microbatch_of(k));
    }
    for (const std::int32_t item : step_.tail) copy(item, longer_);
    scale_host(made_.program, longer_);
    return std::move(made_);
  }

 private:
  /// Chunks are places of one long pipeline, which goes through the stages several times.
  void write_pass(const Pass& pass, std::int64_t chunk, std::int64_t batch) {
    const std::int64_t place = chunk * step_.order.stages + stage_;
    const std::int64_t on = pass.backward ? -1 : 1;
    message(true, pass.backward, place, place - on, batch);
    for (const std::int32_t item : pass.items) copy(item, longer_);
    message(false, pass.backward, place, place + on, batch);
  }

  /// Copies an item, whose kernels take `longer` times as long.
  void copy(std::int32_t item, double longer) {
    HostProgram& to = made_.program;
    const HostProgram& from = rank_.program;
    ProgramItem made = from.items[item];
    const auto kernels = std::span(from.kernels).subspan(made.first_kernel, made.kernels);
    const auto first = static_cast<std::int32_t>(to.kernels.size());
    const std::int32_t moved = first - static_cast<std::int32_t>(made.first_kernel);
    made.first_kernel = static_cast<std::uint32_t>(first);
    for (const PredictedKernel& kernel : kernels) {
      scale(to.kernels.emplace_back(kernel).price, longer);
    }
    for (std::size_t i = begin_[item]; i < begin_[item + 1]; ++i) {
      Instruction at = from.instructions[i];
      at.item = static_cast<std::int32_t>(to.items.size());
      if (Launch* launch = launch_of(at)) {
        launch->kernel += moved;
        if (launch->is_collective()) launch->collective = to.add(from.collective(*launch));
      }
      to.instructions.push_back(std::move(at));
    }
    to.items.push_back(made);
  }

  // The meeting has a number that both ends count alike. The ends of the pipeline have no
  // neighbour.
  void message(bool receives, bool backward, std::int64_t place, std::int64_t other,
               std::int64_t batch) {
    const PassOrder& order = step_.order;
    if (other < 0 || other == order.stages * order.chunks) return;
    HostProgram& to = made_.program;
    const std::size_t first = to.instructions.size();
    copy(receives ? step_.receive : step_.send, 1);
    const std::int64_t peer = other % order.stages;
    const std::int64_t number =
        2 * (std::min(place, other) * order.microbatches + batch) + (backward ? 1 : 0);
    for (std::size_t i = first; i < to.instructions.size(); ++i) {
      Launch* launch = launch_of(to.instructions[i]);
      if (!launch || !launch->is_collective()) continue;
      CollectiveLaunch& own = to.collective(*launch);
      own.meeting = static_cast<std::int32_t>(number);
      own.sequence = kFirstNumber + number;
      own.group = kMessages;
      own.from = static_cast<std::int32_t>(receives ? peer : stage_);
      own.to = static_cast<std::int32_t>(receives ? stage_ : peer);
      launch->record = -1;
      launch->stream = kFirstStream + (backward ? 2 : 0) + (receives ? 1 : 0);
    }
    if (!receives) return;
    to.instructions.push_back(
        {.item = static_cast<std::int32_t>(to.items.size()) - 1,
         .thread = to.items.back().thread,
         .what = DeviceWait{.sequence = kFirstNumber + number, .group = kMessages}});
  }

  const RankProgram& rank_;
  const CutStep& step_;
  const std::int64_t stage_;
  const double longer_;
  RankProgram made_;
  std::vector<std::size_t> begin_;  // first instruction of each item
};

}  // namespace

Result<std::vector<RankProgram>> make_stage_programs(const RankProgram& recorded,
                                                     std::int64_t stages,
                                                     const std::vector<double>& layers,
                                                     std::vector<std::string>& warnings) {
  PERFMODEL_TRY(step, cut_step(recorded, stages));
  std::vector<RankProgram> made;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    const double longer = layers.empty() ? 1 : layers[stage] / layers[step->stage];
    made.push_back(StageWriter(recorded, *step, stage, longer).write());
  }
  warnings.push_back(fmt::format(
      "{} stages are copies of the recorded one, each with {} microbatches under {}{}: layers that "
      "only the first or last stage has (embedding, loss) are in all of them or in none",
      stages, step->order.microbatches, name_of(step->order),
      layers.empty() ? "" : ", as long as their layers"));
  if (const std::int64_t chunks = chunks_unseen(*step); chunks > 0) {
    warnings.push_back(
        fmt::format("stage {} would record the same under interleaved 1F1B in {} chunks; the first "
                    "or the last stage tells them apart",
                    step->stage, chunks));
  }
  return made;
}

Result<std::vector<ChakraTrace>> traces_of_all_ranks(const std::vector<ChakraTrace>& stages,
                                                     std::int64_t per_stage,
                                                     ChakraJobOptions& options) {
  std::vector<ChakraTrace> made;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const auto first = static_cast<std::int64_t>(stage) * per_stage;
    const std::string name = fmt::format("stage {}", stage);
    for (std::int64_t i = 0; i < per_stage; ++i) {
      options.groups[name].push_back(first + i);
      ChakraTrace& rank = made.emplace_back(stages[stage]);
      for (ChakraNode& node : rank.nodes) {
        if (node.comm_type && !node.pg_name.empty()) {
          return decline(
              "expected collectives among all ranks of a stage for --chakra, found the group " +
              node.pg_name);
        }
        if (node.comm_type) node.pg_name = name;
        for (auto* end : {&node.comm_src, &node.comm_dst}) {
          if (*end) *end = static_cast<std::int32_t>(**end * per_stage + i);
        }
      }
    }
  }
  return made;
}

}  // namespace perfmodel
