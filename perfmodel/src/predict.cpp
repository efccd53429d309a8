#include "perfmodel/predict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "lin_traversal.hpp"
#include "perfmodel/predictors/lower.hpp"
#include "perfmodel/schedule/schedule.hpp"

namespace perfmodel {
namespace {

constexpr std::size_t kMaxPasses = 32;
constexpr double kSteadyTolerance = 1e-3;
constexpr std::size_t kCriticalSteps = 40;

// One step of the host program. A pass over all instructions is one pass over the graph.
struct Instruction {
  enum class Kind : std::uint8_t { kHost, kLaunch, kBlockingCopy, kSync, kCommWait } kind;
  Term term = Term::kT1;    // of the host or device time
  std::int32_t op = 0;      // position in the list of items
  std::int32_t thread = 0;  // host lane
  std::int32_t stream = 0;  // role
  double host_us = 0;       // kHost: the time; kBlockingCopy, kSync: own time after the wait
  double device_us = 0;
  double latency_us = 0;  // kSync: own time after an awaited end beyond host_us
  std::int64_t sequence = -1;
  SyncKind sync = SyncKind::kNone;
  bool collective = false;
  std::int32_t kernel = -1;  // into the item's kernels
  std::int32_t phase = -1;   // if it is not the item's
};

// A top-level op, or a label with calls of its own, in program order.
struct Item {
  std::int32_t node = -1;
  std::int32_t thread = 0;
  std::int32_t phase = 0;
  bool is_label = false;
  std::int32_t iteration = 0;
  LoweredOp lowered;
  std::vector<PredictedKernel> kernels;
  KeyLevel gap_level = KeyLevel::kMissing, op_level = KeyLevel::kMissing;
};

class Engine {
 public:
  Engine(const ExecutionGraph& graph, const Gpu& gpu, const OverheadTable& table,
         const PredictOptions& options)
      : graph_(graph),
        gpu_(gpu),
        table_(table),
        options_(options),
        lowering_(graph, gpu, &table.templates) {}

  Result<Prediction> run() {
    steps_ = iterations(graph_);
    if (options_.iterations) {
      const auto [first, last] = *options_.iterations;
      if (first >= last || last > steps_.size()) {
        return fail(ErrorCode::kImpossible,
                    fmt::format("expected iterations within 0:{} of {}, found {}:{}", steps_.size(),
                                graph_.source, first, last));
      }
      steps_ = {steps_.begin() + static_cast<std::ptrdiff_t>(first),
                steps_.begin() + static_cast<std::ptrdiff_t>(last)};
    }
    if (steps_.empty()) {
      return Unexpected{Error{.code = ErrorCode::kImpossible,
                              .message = "expected at least one op, found none",
                              .file = graph_.source}};
    }
    collect_items();
    write_program();
    find_bound_lane();
    // Passes are added until the last two take the same time.
    for (std::size_t passes = 3;; passes = passes == 3 ? 8 : 2 * passes) {
      simulate(passes);
      auto schedule = run_schedule(tasks_);
      if (!schedule) return Unexpected{schedule.error()};
      schedule_ = std::move(*schedule);
      const double last = pass_end(passes - 1) - pass_end(passes - 2);
      const double before = pass_end(passes - 2) - pass_end(passes - 3);
      const bool steady = std::abs(last - before) <= kSteadyTolerance * last;
      if (steady || passes >= kMaxPasses) {
        if (!steady) {
          prediction_.warnings.push_back(
              fmt::format("no steady state after {} passes: the last two took {:.1f} and {:.1f} us",
                          passes, before, last));
        }
        break;
      }
    }
    explain();
    return std::move(prediction_);
  }

 private:
  // ---- program ---------------------------------------------------------------------------------

  void collect_items() {
    for (std::size_t step = 0; step < steps_.size(); ++step) {
      const std::size_t first = items_.size();
      label_calls_.clear();
      for (std::int32_t node = steps_[step].begin; node < steps_[step].end; ++node) {
        const Node& at = graph_.nodes[static_cast<std::size_t>(node)];
        if (at.is_label) {
          add_label_calls(node, static_cast<std::int32_t>(step));
        } else if (is_top_level(at)) {
          items_.push_back(
              {.node = node, .thread = at.thread, .iteration = static_cast<std::int32_t>(step)});
          items_.back().lowered = lowering_.lower(node);
        }
      }
      for (auto& [after, item] : label_calls_) {
        const auto place = std::upper_bound(
            items_.begin() + static_cast<std::ptrdiff_t>(first), items_.end(), after,
            [](std::int32_t node, const Item& other) { return node < other.node; });
        items_.insert(place, std::move(item));
      }
    }
    name_phases();
  }

