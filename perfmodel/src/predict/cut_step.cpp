#include "cut_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "perfmodel/graph/detail/collective_name.hpp"
#include "program/silent_collectives.hpp"
#include "step/autograd_names.hpp"

namespace perfmodel {
namespace {

Unexpected refuse(const RankProgram& rank, std::string message) {
  return decline("stages: " + std::move(message), rank.graph().source);
}

struct Message {
  bool receives = false;
  std::int64_t peer = -1;
};

std::optional<Message> message_of(const RankProgram& rank, const Instruction& at) {
  const Launch* launch = collective_of(at);
  const std::int32_t comm = launch ? rank.program.collective(*launch).comm : -1;
  if (comm < 0) return {};
  const CommRecord& record = rank.graph().comm_records[comm];
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
    return sorted();
  }

 private:
  bool is_backward(std::int32_t item) const {
    const ExecutionGraph& graph = rank_.graph();
    const auto evaluates = [&](std::int32_t i) { return graph.name(i).starts_with(kEvaluate); };
    return graph.find_around(rank_.program.item(item).subject, evaluates) >= 0;
  }

  Pass& begin(bool backward) { return passes_.emplace_back(Pass{.backward = backward}); }

  void add_message(std::int32_t item, const Message& message) {
    const bool backward = message.receives == (message.peer == neighbours_.next);
    (message.receives ? made_.receive : made_.send) = item;
    const bool goes_on = !passes_.empty() && passes_.back().backward == backward &&
                         !passes_.back().sends && !message.receives;
    Pass& pass = goes_on ? passes_.back() : begin(backward);
    (message.receives ? pass.receives : pass.sends) = true;
  }

  void add_work(std::int32_t item) {
    const bool backward = is_backward(item);
    const bool goes_on =
        !passes_.empty() && passes_.back().backward == backward && !passes_.back().sends;
    (goes_on ? passes_.back() : begin(backward)).items.push_back(item);
  }

  // Work without a message belongs to the pass before it, else to the first one; what follows the
  // last backward pass belongs to none.
  void join_passes() {
    std::vector<Pass> joined;
    std::vector<std::int32_t> waiting;
    for (Pass& pass : passes_) {
      auto& items = joined.empty() ? waiting : joined.back().items;
      if (!pass.has_message()) {
        items.insert(items.end(), pass.items.begin(), pass.items.end());
        continue;
      }
      if (joined.empty()) pass.items.insert(pass.items.begin(), waiting.begin(), waiting.end());
      joined.push_back(std::move(pass));
    }
    passes_ = std::move(joined);
    auto& last = passes_.back().items;
    while (!last.empty() && !is_backward(last.back())) {
      made_.tail.insert(made_.tail.begin(), last.back());
      last.pop_back();
    }
  }

  Result<CutStep> sorted() {
    for (Pass& pass : passes_) {
      if (pass.items.empty()) {
        return refuse(rank_,
                      "expected work in every pass, found a message without any (two stages of "
                      "several chunks cannot be told apart)");
      }
      if (made_.backward.empty() && !pass.backward) ++made_.warm_up;
      (pass.backward ? made_.backward : made_.forward).push_back(std::move(pass));
    }
    if (made_.send < 0 || made_.receive < 0 || made_.forward.size() != made_.backward.size()) {
      return refuse(rank_, fmt::format("expected sends and receives around as many forward as "
                                       "backward passes, found {} and {}",
                                       made_.forward.size(), made_.backward.size()));
    }
    return std::move(made_);
  }

