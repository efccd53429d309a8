#include "pipeline_stages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "perfmodel/graph/detail/collective_name.hpp"
#include "program/silent_collectives.hpp"
#include "step/autograd_names.hpp"

namespace perfmodel {
namespace {

// Numbers and streams of messages that no recorded collective has.
constexpr std::int64_t kFirstNumber = std::int64_t{1} << 40;
constexpr std::int32_t kMessages = 1 << 20, kFirstStream = 60;

Unexpected refuse(const RankProgram& rank, std::string message) {
  return fail(ErrorCode::kImpossible, "stages: " + std::move(message), rank.graph().source);
}

struct Message {
  bool receives = false;
  std::int64_t peer = -1;
};

std::optional<Message> message_of(const RankProgram& rank, const Instruction& at) {
  const Launch* launch = collective_of(at);
  if (!launch || launch->collective->comm < 0) return {};
  const CommRecord& record = rank.graph().comm_records[launch->collective->comm];
  const std::string_view kind = collective_in_name(record.collective);
  if (kind != "send" && kind != "recv") return {};
  return Message{.receives = kind == "recv", .peer = peer_of_message(rank.graph(), launch->node)};
}

/// Ranks of the neighbouring stages; -1: none.
struct Neighbours {
  std::int64_t previous = -1, next = -1;
};

Result<Neighbours> neighbours_of(const RankProgram& rank) {
  Neighbours made;
  bool first = true;
  for (const Instruction& at : rank.program.instructions) {
    const auto message = message_of(rank, at);
    if (!message) continue;
    if (message->peer < 0) {
      return refuse(rank,
                    "expected sends and receives that say their peer, found one that does "
                    "not");
    }
    if (first) (message->receives ? made.previous : made.next) = message->peer;
    first = false;
    if (message->peer == made.previous || message->peer == made.next) continue;
    std::int64_t& other = made.previous < 0 ? made.previous : made.next;
    if (other >= 0 || (made.previous < 0 && !message->receives)) {
      return refuse(rank, fmt::format("expected messages with two neighbours, the first of them "
                                      "received, found rank {}",
                                      message->peer));
    }
    other = message->peer;
  }
  if (first) return refuse(rank, "expected sends and receives between stages, found none");
  return made;
}

/// The items of a forward or backward pass of one microbatch, without its messages.
struct Pass {
  bool backward = false, has_message = false, ended = false;
  std::vector<std::int32_t> items;
};

/// The step of the recorded rank.
struct CutStep {
  std::vector<Pass> passes;              // in the recorded order
  std::vector<std::int32_t> tail;        // items after the last pass
  std::int32_t send = -1, receive = -1;  // items of messages, to copy
};

class StepCutter {
 public:
  StepCutter(const RankProgram& rank, const Neighbours& neighbours)
      : rank_(rank), neighbours_(neighbours) {}

  Result<CutStep> cut() {
    const auto& items = rank_.program.items;
    std::vector<std::optional<Message>> messages(items.size());
    for (const Instruction& at : rank_.program.instructions) {
      if (const auto message = message_of(rank_, at)) messages[at.item] = message;
    }
    for (std::int32_t i = 0; i < std::ssize(items); ++i) {
      messages[i] ? add_message(i, *messages[i]) : add_work(i);
    }
    join_passes();
    return check();
  }

 private:
  bool is_backward(std::int32_t item) const {
    const ExecutionGraph& graph = rank_.graph();
    const auto evaluates = [&](std::int32_t i) { return graph.name(i).starts_with(kEvaluate); };
    return graph.find_around(rank_.program.item(item).subject, evaluates) >= 0;
  }

  Pass& begin(bool backward) { return made_.passes.emplace_back(Pass{.backward = backward}); }