  bool is_top_level(const Node& node) const {
    for (std::int32_t i = node.parent; i >= 0;) {
      const Node& parent = graph_.nodes[static_cast<std::size_t>(i)];
      if (!parent.is_label) return false;
      i = parent.parent;
    }
    return true;
  }

  // Calls that a label makes between its children come after the last node of the child before.
  void add_label_calls(std::int32_t node, std::int32_t step) {
    if (!is_top_level(graph_.nodes[static_cast<std::size_t>(node)])) return;
    LoweredOp lowered = lowering_.lower_label(node);
    const auto children = graph_.children(graph_.nodes[static_cast<std::size_t>(node)]);
    for (LoweredCall& call : lowered.calls) {
      std::int32_t after = node;
      if (call.call.after_children > 0 && !children.empty()) {
        const std::size_t before =
            std::min<std::size_t>(call.call.after_children, children.size()) - 1;
        after = last_descendant(children[before]);
      }
      Item item{.node = after,  // keeps the items sorted; the call's own node is in `lowered`
                .thread = graph_.nodes[static_cast<std::size_t>(node)].thread,
                .is_label = true,
                .iteration = step};
      item.lowered.node = node;
      item.lowered.calls.push_back(std::move(call));
      label_calls_.emplace_back(after, std::move(item));
    }
  }

  std::int32_t last_descendant(std::int32_t node) const {
    const auto children = graph_.children(graph_.nodes[static_cast<std::size_t>(node)]);
    return children.empty() ? node : last_descendant(children.back());
  }

  // The outermost label that is no iteration mark. The autograd thread has labels of its own only
  // rarely; its work belongs to the phase that waits for it, if that phase says so in its name.
  std::string_view phase_label(std::int32_t node) const {
    std::string_view label;
    for (std::int32_t i = node; i >= 0; i = graph_.nodes[static_cast<std::size_t>(i)].parent) {
      const Node& at = graph_.nodes[static_cast<std::size_t>(i)];
      if (at.is_label && !at.is_structural && !graph_.name(at).starts_with("ProfilerStep")) {
        label = graph_.name(at);
      }
    }
    return label;
  }

  void name_phases() {
    std::map<std::string_view, std::int32_t> known;
    std::string_view main_label;
    std::int32_t main_thread = items_.empty() ? 0 : items_.front().thread;
    for (Item& item : items_) {
      std::string_view label = phase_label(item.lowered.node);
      if (item.thread == main_thread) {
        main_label = label;
      } else if (label.empty()) {
        label = main_label.find("backward") != std::string_view::npos ? main_label : "autograd";
      }
      if (label.empty()) label = "rest";
      const auto [at, added] =
          known.try_emplace(label, static_cast<std::int32_t>(prediction_.phases.size()));
      if (added) prediction_.phases.push_back({.label = std::string(label)});
      item.phase = at->second;
    }
    const auto [at, added] =
        known.try_emplace("rest", static_cast<std::int32_t>(prediction_.phases.size()));
    if (added) prediction_.phases.push_back({.label = "rest"});
    rest_phase_ = at->second;
  }

  std::uint64_t name_hash(std::int32_t node) const {
    return graph_.names.hash(graph_.nodes[static_cast<std::size_t>(node)].name);
  }

  void write_program() {
    std::int32_t previous = -1;  // last op item
    std::int32_t last_op = -1, first_op = -1;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (items_[i].is_label) continue;
      if (first_op < 0) first_op = static_cast<std::int32_t>(i);
      last_op = static_cast<std::int32_t>(i);
    }
    if (last_op < 0) return;
    previous = last_op;  // the first op follows the last one of the pass before
    for (std::size_t i = 0; i < items_.size(); ++i) {
      current_ = static_cast<std::int32_t>(i);
      Item& item = items_[i];
      if (item.is_label) {
        own_calls(item, nullptr);
        continue;
      }
      const bool border = static_cast<std::int32_t>(i) == first_op ||
                          item.iteration != items_[static_cast<std::size_t>(previous)].iteration;
      gap(items_[static_cast<std::size_t>(previous)], item, border);
      op(item);
      previous = static_cast<std::int32_t>(i);
    }
  }