  const RankProgram& rank_;
  const Neighbours neighbours_;
  std::vector<Pass> passes_;
  CutStep made_;
};

/// The recorded stage. On the first one some forward passes receive nothing and on the last one
/// some send nothing; ranks of other stages are as far apart as their numbers say, in each of the
/// pipelines that follow each other. -1: of none.
std::int64_t stage_of(const CutStep& step, const Neighbours& at, std::int64_t stages) {
  if (!std::ranges::all_of(step.forward, &Pass::receives)) return 0;
  if (!std::ranges::all_of(step.forward, &Pass::sends)) return stages - 1;
  const std::int64_t apart = (at.next - at.previous) / 2;
  if (apart <= 0 || at.next - at.previous != 2 * apart) return -1;
  const std::int64_t stage = at.previous / apart % stages + 1;
  return stage < stages - 1 ? stage : -1;
}

/// The chunks of the recorded stage; 0: a number that no order has. The first and the last stage
/// count them by messages that are not there, others by the passes before the first backward one.
std::int64_t chunks_of(const CutStep& step, std::int64_t stages) {
  const std::int64_t passes = std::ssize(step.forward);
  if (step.stage == 0 || step.stage == stages - 1) {
    const auto member = step.stage == 0 ? &Pass::receives : &Pass::sends;
    const std::int64_t microbatches = std::ranges::count(step.forward, false, member);
    return passes % microbatches == 0 ? passes / microbatches : 0;
  }
  if (step.warm_up == passes || step.warm_up == stages - step.stage) return 1;
  const std::int64_t more = step.warm_up - 1 - 2 * (stages - 1 - step.stage);
  return more > 0 && more % stages == 0 ? more / stages + 1 : 0;
}

/// Whether each pass has the messages of its chunk.
bool has_messages_of(const PassOrder& order, const CutStep& step) {
  const bool first = step.stage == 0, last = step.stage == order.stages - 1;
  for (std::int64_t k = 0; k < order.passes(); ++k) {
    const Pass &forward = step.forward[k], &backward = step.backward[k];
    const std::int64_t chunk = order.chunk_of(k), end = order.chunks - 1;
    if (forward.receives == (first && chunk == 0) || forward.sends == (last && chunk == end) ||
        backward.receives == (last && chunk == 0) || backward.sends == (first && chunk == end)) {
      return false;
    }
  }
  return true;
}

Result<PassOrder> order_of(const RankProgram& rank, const CutStep& step, std::int64_t stages) {
  PassOrder order{.stages = stages, .chunks = chunks_of(step, stages)};
  const std::int64_t passes = std::ssize(step.forward);
  if (order.chunks > 0) order.microbatches = passes / order.chunks;
  const bool divides = order.chunks == 1 || order.microbatches % stages == 0;
  order.gpipe = step.warm_up == passes;
  if (order.chunks > 0 && divides && order.passes() == passes && has_messages_of(order, step)) {
    PassOrder one_forward = order;
    one_forward.gpipe = false;
    if (one_forward.warm_up(step.stage) == step.warm_up) return one_forward;
    if (order.gpipe) return order;
  }
  return refuse(rank, fmt::format("expected the order of GPipe, 1F1B or interleaved 1F1B, found "
                                  "{} forward passes on stage {}, {} of them before the first "
                                  "backward pass",
                                  passes, step.stage, step.warm_up));
}

}  // namespace

std::int64_t PassOrder::warm_up(std::int64_t stage) const {
  const std::int64_t after = stages - 1 - stage;
  const std::int64_t wanted = chunks == 1 ? after : 2 * after + (chunks - 1) * stages;
  return gpipe ? passes() : std::min(wanted + 1, passes());
}

Result<CutStep> cut_step(const RankProgram& rank, std::int64_t stages) {
  if (const std::size_t steps = rank.program.steps.size(); steps != 1) {
    return refuse(rank, fmt::format("expected one step, found {}", steps));
  }
  PERFMODEL_TRY(neighbours, neighbours_of(rank));
  PERFMODEL_TRY(step, StepCutter(rank, *neighbours).cut());
  step->stage = stage_of(*step, *neighbours, stages);
  if (step->stage < 0) {
    return refuse(rank, fmt::format("expected the neighbours of one of {} stages, found ranks {} "
                                    "and {}",
                                    stages, neighbours->previous, neighbours->next));
  }
  PERFMODEL_TRY(order, order_of(rank, *step, stages));
  step->order = *order;
  return step;
}

}  // namespace perfmodel