  void add_message(std::int32_t item, const Message& message) {
    const bool backward = message.receives == (message.peer == neighbours_.next);
    (message.receives ? made_.receive : made_.send) = item;
    auto& passes = made_.passes;
    const bool goes_on = !passes.empty() && passes.back().backward == backward &&
                         !passes.back().ended && !message.receives;
    Pass& pass = goes_on ? passes.back() : begin(backward);
    pass.has_message = true;
    pass.ended = !message.receives;
  }

  void add_work(std::int32_t item) {
    const bool backward = is_backward(item);
    auto& passes = made_.passes;
    const bool goes_on =
        !passes.empty() && passes.back().backward == backward && !passes.back().ended;
    (goes_on ? passes.back() : begin(backward)).items.push_back(item);
  }

  // Work without a message belongs to the pass before it, else to the first one; what follows the
  // last backward pass belongs to none.
  void join_passes() {
    std::vector<Pass> joined;
    std::vector<std::int32_t> waiting;
    for (Pass& pass : made_.passes) {
      auto& items = joined.empty() ? waiting : joined.back().items;
      if (!pass.has_message) {
        items.insert(items.end(), pass.items.begin(), pass.items.end());
        continue;
      }
      if (joined.empty()) pass.items.insert(pass.items.begin(), waiting.begin(), waiting.end());
      joined.push_back(std::move(pass));
    }
    made_.passes = std::move(joined);
    auto& last = made_.passes.back().items;
    while (!last.empty() && !is_backward(last.back())) {
      made_.tail.insert(made_.tail.begin(), last.back());
      last.pop_back();
    }
  }

  Result<CutStep> check() {
    const auto backward = std::ranges::count(made_.passes, true, &Pass::backward);
    const auto forward = std::ssize(made_.passes) - backward;
    if (made_.send < 0 || made_.receive < 0 || forward != backward) {
      return refuse(rank_, fmt::format("expected sends and receives around as many forward as "
                                       "backward passes, found {} and {}",
                                       forward, backward));
    }
    return std::move(made_);
  }

  const RankProgram& rank_;
  const Neighbours neighbours_;
  CutStep made_;
};

/// The passes of one direction, by microbatch.
std::vector<const Pass*> passes_of(const CutStep& step, bool backward) {
  std::vector<const Pass*> found;
  for (const Pass& pass : step.passes) {
    if (pass.backward == backward) found.push_back(&pass);
  }
  return found;
}

bool is_gpipe(const CutStep& step, const Neighbours& neighbours, std::int64_t stages) {
  const auto first = std::ranges::find(step.passes, true, &Pass::backward);
  const std::int64_t before = first - step.passes.begin();
  const std::int64_t most = neighbours.previous < 0 ? stages : neighbours.next < 0 ? 1 : stages - 1;
  return 2 * before == std::ssize(step.passes) && before > most;
}

/// Writes the program of one stage.
class StageWriter {
 public:
  StageWriter(const RankProgram& rank, const CutStep& step, std::int64_t stage, std::int64_t stages)
      : rank_(rank), step_(step), stage_(stage), stages_(stages), made_(rank) {
    made_.program.items.clear();
    made_.program.kernels.clear();
    made_.program.instructions.clear();
    made_.works.clear();
    made_.count = std::max<std::int64_t>(1, rank.rank.options.world_size);
    const auto& instructions = rank.program.instructions;
    begin_.assign(rank.program.items.size() + 1, instructions.size());
    for (std::size_t i = instructions.size(); i-- > 0;) begin_[instructions[i].item] = i;
    for (std::size_t i = rank.program.items.size(); i-- > 0;) {
      begin_[i] = std::min(begin_[i], begin_[i + 1]);
    }
  }

  /// The first `warm_up` forward passes, then a backward and a forward pass in turn.
  RankProgram write(std::int64_t warm_up) {
    const auto forward = passes_of(step_, false), backward = passes_of(step_, true);
    std::int64_t done = 0;
    for (std::int64_t batch = 0; batch < std::ssize(backward); ++batch) {
      for (; done < std::min(batch + warm_up, std::ssize(forward)); ++done) {
        write_forward(*forward[done], done);
      }
      write_backward(*backward[batch], batch);
    }
    for (const std::int32_t item : step_.tail) copy(item);
    return std::move(made_);
  }