  void gap(const Item& previous, Item& item, bool border) {
    const std::int32_t label = graph_.nodes[static_cast<std::size_t>(item.node)].parent;
    const std::int32_t before = graph_.nodes[static_cast<std::size_t>(previous.node)].parent;
    const GapClass kind = border                           ? GapClass::kIteration
                          : previous.thread != item.thread ? GapClass::kThread
                          : label != before                ? GapClass::kLabel
                                                           : GapClass::kSibling;
    const std::uint64_t context = gap_context(label < 0 ? 0 : name_hash(label),
                                              name_hash(previous.node), name_hash(item.node));
    auto found = table_.t1.find({&context, 1}, gap_class_key(kind));
    if (found.level == KeyLevel::kName && kind == GapClass::kIteration) {
      // What a program does between steps is its own; a mean over programs is ruled by the slowest.
      found.us = table_.t1.by_name.at(gap_class_key(kind)).stats.median_us;
    }
    item.gap_level = found.level;
    if (previous.phase == item.phase) {
      host(Term::kT1, found, item.thread);
      return;
    }
    // The gap closes one phase and opens the next; what lies between them is neither's.
    GapSplit split;
    for (std::uint64_t key : {gap_class_key(kind), context}) {
      if (const auto at = table_.gap_splits.find(key); at != table_.gap_splits.end())
        split = at->second;
    }
    const std::pair<double, std::int32_t> parts[] = {{split.tail, previous.phase},
                                                     {1 - split.tail - split.head, rest_phase_},
                                                     {split.head, item.phase}};
    for (const auto& [share, phase] : parts) {
      host(Term::kT1, {.us = found.us * share, .level = found.level}, item.thread);
      program_.back().phase = phase;
    }
  }

  void op(Item& item) {
    const std::uint64_t name = name_hash(item.node);
    const std::uint64_t subtree = subtree_key(graph_, item.node);
    if (item.lowered.calls.empty()) {
      const auto found = table_.tx.find({&subtree, 1}, name);
      item.op_level = found.level;
      host(Term::kTx, found, item.thread);
      comm_waits(item.node);
      return;
    }
    const auto found = table_.t2.find({&subtree, 1}, name);
    item.op_level = found.level;
    host(Term::kT2, found, item.thread);
    const OpKeys keys{name, subtree};
    own_calls(item, &keys);
    host(Term::kT3, table_.t3.find({&subtree, 1}, name), item.thread);
    comm_waits(item.node);
  }

  struct OpKeys {
    std::uint64_t name, subtree;
  };

  void own_calls(Item& item, const OpKeys* keys) {
    std::unordered_map<std::int32_t, std::uint32_t> ordinals;  // device calls per node
    for (std::size_t i = 0; i < item.lowered.calls.size(); ++i) {
      const LoweredCall& call = item.lowered.calls[i];
      if (i > 0 && keys) {
        const std::uint64_t contexts[] = {hash_mix(keys->subtree, i), keys->subtree};
        host(Term::kT5, table_.t5.find(contexts, keys->name), item.thread);
      }
      call_instruction(item, call, ordinals);
    }
  }

  void call_instruction(Item& item, const LoweredCall& call,
                        std::unordered_map<std::int32_t, std::uint32_t>& ordinals) {
    Instruction made{.kind = Instruction::Kind::kLaunch,
                     .term = Term::kT4,
                     .op = current_,
                     .thread = item.thread,
                     .stream = call.call.stream};
    if (call.call.kind == TemplateCall::Kind::kSync) {
      made.kind = Instruction::Kind::kSync;
      made.sync = call.call.sync;
      const double idle = sync_us(call.call.call, " idle");
      const double wake = sync_us(call.call.call, " wake");
      made.host_us = std::min(idle, wake);
      made.latency_us = wake - made.host_us;
      made.device_us = idle;  // own time when nothing was awaited
      program_.push_back(made);
      return;
    }
    const auto own = call_cost(call.call);
    note_level(own.level, own.us);
    made.host_us = own.us;
    made.collective = call.call.collective;
    made.kernel = static_cast<std::int32_t>(item.kernels.size());
    item.kernels.push_back(kernel_of(item, call, ordinals[call.node]++));
    const PredictedKernel& kernel = item.kernels.back();
    made.device_us = kernel.price.time.count();
    made.collective |= kernel.family == KernelFamily::kCollective;
    made.term = made.collective                               ? Term::kCollective
                : call.call.kind == TemplateCall::Kind::kCopy ? Term::kCopy
                : call.call.kind == TemplateCall::Kind::kSet  ? Term::kSet
                                                              : Term::kKernel;
    if (made.collective) {
      const std::int32_t comm = comm_record(call.node);
      if (comm >= 0) made.sequence = graph_.comm_records[static_cast<std::size_t>(comm)].sequence;
    }
    if (call.call.blocking) {
      made.kind = Instruction::Kind::kBlockingCopy;
      made.latency_us = call.call.copy == CopyKind::kDeviceToHost
                            ? table_.device.blocking_read_latency_us
                            : table_.device.blocking_write_latency_us;
    } else {
      made.latency_us = made.collective              ? table_.device.collective_latency_us
                        : made.term == Term::kKernel ? table_.device.launch_latency_us
                                                     : table_.device.copy_latency_us;
    }
    program_.push_back(made);
  }

  // A program makes a handful of distinct calls: looking them up by text once is enough.
  OverheadTerm::Found call_cost(const TemplateCall& call) {
    for (const auto& [known, cost] : call_costs_) {
      if (known.kind == call.kind && known.copy == call.copy && known.blocking == call.blocking &&
          known.call == call.call) {
        return cost;
      }
    }
    call_costs_.emplace_back(call, table_.call_us(call_key(call)));
    return call_costs_.back().second;
  }

  double sync_us(const std::string& call, std::string_view state) const {
    for (std::string_view key : {state, std::string_view("")}) {
      const auto at = table_.t4.find(call + std::string(key));
      if (at != table_.t4.end()) return at->second.mean_us;
    }
    return table_.call_us(call).us;
  }

  // The comm record of a node or of the nearest node above it (nccl:* labels lie inside the
  // record).
  std::int32_t comm_record(std::int32_t node) const {
    for (; node >= 0; node = graph_.nodes[static_cast<std::size_t>(node)].parent) {
      const Node& at = graph_.nodes[static_cast<std::size_t>(node)];
      if (at.comm >= 0) return at.comm;
      if (at.is_structural) break;
    }
    return -1;
  }

  // "wait" records anywhere below the op: the next kernel waits for the collective of that number.
  void comm_waits(std::int32_t node) {
    const Node& at = graph_.nodes[static_cast<std::size_t>(node)];
    if (at.comm >= 0) {
      const CommRecord& record = graph_.comm_records[static_cast<std::size_t>(at.comm)];
      if (record.collective == "wait") {
        program_.push_back({.kind = Instruction::Kind::kCommWait,
                            .op = current_,
                            .thread = at.thread,
                            .sequence = record.sequence});
      }
    }
    for (std::int32_t child : graph_.children(at)) comm_waits(child);
  }

  PredictedKernel kernel_of(const Item& item, const LoweredCall& call, std::uint32_t ordinal) {
    PredictedKernel kernel;
    kernel.stream = call.call.stream;
    kernel.inferred = call.inferred;
    KernelWork work;
    if (call.work >= 0) {
      work = item.lowered.work[static_cast<std::size_t>(call.work)];
    } else if (call.call.collective) {
      work.family = KernelFamily::kCollective;
    } else if (call.call.kind == TemplateCall::Kind::kCopy) {
      work.family = KernelFamily::kCopy;
      work.shape = CopyShape{.kind = call.call.copy, .pageable = call.call.pageable};
    } else if (call.call.kind == TemplateCall::Kind::kSet) {
      work.family = KernelFamily::kSet;
    }
    if (auto* shape = std::get_if<CollectiveShape>(&work.shape);
        shape && shape->world_size <= 1 && options_.world_size > 1) {
      shape->world_size = options_.world_size;
    }
    if (auto* shape = std::get_if<CopyShape>(&work.shape)) {
      if (!call.call.kernel.empty()) shape->pageable = call.call.pageable;
    }
    kernel.family = work.family;
    kernel.name = call.call.kernel.empty() ? std::string(to_string(work.family)) : call.call.kernel;
    const KernelTimes::Time* traced =
        options_.kernel_times ? options_.kernel_times->find(call.node, ordinal) : nullptr;
    if (traced && (options_.use == KernelTimes::Use::kAll || traced->collective)) {
      kernel.price = {.time = Microseconds{traced->us},
                      .low = Microseconds{traced->us},
                      .high = Microseconds{traced->us},
                      .bound = Bound::kMeasured,
                      .model = "as-traced"};
      if (traced->collective) kernel.family = KernelFamily::kCollective;
      return kernel;
    }
    kernel.price = options_.models->price(work, gpu_);
    if (call.call.tasks > 1) {
      const double tasks = call.call.tasks;
      kernel.price.time *= tasks;
      kernel.price.low *= tasks;
      kernel.price.high *= tasks;
    }
    return kernel;
  }

  void host(Term term, const OverheadTerm::Found& found, std::int32_t thread) {
    note_level(found.level, found.us);
    program_.push_back({.kind = Instruction::Kind::kHost,
                        .term = term,
                        .op = current_,
                        .thread = thread,
                        .host_us = found.us});
  }

  void note_level(KeyLevel level, double us) {
    prediction_.coverage.host_us_by_key_level[static_cast<std::size_t>(level)] += us;
  }

  // The stream with the most work per pass: it limits the pace if the device does.
  void find_bound_lane() {
    std::map<std::int32_t, double> work;
    for (const Instruction& at : program_) {
      if (at.kind == Instruction::Kind::kLaunch || at.kind == Instruction::Kind::kBlockingCopy) {
        work[stream_lane(at.stream)] += at.device_us + table_.device.kernel_gap_us;
      }
    }
    const auto most = std::max_element(
        work.begin(), work.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most != work.end()) bound_lane_ = most->first;
  }

  // ---- simulation ------------------------------------------------------------------------------

  static constexpr std::int32_t kStreamLanes = 64;