 private:
  bool has_previous() const { return stage_ > 0; }
  bool has_next() const { return stage_ + 1 < stages_; }

  void write_forward(const Pass& pass, std::int64_t batch) {
    if (has_previous()) message(true, false, stage_ - 1, batch);
    for (const std::int32_t item : pass.items) copy(item);
    if (has_next()) message(false, false, stage_ + 1, batch);
  }

  void write_backward(const Pass& pass, std::int64_t batch) {
    if (has_next()) message(true, true, stage_ + 1, batch);
    for (const std::int32_t item : pass.items) copy(item);
    if (has_previous()) message(false, true, stage_ - 1, batch);
  }

  void copy(std::int32_t item) {
    HostProgram& to = made_.program;
    const HostProgram& from = rank_.program;
    ProgramItem made = from.items[item];
    const auto kernels = std::span(from.kernels).subspan(made.first_kernel, made.kernels);
    const auto first = static_cast<std::int32_t>(to.kernels.size());
    const std::int32_t moved = first - static_cast<std::int32_t>(made.first_kernel);
    made.first_kernel = static_cast<std::uint32_t>(first);
    to.kernels.insert(to.kernels.end(), kernels.begin(), kernels.end());
    for (std::size_t i = begin_[item]; i < begin_[item + 1]; ++i) {
      Instruction at = from.instructions[i];
      at.item = static_cast<std::int32_t>(to.items.size());
      if (Launch* launch = launch_of(at)) launch->kernel += moved;
      to.instructions.push_back(std::move(at));
    }
    to.items.push_back(made);
  }

  // The meeting has a number that both ends count alike.
  void message(bool receives, bool backward, std::int64_t peer, std::int64_t batch) {
    HostProgram& to = made_.program;
    const std::size_t first = to.instructions.size();
    copy(receives ? step_.receive : step_.send);
    const std::int64_t microbatches = std::ssize(step_.passes) / 2;
    const std::int64_t number =
        2 * (std::min(stage_, peer) * microbatches + batch) + (backward ? 1 : 0);
    for (std::size_t i = first; i < to.instructions.size(); ++i) {
      Launch* launch = launch_of(to.instructions[i]);
      if (!launch || !launch->collective) continue;
      CollectiveLaunch& own = *launch->collective;
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
  const std::int64_t stage_, stages_;
  RankProgram made_;
  std::vector<std::size_t> begin_;  // first instruction of each item
};

}  // namespace

Result<std::vector<RankProgram>> make_stage_programs(const RankProgram& recorded,
                                                     std::int64_t stages,
                                                     std::vector<std::string>& warnings) {
  if (const std::size_t steps = recorded.program.steps.size(); steps != 1) {
    return refuse(recorded, fmt::format("expected one step, found {}", steps));
  }
  const auto neighbours = neighbours_of(recorded);
  if (!neighbours) return Unexpected{neighbours.error()};
  const auto step = StepCutter(recorded, *neighbours).cut();
  if (!step) return Unexpected{step.error()};
  const std::int64_t microbatches = std::ssize(step->passes) / 2;
  const bool gpipe = is_gpipe(*step, *neighbours, stages);
  std::vector<RankProgram> made;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    made.push_back(
        StageWriter(recorded, *step, stage, stages).write(gpipe ? microbatches : stages - stage));
  }
  warnings.push_back(fmt::format(
      "{} stages are copies of the recorded one, each with {} microbatches under {}: layers that "
      "only the first or last stage has (embedding, loss) are in all of them or in none",
      stages, microbatches, gpipe ? "GPipe" : "1F1B"));
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
          return fail(ErrorCode::kImpossible,
                      "expected collectives among all ranks of a stage for --chakra, found the "
                      "group " +
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