  std::int32_t host_lane(std::int32_t thread) {
    const auto [at, added] = host_lanes_.try_emplace(
        thread, kStreamLanes + static_cast<std::int32_t>(host_lanes_.size()));
    return at->second;
  }

  static std::int32_t stream_lane(std::int32_t role) { return std::min(role, kStreamLanes - 1); }

  struct Placed {
    TaskGraph::TaskId task;
    std::int32_t instruction;
  };

  void simulate(std::size_t passes) {
    tasks_ = TaskGraph();
    tasks_.reserve(passes * program_.size() * 2);
    last_pass_.clear();
    pass_last_.clear();
    pass_iteration_last_.clear();
    pass_device_last_.clear();
    busiest_device_ = -1;
    collectives_.clear();
    last_host_ = -1;
    last_stream_.clear();
    std::vector<TaskGraph::TaskId> awaited;
    const std::int64_t sequences = sequences_per_pass();
    for (std::size_t pass = 0; pass < passes; ++pass) {
      const bool record = pass + 1 == passes;
      std::unordered_map<std::int64_t, TaskGraph::TaskId> earlier = std::move(collectives_);
      collectives_.clear();
      std::int32_t iteration = items_.empty() ? 0 : items_.front().iteration;
      for (std::size_t i = 0; i < program_.size(); ++i) {
        const Instruction& at = program_[i];
        const std::int32_t now = items_[static_cast<std::size_t>(at.op)].iteration;
        if (now != iteration) {
          if (record) pass_iteration_last_.push_back(last_host_);
          iteration = now;
        }
        const auto instruction = static_cast<std::int32_t>(i);
        switch (at.kind) {
          case Instruction::Kind::kHost:
            add_host(at, at.host_us, at.term, instruction, record);
            break;
          case Instruction::Kind::kLaunch: {
            add_host(at, at.host_us, Term::kT4, instruction, record);
            add_device(at, instruction, awaited, record);
            break;
          }
          case Instruction::Kind::kBlockingCopy: {
            // The copy starts a little after the call does; the call ends after the copy.
            const auto copy = add_device(at, instruction, awaited, record);
            const auto resume = add_host(at, at.host_us, Term::kT4, instruction, record);
            tasks_.add_edge(copy, resume);
            break;
          }
          case Instruction::Kind::kSync:
            add_sync(at, instruction, record);
            break;
          case Instruction::Kind::kCommWait: {
            // A number without partner in this pass belongs to the pass before.
            const auto here = collectives_.find(at.sequence);
            const auto before = earlier.find(at.sequence + sequences);
            if (here != collectives_.end()) {
              awaited.push_back(here->second);
            } else if (before != earlier.end()) {
              awaited.push_back(before->second);
            }
            break;
          }
        }
      }
      if (record) pass_iteration_last_.push_back(last_host_);
      pass_last_.push_back(last_host_);
      pass_device_last_.push_back(busiest_device_);
    }
  }

  // Sequence numbers that one pass uses up: distance between equal collectives of two passes.
  std::int64_t sequences_per_pass() const {
    std::int64_t low = std::numeric_limits<std::int64_t>::max(), high = -1;
    for (const Instruction& at : program_) {
      if (at.sequence < 0 || at.kind == Instruction::Kind::kCommWait) continue;
      low = std::min(low, at.sequence);
      high = std::max(high, at.sequence);
    }
    return high < 0 ? 0 : high - low + 1;
  }

  TaskGraph::TaskId add_host(const Instruction& at, double us, Term term, std::int32_t instruction,
                             bool record) {
    const std::int32_t lane = host_lane(at.thread);
    const auto task = tasks_.add_task(lane, us, 0, at.op, static_cast<std::int32_t>(term));
    // The host is one serial chain over its threads: a hand-over is an edge.
    if (last_host_ >= 0 && tasks_.lane(last_host_) != lane) tasks_.add_edge(last_host_, task);
    last_host_ = task;
    if (record) last_pass_.push_back({task, instruction});
    return task;
  }

  TaskGraph::TaskId add_device(const Instruction& at, std::int32_t instruction,
                               std::vector<TaskGraph::TaskId>& awaited, bool record) {
    const std::int32_t lane = stream_lane(at.stream);
    const auto call = last_host_;
    const auto task = tasks_.add_task(lane, at.device_us, table_.device.kernel_gap_us, at.op,
                                      static_cast<std::int32_t>(at.term));
    tasks_.add_edge(call, task, at.latency_us);
    auto& thread_stream = last_stream_[at.thread];
    if (at.collective) {
      // A collective waits for the stream that it is called from.
      const auto source = tasks_.last_on_lane(thread_stream);
      if (source >= 0 && source != task) tasks_.add_edge(source, task, table_.device.event_gap_us);
      if (at.sequence >= 0) collectives_[at.sequence] = task;
    } else {
      thread_stream = lane;
      for (TaskGraph::TaskId awaits : awaited) {
        tasks_.add_edge(awaits, task, table_.device.event_gap_us);
      }
      awaited.clear();
    }
    if (lane == bound_lane_ || bound_lane_ < 0) busiest_device_ = task;
    if (record) last_pass_.push_back({task, instruction});
    return task;
  }

  void add_sync(const Instruction& at, std::int32_t instruction, bool record) {
    std::vector<TaskGraph::TaskId> tails;
    if (at.sync == SyncKind::kDevice) {
      for (std::int32_t lane = 0; lane < std::min(kStreamLanes, tasks_.lanes()); ++lane) {
        if (const auto tail = tasks_.last_on_lane(lane); tail >= 0) tails.push_back(tail);
      }
    } else if (const auto tail = tasks_.last_on_lane(stream_lane(at.stream)); tail >= 0) {
      tails.push_back(tail);
    }
    const auto task = add_host(at, at.host_us, Term::kT4, instruction, record);
    for (const auto tail : tails) tasks_.add_edge(tail, task, at.latency_us);
  }

  double pass_end(std::size_t pass) const {
    return schedule_.end_us[static_cast<std::size_t>(pass_last_[pass])];
  }

  // End of the device work of a pass, counted from the last one back.
  double device_end(std::size_t passes_back) const {
    const TaskGraph::TaskId task = pass_device_last_[pass_device_last_.size() - 1 - passes_back];
    return task < 0 ? 0 : schedule_.end_us[static_cast<std::size_t>(task)];
  }

  // ---- report ----------------------------------------------------------------------------------

  void explain() {
    const double begin = pass_end(pass_last_.size() - 2), end = pass_end(pass_last_.size() - 1);
    const double steps = static_cast<double>(steps_.size());
    Prediction& p = prediction_;
    // A host that runs ahead is held by the full launch queue in the long run: then the period is
    // that of the device.
    const double device_period = device_end(0) - device_end(1);
    const bool device_bound = device_period > (1 + kSteadyTolerance) * (end - begin);
    const double period = device_bound ? device_period : end - begin;
    p.e2e_us = period / steps;
    p.wait_us = period - (end - begin);
    std::vector<double> item_host(items_.size(), 0), item_wait(items_.size(), 0);
    std::vector<double> item_start(items_.size(), -1);
    std::vector<std::vector<TaskGraph::TaskId>> device(steps_.size());
    std::vector<TaskGraph::TaskId> all_device;
    for (const auto& [task, instruction] : last_pass_) {
      const Instruction& at = program_[static_cast<std::size_t>(instruction)];
      const auto item = static_cast<std::size_t>(at.op);
      const auto index = static_cast<std::size_t>(task);
      const double duration = tasks_.duration_us(task);
      const bool on_device = tasks_.lane(task) < kStreamLanes;
      p.terms_us[static_cast<std::size_t>(tasks_.term(task))] += duration;
      if (on_device) {
        device[static_cast<std::size_t>(items_[item].iteration)].push_back(task);
        all_device.push_back(task);
        if (at.kernel >= 0) {
          items_[item].kernels[static_cast<std::size_t>(at.kernel)].start_us =
              schedule_.start_us[index] - begin;
        }
        (at.collective ? p.comm_kernel_us : p.compute_kernel_us) += duration;
        continue;
      }
      p.cpu_us += duration;
      item_host[item] += duration;
      p.phases[static_cast<std::size_t>(at.phase >= 0 ? at.phase : items_[item].phase)].host_us +=
          duration / steps;
      if (item_start[item] < 0 && at.term != Term::kT1) {
        item_start[item] = schedule_.start_us[index] - begin;
      }
      // Between two host tasks nothing but waiting for the device can pass.
      const TaskGraph::TaskId bound = schedule_.bound_by[index];
      if (bound >= 0 && tasks_.lane(bound) < kStreamLanes) {
        const TaskGraph::TaskId before = previous_host(task);
        if (before >= 0) {
          const double wait =
              schedule_.start_us[index] - schedule_.end_us[static_cast<std::size_t>(before)];
          item_wait[item] += wait;
          p.wait_us += wait;
        }
      }
    }
    for (double* total : {&p.cpu_us, &p.wait_us, &p.comm_kernel_us, &p.compute_kernel_us}) {
      *total /= steps;
    }
    for (double& term : p.terms_us) term /= steps;
    p.kernel_sum_us = p.compute_kernel_us + p.comm_kernel_us;
    double step_begin = begin;
    double active = 0;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const double step_end = schedule_.end_us[static_cast<std::size_t>(pass_iteration_last_[i])];
      const double busy = busy_us(schedule_, device[i]);
      p.iterations.push_back({steps_[i].name, step_end - step_begin, busy});
      active += busy;
      step_begin = step_end;
    }
    if (device_bound) {
      for (auto& iteration : p.iterations) iteration.e2e_us *= period / (end - begin);
    }
    p.gpu_active_us = active / steps;
    p.gpu_idle_us = std::max(0.0, p.e2e_us - p.gpu_active_us);
    for (std::size_t i = 0; i < items_.size(); ++i) {
      auto& phase = p.phases[static_cast<std::size_t>(items_[i].phase)];
      phase.wait_us += item_wait[i] / steps;
    }
    coverage(item_host);
    if (options_.keep_ops) {
      critical_path(begin);
      report_ops(item_host, item_wait, item_start);
    }
    warn();
  }

  TaskGraph::TaskId previous_host(TaskGraph::TaskId task) const {
    for (TaskGraph::TaskId t = task - 1; t >= 0; --t) {
      if (tasks_.lane(t) >= kStreamLanes) return t;
    }
    return -1;
  }

  void coverage(const std::vector<double>& item_host) {
    auto& coverage = prediction_.coverage;
    const LoweringStats& stats = lowering_.stats();
    coverage.disagreements = stats.disagreements;
    coverage.nodes_by_template_level = stats.nodes_by_level;
    coverage.nodes_by_rule = stats.nodes_by_rule;
    double device = 0;
    for (const Item& item : items_) {
      for (const PredictedKernel& kernel : item.kernels) {
        device += kernel.price.time.count();
        if (!kernel.inferred) continue;
        ++coverage.inferred_kernels;
        coverage.inferred_kernel_us += kernel.price.time.count();
      }
    }
    std::unordered_map<std::int32_t, std::size_t> item_of;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      if (!items_[i].is_label) item_of[items_[i].node] = i;
    }
    std::map<std::string_view, Prediction::Unmodelled> ops;
    std::vector<bool> counted(items_.size(), false);
    double unmodelled = 0, host = 0;
    for (double us : item_host) host += us;
    for (std::int32_t node : stats.unmodelled) {
      auto& entry = ops[graph_.name(graph_.nodes[static_cast<std::size_t>(node)])];
      ++entry.count;
      std::int32_t top = node;
      while (top >= 0 && !item_of.contains(top))
        top = graph_.nodes[static_cast<std::size_t>(top)].parent;
      if (top < 0 || counted[item_of[top]]) continue;
      counted[item_of[top]] = true;
      entry.host_us += item_host[item_of[top]];
      unmodelled += item_host[item_of[top]];
    }
    for (auto& [name, entry] : ops) {
      entry.op = name;
      coverage.unmodelled_ops.push_back(std::move(entry));
    }
    std::sort(coverage.unmodelled_ops.begin(), coverage.unmodelled_ops.end(),
              [](const auto& a, const auto& b) { return a.host_us > b.host_us; });
    if (host + device > 0) coverage.modelled_time_fraction = 1 - unmodelled / (host + device);
  }

  void critical_path(double begin) {
    std::map<std::pair<std::string_view, Term>, Prediction::CriticalStep> steps;
    // Where the device sets the pace, the path ends with its last task instead of the host's.
    const bool device_bound = prediction_.e2e_us * static_cast<double>(steps_.size()) >
                              pass_end(pass_last_.size() - 1) - begin + 1e-9;
    if (device_bound) begin = device_end(1);
    const auto last = device_bound ? pass_device_last_.back() : pass_last_.back();
    for (TaskGraph::TaskId task : schedule_.critical_path(last)) {
      const auto index = static_cast<std::size_t>(task);
      if (schedule_.end_us[index] <= begin) break;
      // Gaps and latencies before a task count as its own, so that the steps add up.
      const TaskGraph::TaskId bound = schedule_.bound_by[index];
      const double from =
          bound < 0 ? schedule_.start_us[index] : schedule_.end_us[static_cast<std::size_t>(bound)];
      const auto term = static_cast<Term>(tasks_.term(task));
      const Item& item = items_[static_cast<std::size_t>(tasks_.op(task))];
      const Node& node = graph_.nodes[static_cast<std::size_t>(item.lowered.node)];
      auto& step = steps[{graph_.name(node), term}];
      step.us += schedule_.end_us[index] - std::max(begin, from);
      ++step.count;
    }
    for (auto& [key, step] : steps) {
      step.op = key.first;
      step.term = to_string(key.second);
      step.us /= static_cast<double>(steps_.size());
      prediction_.critical_path.push_back(std::move(step));
    }
    auto& path = prediction_.critical_path;
    std::sort(path.begin(), path.end(), [](const auto& a, const auto& b) { return a.us > b.us; });
    if (path.size() <= kCriticalSteps) return;
    Prediction::CriticalStep others{.op = "(others)", .term = "all"};
    for (std::size_t i = kCriticalSteps; i < path.size(); ++i) {
      others.us += path[i].us;
      others.count += path[i].count;
    }
    path.resize(kCriticalSteps);
    path.push_back(std::move(others));
  }

  void report_ops(const std::vector<double>& host, const std::vector<double>& wait,
                  const std::vector<double>& start) {
    prediction_.ops.reserve(items_.size());
    for (std::size_t i = 0; i < items_.size(); ++i) {
      Item& item = items_[i];
      const Node& node = graph_.nodes[static_cast<std::size_t>(item.lowered.node)];
      prediction_.ops.push_back({.id = node.id,
                                 .name = graph_.name(node),
                                 .thread = item.thread,
                                 .phase = item.phase,
                                 .start_us = std::max(0.0, start[i]),
                                 .host_us = host[i],
                                 .wait_us = wait[i],
                                 .kernels = std::move(item.kernels),
                                 .gap_level = item.gap_level,
                                 .op_level = item.op_level});
    }
  }

  void warn() {
    auto& warnings = prediction_.warnings;
    warnings.insert(warnings.begin(), graph_.warnings.begin(), graph_.warnings.end());
    const auto& by_level = prediction_.coverage.host_us_by_key_level;
    const double total = by_level[0] + by_level[1] + by_level[2] + by_level[3];
    const double vague = by_level[static_cast<std::size_t>(KeyLevel::kAll)];
    if (total > 0 && vague > 0.1 * total) {
      warnings.push_back(
          fmt::format("{:.0f} % of the host time comes from overall means: the overhead table has "
                      "not seen these "
                      "ops",
                      100 * vague / total));
    }
    std::size_t out_of_range = 0;
    for (const auto& op : prediction_.ops) {
      for (const auto& kernel : op.kernels) out_of_range += !kernel.price.in_range;
    }
    if (out_of_range > 0) {
      warnings.push_back(fmt::format(
          "{} kernels lie outside the range that their model was checked on", out_of_range));
    }
    if (!prediction_.coverage.unmodelled_ops.empty()) {
      warnings.push_back(fmt::format("{} op names have no kernel model and cost host time only",
                                     prediction_.coverage.unmodelled_ops.size()));
    }
  }

  const ExecutionGraph& graph_;
  const Gpu& gpu_;
  const OverheadTable& table_;
  const PredictOptions& options_;
  Lowering lowering_;
  std::vector<GraphIteration> steps_;
  std::vector<Item> items_;
  std::vector<std::pair<std::int32_t, Item>> label_calls_;  // node that they come after
  std::vector<std::pair<TemplateCall, OverheadTerm::Found>> call_costs_;  // distinct calls so far
  std::vector<Instruction> program_;
  std::int32_t current_ = 0, rest_phase_ = 0;

  TaskGraph tasks_;
  Schedule schedule_;
  std::map<std::int32_t, std::int32_t> host_lanes_;
  std::map<std::int32_t, std::int32_t> last_stream_;  // per thread
  std::unordered_map<std::int64_t, TaskGraph::TaskId> collectives_;
  TaskGraph::TaskId last_host_ = -1;
  std::vector<Placed> last_pass_;
  std::vector<TaskGraph::TaskId> pass_last_, pass_iteration_last_, pass_device_last_;
  TaskGraph::TaskId busiest_device_ =
      -1;  // last task so far of the lane that works longest per pass
  std::int32_t bound_lane_ = -1;
  Prediction prediction_;
};

}  // namespace

std::string_view to_string(Term term) {
  switch (term) {
    case Term::kT1:
      return "T1";
    case Term::kT2:
      return "T2";
    case Term::kT3:
      return "T3";
    case Term::kT4:
      return "T4";
    case Term::kT5:
      return "T5";
    case Term::kTx:
      return "TX";
    case Term::kKernel:
      return "kernel";
    case Term::kCopy:
      return "copy";
    case Term::kSet:
      return "set";
    case Term::kCollective:
      return "collective";
  }
  return "";
}

Result<Prediction> predict(const ExecutionGraph& graph, const Gpu& gpu, const OverheadTable& table,
                           const PredictOptions& options) {
  if (table.method == OverheadMethod::kLin) return lin_traversal(graph, gpu, table, options);
  return Engine(graph, gpu, table, options).run();
}

std::vector<std::size_t> predicted_launches(const ExecutionGraph& graph, const Gpu& gpu,
                                            const LaunchTemplates* templates) {
  Lowering lowering(graph, gpu, templates);
  std::vector<std::size_t> launches;
  for (std::int32_t node : top_level_ops(graph)) {
    const LoweredOp op = lowering.lower(node);
    launches.push_back(static_cast<std::size_t>(std::count_if(
        op.calls.begin(), op.calls.end(),
        [](const LoweredCall& call) { return call.call.kind != TemplateCall::Kind::kSync; })));
  }
  return launches;
}

}  // namespace perfmodel
