#include "layout_traces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "perfmodel/detail/schedule.hpp"
#include "replay/chakra_export.hpp"

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;
using Tasks = std::vector<TaskId>;

constexpr double kMostNodes = 4e6;  // of all files together, some 700 bytes each in memory

double to_real(std::int64_t number) { return static_cast<double>(number); }

/// Ranks that a collective is among; of a rank, each names one group.
enum class RankGroup : std::uint8_t { kTensor, kData, kShards, kReplicas, kWords, kWorld };
constexpr std::array<std::string_view, 6> kGroupSymbols = {"tensor",   "data",  "shards",
                                                           "replicas", "words", ""};

/// Rows of a stage in the timeline.
enum class Row : std::uint8_t { kPasses, kHost, kCompute, kTensor, kData, kForward, kBackward };
constexpr std::array<std::string_view, 7> kRowNames = {
    "passes",        "host",          "compute",       "tensor parallel",
    "data parallel", "sends forward", "sends backward"};

struct TaskNote {
  std::size_t stage = 0;
  Row row = Row::kCompute;
  std::uint32_t name = 0;
  bool on_host = false;
  std::optional<ChakraCollective> collective;
  RankGroup group = RankGroup::kWorld;
  std::int64_t bytes = 0, group_size = 1;
  std::optional<ChakraTransfer> transfer;  // between stages
};

/// A stretch of a pass: kernels, or one collective.
struct Stretch {
  double us = 0;
  std::uint32_t name = 0;
  std::optional<ChakraCollective> collective;
  double bytes = 0;
};

struct PassTasks {
  Tasks ends;
  std::vector<Tasks> at_cuts;
};

struct PassSlice {
  std::size_t stage = 0;
  std::uint32_t name = 0;
  TaskId first = -1;  // of the tasks added for it; they are numbered one after the other
  TaskId last = -1;
};

class TaskWriter {
 public:
  TaskWriter(const StepQuestion& question, const LayoutWork& work)
      : question_(question), layout_(*question.layout), work_(work), fronts_(stages()) {}

  Result<void> run() {
    if (auto good = check_size(); !good) return good;
    if (work_.sharded) {
      sharded(*work_.sharded);
    } else {
      stages_in_order();
    }
    finish_step();
    auto made = run_schedule(graph_);
    if (!made) return Unexpected{made.error()};
    schedule_ = std::move(*made);
    return {};
  }

  double makespan_us() const { return schedule_.makespan_us(); }
  double nodes_of_rank() const { return nodes_of_rank_; }  ///< about, of the fullest

  std::vector<ChakraTrace> traces() const {
    return chakra_traces(graph_, schedule_, {0, static_cast<TaskId>(graph_.size())}, stages(),
                         [this](TaskId task) { return chakra_task(task); });
  }

  JobTimeline timeline() const {
    JobTimeline made;
    made.title = question_.job->model.name;
    made.names = names_;
    const std::int64_t together = layout_.tp * layout_.dp;
    for (std::size_t stage = 0; stage < stages(); ++stage) {
      const std::int64_t first = static_cast<std::int64_t>(stage) * together;
      made.ranks.push_back(together == 1 ? fmt::format("stage {} (rank {})", stage, first)
                                         : fmt::format("stage {} (ranks {} to {})", stage, first,
                                                       first + together - 1));
      for (std::size_t row = 0; row < kRowNames.size(); ++row) {
        const bool on_host = row <= static_cast<std::size_t>(Row::kHost);
        made.tracks.push_back({.rank = stage,
                               .device = !on_host,
                               .id = static_cast<std::int64_t>(row),
                               .name = std::string(kRowNames[row])});
      }
    }
    std::vector<std::vector<JobTimeline::Slice>> by_track(made.tracks.size());
    const auto put = [&](std::size_t stage, Row row, std::uint32_t name, std::string_view category,
                         double start, double end) {
      const std::size_t track = stage * kRowNames.size() + static_cast<std::size_t>(row);
      by_track[track].push_back({.track = static_cast<std::uint32_t>(track),
                                 .name = name,
                                 .category = category,
                                 .start_us = start,
                                 .duration_us = end - start});
    };
    for (std::size_t i = 0; i < notes_.size(); ++i) {
      const double start = schedule_.start_us[i], end = schedule_.end_us[i];
      if (!notes_[i] || end <= start) continue;
      put(notes_[i]->stage, notes_[i]->row, notes_[i]->name,
          notes_[i]->on_host ? "cpu_op" : "kernel", start, end);
    }
    for (const PassSlice& pass : passes_) {
      double start = schedule_.makespan_us(), end = 0;
      for (TaskId task = pass.first; task <= pass.last; ++task) {
        start = std::min(start, schedule_.start_us[static_cast<std::size_t>(task)]);
        end = std::max(end, schedule_.end_us[static_cast<std::size_t>(task)]);
      }
      put(pass.stage, Row::kPasses, pass.name, "user_annotation", start, end);
    }
    for (auto& slices : by_track) {
      std::ranges::stable_sort(slices, {}, &JobTimeline::Slice::start_us);
      made.slices.insert(made.slices.end(), slices.begin(), slices.end());
    }
    return made;
  }

 private:
  std::size_t stages() const { return static_cast<std::size_t>(question_.layout->pp); }

  std::uint32_t name(std::string text) {
    const auto [at, is_new] =
        name_ids_.emplace(std::move(text), static_cast<std::uint32_t>(names_.size()));
    if (is_new) names_.push_back(at->first);
    return at->second;
  }

  // --- tasks -------------------------------------------------------------------------------------

  static std::int32_t lane_of(std::size_t stage, Row row) {
    return static_cast<std::int32_t>(stage * kRowNames.size() + static_cast<std::size_t>(row));
  }

  TaskId add(std::optional<TaskNote> note, std::int32_t lane, double us, const Tasks& after) {
    const TaskId task = graph_.add_task(lane, us);
    notes_.push_back(std::move(note));
    for (TaskId before : after) graph_.add_edge(before, task);
    return task;
  }

  TaskId add_host(std::size_t stage, std::uint32_t what, double us, const Tasks& after) {
    return add(TaskNote{.stage = stage, .row = Row::kHost, .name = what, .on_host = true},
               lane_of(stage, Row::kHost), us, after);
  }

  TaskId add_kernels(std::size_t stage, std::uint32_t what, double us, const Tasks& after) {
    return add(TaskNote{.stage = stage, .row = Row::kCompute, .name = what},
               lane_of(stage, Row::kCompute), us, after);
  }

  struct Collective {
    ChakraCollective kind = ChakraCollective::kAllReduce;
    RankGroup group = RankGroup::kTensor;
    std::int64_t ranks = 1;
    double bytes = 0;
  };
  TaskId add_collective(std::size_t stage, std::uint32_t what, const Collective& of, double us,
                        const Tasks& after, bool in_lane = true) {
    const Row row = of.group == RankGroup::kTensor ? Row::kTensor : Row::kData;
    return add(TaskNote{.stage = stage,
                        .row = row,
                        .name = what,
                        .collective = of.kind,
                        .group = of.group,
                        .bytes = std::llround(of.bytes),
                        .group_size = of.ranks},
               in_lane ? lane_of(stage, row) : TaskGraph::kNoLane, us, after);
  }

  // --- passes ------------------------------------------------------------------------------------

  // A part's kernels in equal parts around its collectives, which take turns by kind.
  void append_part(std::vector<Stretch>& to, const PassWork& pass, std::string_view part,
                   std::string_view direction) {
    const CollectiveSums& sums = pass.collectives;
    const std::pair<const CollectiveSum*, ChakraCollective> kinds[] = {
        {&sums.all_gather, ChakraCollective::kAllGather},
        {&sums.all_reduce, ChakraCollective::kAllReduce},
        {&sums.reduce_scatter, ChakraCollective::kReduceScatter}};
    const double whole = sums.all_gather.us + sums.all_reduce.us + sums.reduce_scatter.us;
    const double exposed = whole > 0 ? pass.comm_us / whole : 0;
    std::vector<std::pair<double, Stretch>> collectives;  // by place
    for (const auto& [sum, kind] : kinds) {
      const auto count = std::llround(sum->count);
      for (std::int64_t i = 0; i < count; ++i) {
        collectives.emplace_back(
            (to_real(i) + 0.5) / to_real(count),
            Stretch{.us = std::max(0.0, sum->us) / to_real(count) * exposed,
                    .name = name(fmt::format("{} of {} {}", to_string(kind), part, direction)),
                    .collective = kind,
                    .bytes = sum->bytes / to_real(count)});
      }
    }
    std::ranges::stable_sort(collectives, {}, [](const auto& one) { return one.first; });
    const double piece =
        std::max(0.0, pass.kernel_us) / to_real(static_cast<std::int64_t>(collectives.size()) + 1);
    const std::uint32_t kernels = name(fmt::format("{} {}", part, direction));
    for (auto& [place, collective] : collectives) {
      if (piece > 0) to.push_back({.us = piece, .name = kernels});
      to.push_back(std::move(collective));
    }
    if (piece > 0) to.push_back({.us = piece, .name = kernels});
  }

  std::vector<Stretch> forward_of(const ChunkWork& chunk) {
    std::vector<Stretch> made;
    if (chunk.holds.embeds) append_part(made, work_.embedding.forward, "embedding", "forward");
    for (std::int64_t i = 0; i < chunk.holds.layers; ++i) {
      append_part(made, work_.layer.forward, "layer", "forward");
    }
    if (chunk.holds.heads) append_part(made, work_.head.forward, "output layer", "forward");
    if (chunk.holds.loses) append_part(made, work_.loss.forward, "loss", "forward");
    return made;
  }

  std::vector<Stretch> backward_of(const ChunkWork& chunk) {
    std::vector<Stretch> made;
    if (chunk.holds.loses) append_part(made, work_.loss.backward, "loss", "backward");
    if (chunk.holds.heads) append_part(made, work_.head.backward, "output layer", "backward");
    for (std::int64_t i = 0; i < chunk.holds.layers; ++i) {
      append_part(made, work_.layer.backward, "layer", "backward");
    }
    if (chunk.holds.embeds) append_part(made, work_.embedding.backward, "embedding", "backward");
    double listed = 0;
    for (const Stretch& one : made) listed += one.collective ? 0 : one.us;
    const double rest = chunk.parts.backward.kernel_us - listed;
    if (rest > 1e-6) made.push_back({.us = rest, .name = name("sum of gradients")});
    return made;
  }

  TaskId add_stretch(std::size_t stage, const Stretch& one, double us, const Tasks& after) {
    if (!one.collective) return add_kernels(stage, one.name, us, after);
    return add_collective(stage, one.name,
                          {.kind = *one.collective,
                           .group = RankGroup::kTensor,
                           .ranks = layout_.tp,
                           .bytes = one.bytes},
                          us, after);
  }

  // The device's chain of one pass. Kernels are cut where gradients of a bucket are ready, at
  // `cuts` (ascending shares of the pass); a collective is not cut.
  void device_chain(std::size_t stage, const std::vector<Stretch>& stretches,
                    const std::vector<double>& cuts, const Tasks& front, PassTasks& made) {
    double whole = 0;
    for (const Stretch& one : stretches) whole += one.us;
    const double close = 1e-9 * whole;
    Tasks before = front;
    double passed = 0;
    std::size_t cut = 0;
    const auto reach = [&] {
      while (cut < cuts.size() && cuts[cut] * whole <= passed + close) made.at_cuts[cut++] = before;
    };
    for (const Stretch& one : stretches) {
      double left = one.us;
      while (!one.collective && cut < cuts.size() && cuts[cut] * whole < passed + left - close) {
        const double piece = cuts[cut] * whole - passed;
        before = {add_stretch(stage, one, piece, before)};
        passed += piece;
        left -= piece;
        reach();
      }
      before = {add_stretch(stage, one, left, before)};
      passed += left;
      reach();
    }
    while (cut < cuts.size()) made.at_cuts[cut++] = before;
    made.ends = before;
  }

  void host_chain(std::size_t stage, double host_us, std::uint32_t what,
                  const std::vector<double>& cuts, const Tasks& front, PassTasks& made) {
    if (host_us <= 0) return;
    Tasks before = front;
    double passed = 0;
    for (std::size_t cut = 0; cut < cuts.size(); ++cut) {
      const double piece = cuts[cut] * host_us - passed;
      if (piece > 0) before = {add_host(stage, what, piece, before)};
      passed += std::max(0.0, piece);
      made.at_cuts[cut].insert(made.at_cuts[cut].end(), before.begin(), before.end());
    }
    if (host_us - passed > 1e-9 * host_us || cuts.empty()) {
      before = {add_host(stage, what, host_us - passed, before)};
    }
    made.ends.insert(made.ends.end(), before.begin(), before.end());
  }

  PassTasks pass(std::size_t stage, const std::vector<Stretch>& stretches, double host_us,
                 const std::string& title, const Tasks& front, const std::vector<double>& cuts) {
    PassTasks made{.at_cuts = std::vector<Tasks>(cuts.size())};
    const auto first = static_cast<TaskId>(graph_.size());
    device_chain(stage, stretches, cuts, front, made);
    host_chain(stage, host_us, name("host"), cuts, front, made);
    const auto last = static_cast<TaskId>(graph_.size()) - 1;
    if (last >= first) passes_.push_back({stage, name(title), first, last});
    return made;
  }

  // --- stages ------------------------------------------------------------------------------------

  /// Both directions of a chunk, made once.
  struct ChunkStretches {
    std::vector<Stretch> forward, backward;
  };

  /// Which share of a chunk's last backward pass a bucket needs.
  struct ReadyBucket {
    std::int64_t chunk = 0;
    double share = 1;
  };

  std::vector<ReadyBucket> ready_buckets(std::size_t stage,
                                         const std::vector<parallel::PipelineOp>& order) const {
    const GradientSums& sums = work_.stages[stage].sums;
    if (sums.buckets == 0 || !question_.framework->overlap_gradients) return {};
    // Chunks in the order of their last backward passes.
    std::vector<std::int64_t> chunks;
    for (std::size_t i = order.size(); i-- > 0;) {
      if (!order[i].backward) continue;
      if (std::ranges::find(chunks, order[i].chunk) == chunks.end()) {
        chunks.push_back(order[i].chunk);
      }
    }
    std::ranges::reverse(chunks);
    double all = 0;
    for (std::int64_t chunk : chunks) all += backward_us(stage, chunk);
    std::vector<ReadyBucket> made;
    double before = 0;
    std::size_t at = 0;
    for (std::int64_t k = 1; k <= sums.buckets; ++k) {
      const double ready = all * to_real(k) / to_real(sums.buckets);
      while (at + 1 < chunks.size() && ready > before + backward_us(stage, chunks[at])) {
        before += backward_us(stage, chunks[at++]);
      }
      const double own = backward_us(stage, chunks[at]);
      made.push_back({chunks[at], own > 0 ? std::min(1.0, (ready - before) / own) : 1});
    }
    return made;
  }

  const ChunkWork& chunk_at(std::size_t stage, std::int64_t chunk) const {
    return work_.chunks[static_cast<std::size_t>(chunk) * stages() + stage];
  }
  double backward_us(std::size_t stage, std::int64_t chunk) const {
    return chunk_at(stage, chunk).parts.backward.total_us();
  }

  std::int64_t microbatches() const { return work_.microbatches; }

  void stages_in_order() {
    const std::size_t messages = work_.chunks.size() * static_cast<std::size_t>(microbatches());
    for (auto* list : {&sends_, &receives_}) {
      for (auto& direction : *list) direction.assign(messages, -1);
    }
    for (std::size_t stage = 0; stage < stages(); ++stage) stage_in_order(stage);
    for (std::size_t direction = 0; direction < 2; ++direction) {
      for (std::size_t i = 0; i < messages; ++i) {
        if (receives_[direction][i] < 0) continue;
        graph_.add_edge(sends_[direction][i], receives_[direction][i]);
      }
    }
  }

  void stage_in_order(std::size_t stage) {
    const auto order =
        parallel::pipeline_order(pipeline_schedule_of(layout_), layout_.pp, layout_.vp,
                                 microbatches(), static_cast<std::int64_t>(stage));
    PERFMODEL_CHECK(order.has_value());  // its sizes were checked with the layout
    std::vector<ChunkStretches> stretches;
    for (std::int64_t chunk = 0; chunk < layout_.vp; ++chunk) {
      stretches.push_back(
          {forward_of(chunk_at(stage, chunk)), backward_of(chunk_at(stage, chunk))});
    }
    const std::vector<ReadyBucket> buckets = ready_buckets(stage, *order);
    std::vector<std::int64_t> left(static_cast<std::size_t>(layout_.vp), microbatches());
    Tasks bucket_tasks;
    for (const parallel::PipelineOp& op : *order) {
      const auto chunk = static_cast<std::size_t>(op.chunk);
      std::vector<double> cuts;
      if (op.backward && --left[chunk] == 0) {
        for (const ReadyBucket& bucket : buckets) {
          if (bucket.chunk == op.chunk) cuts.push_back(bucket.share);
        }
      }
      const PassTasks made = one_op(stage, op, stretches[chunk], cuts);
      for (const Tasks& ready : made.at_cuts) {
        bucket_tasks = {add_bucket(stage, work_.stages[stage].sums, ready)};
      }
    }
    Tasks& front = fronts_[stage];
    if (!question_.framework->overlap_gradients) {
      for (std::int64_t i = 0; i < work_.stages[stage].sums.buckets; ++i) {
        front = {add_bucket(stage, work_.stages[stage].sums, front)};
      }
    }
    front.insert(front.end(), bucket_tasks.begin(), bucket_tasks.end());
  }

  TaskId add_bucket(std::size_t stage, const GradientSums& sums, const Tasks& ready) {
    return add_collective(
        stage, name("gradients"),
        {.kind = sums.scatters ? ChakraCollective::kReduceScatter : ChakraCollective::kAllReduce,
         .group = RankGroup::kData,
         .ranks = layout_.dp,
         .bytes = sums.bytes / to_real(sums.buckets)},
        sums.bucket_us, ready);
  }

  std::string title_of(const parallel::PipelineOp& op) const {
    std::string title = fmt::format("{} {}", op.backward ? "backward" : "forward", op.microbatch);
    if (layout_.vp > 1) title += fmt::format(", chunk {}", op.chunk);
    return title;
  }

  PassTasks one_op(std::size_t stage, const parallel::PipelineOp& op,
                   const ChunkStretches& stretches, const std::vector<double>& cuts) {
    const ChunkWork& chunk = chunk_at(stage, op.chunk);
    const PassWork& work = op.backward ? chunk.parts.backward : chunk.parts.forward;
    const std::size_t place = static_cast<std::size_t>(op.chunk) * stages() + stage;
    const std::size_t depth = work_.chunks.size();
    Tasks& front = fronts_[stage];
    const bool from_other = op.backward ? place + 1 < depth : place > 0;
    const bool to_other = op.backward ? place > 0 : place + 1 < depth;
    if (from_other) front.push_back(receive(stage, op, place));
    PassTasks made = pass(stage, op.backward ? stretches.backward : stretches.forward, work.host_us,
                          title_of(op), front, cuts);
    front = made.ends;
    if (stages() > 1 && work_.hop.occupies_us > 0) {
      front = {add_host(stage, name("send to the next stage"), work_.hop.occupies_us, front)};
    }
    if (to_other) send(stage, op, place);
    return made;
  }

  // Messages of a direction are told apart by the chunk that receives them.
  static std::int32_t tag_of(const parallel::PipelineOp& op, std::size_t receiver) {
    return static_cast<std::int32_t>(2 * receiver + (op.backward ? 1 : 0));
  }
  std::size_t message_at(std::size_t receiver, const parallel::PipelineOp& op) const {
    return receiver * static_cast<std::size_t>(microbatches()) +
           static_cast<std::size_t>(op.microbatch);
  }

  void send(std::size_t stage, const parallel::PipelineOp& op, std::size_t place) {
    const std::size_t receiver = op.backward ? place - 1 : place + 1;
    const TaskNote note{
        .stage = stage,
        .row = op.backward ? Row::kBackward : Row::kForward,
        .name = name(op.backward ? "send gradients" : "send activations"),
        .bytes = std::llround(work_.hop.send_bytes),
        .transfer = ChakraTransfer{.receives = false,
                                   .from = static_cast<std::int32_t>(stage),
                                   .to = static_cast<std::int32_t>(receiver % stages()),
                                   .tag = tag_of(op, receiver)}};
    sends_[op.backward ? 1 : 0][message_at(receiver, op)] =
        add(note, TaskGraph::kNoLane, work_.hop.send_us, fronts_[stage]);
  }

  TaskId receive(std::size_t stage, const parallel::PipelineOp& op, std::size_t place) {
    const std::size_t sender = op.backward ? place + 1 : place - 1;
    const TaskNote note{
        .stage = stage,
        .row = op.backward ? Row::kBackward : Row::kForward,
        .name = name(op.backward ? "receive gradients" : "receive activations"),
        .bytes = std::llround(work_.hop.send_bytes),
        .transfer = ChakraTransfer{.receives = true,
                                   .from = static_cast<std::int32_t>(sender % stages()),
                                   .to = static_cast<std::int32_t>(stage),
                                   .tag = tag_of(op, place)}};
    const TaskId got = add(note, TaskGraph::kNoLane, 0, {});
    receives_[op.backward ? 1 : 0][message_at(place, op)] = got;
    if (work_.hop.regather_us <= 0) return got;
    return add_collective(stage, name("gather what the ranks received"),
                          {.kind = ChakraCollective::kAllGather,
                           .group = RankGroup::kTensor,
                           .ranks = layout_.tp,
                           .bytes = work_.hop.regather_bytes},
                          work_.hop.regather_us, {got}, false);
  }

  // --- ZeRO-3, FSDP ------------------------------------------------------------------------------

  TaskId add_unit_traffic(bool gathers, const ShardedWork& sharded, const ShardedWork::Unit& unit,
                          const Tasks& after) {
    const double us = gathers ? unit.times.all_gather_us : unit.times.reduce_scatter_us;
    return add_collective(
        0, name(gathers ? "gather parameters" : "scatter gradients"),
        {.kind = gathers ? ChakraCollective::kAllGather : ChakraCollective::kReduceScatter,
         .group = RankGroup::kShards,
         .ranks = sharded.shards,
         .bytes = gathers ? unit.gather_bytes : unit.scatter_bytes},
        us, after);
  }

  struct UnitStretches {
    const ShardedWork::Unit* unit = nullptr;
    std::vector<Stretch> forward, backward;
  };

  void sharded(const ShardedWork& sharded) {
    UnitStretches units[3] = {
        {&sharded.first, {}, {}}, {&sharded.layer, {}, {}}, {&sharded.last, {}, {}}};
    append_part(units[0].forward, work_.embedding.forward, "embedding", "forward");
    append_part(units[0].backward, work_.embedding.backward, "embedding", "backward");
    append_part(units[1].forward, work_.layer.forward, "layer", "forward");
    append_part(units[1].backward, work_.layer.backward, "layer", "backward");
    append_part(units[2].forward, work_.head.forward, "output layer", "forward");
    append_part(units[2].forward, work_.loss.forward, "loss", "forward");
    append_part(units[2].backward, work_.loss.backward, "loss", "backward");
    append_part(units[2].backward, work_.head.backward, "output layer", "backward");
    for (std::int64_t m = 0; m < microbatches(); ++m) {
      sharded_microbatch(sharded, units, m);
    }
    if (sharded.replicas_us <= 0) return;
    fronts_[0] = {add_collective(0, name("gradients of the copies"),
                                 {.kind = ChakraCollective::kAllReduce,
                                  .group = RankGroup::kReplicas,
                                  .ranks = layout_.dp / sharded.shards,
                                  .bytes = sharded.replicas_bytes},
                                 sharded.replicas_us, fronts_[0])};
  }

  // The order of `fsdp_timeline`; without overlap everything is one chain.
  void sharded_microbatch(const ShardedWork& sharded, const UnitStretches* units,
                          std::int64_t microbatch) {
    const auto count = static_cast<std::size_t>(sharded.layers) + 2;
    const auto unit = [&](std::size_t i) -> const UnitStretches& {
      return units[i == 0 ? 0 : i + 1 == count ? 2 : 1];
    };
    const bool overlaps = question_.framework->overlaps_gathers && sharded.shards > 1;
    const Tasks begin = fronts_[0];
    Tasks compute = begin, traffic = begin;
    std::vector<Tasks> forward_ends(count);
    std::vector<Tasks> gathered(count);
    const auto move_unit = [&](bool gathers, std::size_t i, const Tasks& after) {
      if (sharded.shards == 1) return after;
      Tasks all = overlaps ? after : compute;
      all.insert(all.end(), traffic.begin(), traffic.end());
      traffic = {add_unit_traffic(gathers, sharded, *unit(i).unit, all)};
      if (!overlaps) compute = traffic;
      return traffic;
    };
    const auto run_unit = [&](std::size_t i, bool backward, const Tasks& ready) {
      Tasks front = compute;
      front.insert(front.end(), ready.begin(), ready.end());
      const PartWork& parts = unit(i).unit->parts;
      compute =
          pass(0, backward ? unit(i).backward : unit(i).forward,
               (backward ? parts.backward : parts.forward).host_us,
               fmt::format("{} {}, unit {}", backward ? "backward" : "forward", microbatch, i),
               front, {})
              .ends;
    };
    const auto inflight = static_cast<std::size_t>(sharded.options.max_inflight_all_gathers);
    for (std::size_t i = 0; i < count; ++i) {
      const Tasks ready = move_unit(true, i, i >= inflight ? forward_ends[i - inflight] : begin);
      run_unit(i, false, ready);
      forward_ends[i] = compute;
    }
    const auto gather_again = [&](std::size_t i) {
      const bool holds =
          unit(i).unit->times.keeps_params || (sharded.options.keep_last_unit && i + 1 == count);
      if (!holds) gathered[i] = move_unit(true, i, compute);
    };
    for (std::size_t i = count; i-- > 0;) {
      if (i > 0) gather_again(i - 1);
      run_unit(i, true, gathered[i]);
      move_unit(false, i, compute);
    }
    Tasks ends = compute;
    ends.insert(ends.end(), traffic.begin(), traffic.end());
    if (sharded.slowed_us > 0) {
      ends = {add_kernels(0, name("kernels slower beside collectives"), sharded.slowed_us, ends)};
    }
    if (sharded.late_host_us > 0) {
      ends = {add_host(0, name("host of the microbatch"), sharded.late_host_us, ends)};
    }
    fronts_[0] = ends;
  }

  // --- end of the step
  // -----------------------------------------------------------------------------

  // A collective of stages: all wait for the last.
  void meet(const std::vector<std::size_t>& members, std::uint32_t what, const Collective& of,
            double us) {
    const TaskId all = add(std::nullopt, TaskGraph::kNoLane, 0, {});
    for (std::size_t stage : members) {
      for (TaskId task : fronts_[stage]) graph_.add_edge(task, all);
    }
    for (std::size_t stage : members) {
      const TaskId sum = add_collective(stage, what, of, us, fronts_[stage]);
      graph_.add_edge(all, sum);
      fronts_[stage] = {sum};
    }
  }

  void finish_step() {
    constexpr double kBytesOfNorm = 4;
    if (work_.tied_words_us > 0) {
      meet({0, stages() - 1}, name("gradients of the tied embeddings"),
           {.group = RankGroup::kWords, .ranks = 2, .bytes = work_.tied_words_bytes},
           work_.tied_words_us);
    }
    if (layout_.gpus() > 1) {
      std::vector<std::size_t> all;
      for (std::size_t stage = 0; stage < stages(); ++stage) all.push_back(stage);
      // Clipping asks for the norm of all gradients: nobody updates before all have summed.
      meet(all, name("norm of the gradients"),
           {.group = RankGroup::kWorld, .ranks = layout_.gpus(), .bytes = kBytesOfNorm}, 0);
    }
    for (std::size_t stage = 0; stage < stages(); ++stage) finish_stage(stage);
  }

  void finish_stage(std::size_t stage) {
    Tasks& front = fronts_[stage];
    const StageWork& work = work_.stages[stage];
    if (work_.nodes_us > 0) {
      front = {add_host(stage, name("waits by the number of nodes"), work_.nodes_us, front)};
    }
    front = {add_kernels(stage, name("optimizer"), work.optimizer_us, front)};
    if (work.gather_us > 0) {
      front = {add_collective(stage, name("gather updated weights"),
                              {.kind = ChakraCollective::kAllGather,
                               .group = RankGroup::kData,
                               .ranks = layout_.dp,
                               .bytes = work.gather_bytes},
                              work.gather_us, front)};
    }
  }

  Result<void> check_size() {
    double layers = 0;  // of the stage with most
    for (std::size_t stage = 0; stage < stages(); ++stage) {
      double own = 0;
      for (std::int64_t chunk = 0; chunk < layout_.vp; ++chunk) {
        own += to_real(chunk_at(stage, chunk).holds.layers) + 3;
      }
      layers = std::max(layers, own);
    }
    const auto of = [](const PassWork& pass) {
      const CollectiveSums& sums = pass.collectives;
      return 2 * (sums.all_gather.count + sums.all_reduce.count + sums.reduce_scatter.count) + 3;
    };
    nodes_of_rank_ =
        layers * to_real(microbatches()) * (of(work_.layer.forward) + of(work_.layer.backward));
    if (nodes_of_rank_ * to_real(layout_.pp) <= kMostNodes) return {};
    return fail(
        ErrorCode::kImpossible,
        fmt::format("expected at most {:.0f} million nodes, found about {:.0f} million in "
                    "the {} stages of this step (export fewer microbatches: a smaller "
                    "global batch)",
                    kMostNodes * 1e-6, nodes_of_rank_ * to_real(layout_.pp) * 1e-6, layout_.pp));
  }

  std::optional<ChakraTask> chakra_task(TaskId task) const {
    const auto& note = notes_[static_cast<std::size_t>(task)];
    if (!note) return std::nullopt;
    return ChakraTask{
        .rank = note->stage,
        .name = names_[note->name],
        .on_host = note->on_host,
        .collective = note->collective,
        .comm_bytes = note->bytes,
        .group_size = note->group_size,
        .process_group = note->collective
                             ? std::string(kGroupSymbols[static_cast<std::size_t>(note->group)])
                             : std::string(),
        .transfer = note->transfer};
  }

  const StepQuestion& question_;
  const ParallelLayout& layout_;
  const LayoutWork& work_;
  TaskGraph graph_;
  Schedule schedule_;
  std::vector<std::optional<TaskNote>> notes_;  // per task
  std::vector<PassSlice> passes_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::uint32_t> name_ids_;
  std::vector<Tasks> fronts_;                            // per stage: what its next task waits for
  std::array<std::vector<TaskId>, 2> sends_, receives_;  // forward, backward: per message
  double nodes_of_rank_ = 0;
};

/// Where a rank stands; ranks are numbered tensor first, then data, then stage.
struct RankPlace {
  std::int64_t tensor = 0, data = 0, stage = 0;
};

/// Process groups get numbers, as network simulators want them.
class GroupNumbers {
 public:
  GroupNumbers(const ParallelLayout& layout, std::int64_t shards, bool every_rank)
      : layout_(layout), shards_(std::max<std::int64_t>(1, shards)), every_rank_(every_rank) {}

  std::string of(std::string_view symbol, const RankPlace& at) {
    if (symbol.empty()) return "";
    const std::vector<std::int64_t> ranks =
        every_rank_ ? ranks_of(symbol, at) : stages_of(symbol, at);
    const auto [found, is_new] =
        known_.emplace(std::pair(std::string(symbol), ranks), std::to_string(known_.size() + 1));
    if (is_new) groups_[found->second] = ranks;
    return found->second;
  }
  std::int64_t rank(const RankPlace& at) const {
    if (!every_rank_) return at.stage;
    return at.tensor + layout_.tp * (at.data + layout_.dp * at.stage);
  }
  std::map<std::string, std::vector<std::int64_t>> groups() && { return std::move(groups_); }

 private:
  // Among files of one rank per stage only the words' group has two.
  std::vector<std::int64_t> stages_of(std::string_view symbol, const RankPlace& at) const {
    if (symbol == "words") return {0, layout_.pp - 1};
    return {at.stage};
  }

  std::vector<std::int64_t> ranks_of(std::string_view symbol, RankPlace at) const {
    std::vector<std::int64_t> ranks;
    const auto over = [&](std::int64_t RankPlace::*axis, std::int64_t first, std::int64_t count,
                          std::int64_t stride) {
      for (std::int64_t i = 0; i < count; ++i) {
        at.*axis = first + i * stride;
        ranks.push_back(rank(at));
      }
    };
    if (symbol == "tensor") over(&RankPlace::tensor, 0, layout_.tp, 1);
    if (symbol == "data") over(&RankPlace::data, 0, layout_.dp, 1);
    if (symbol == "shards") over(&RankPlace::data, at.data / shards_ * shards_, shards_, 1);
    if (symbol == "replicas") {
      over(&RankPlace::data, at.data % shards_, layout_.dp / shards_, shards_);
    }
    if (symbol == "words") over(&RankPlace::stage, 0, 2, layout_.pp - 1);
    return ranks;
  }

  const ParallelLayout& layout_;
  std::int64_t shards_;
  bool every_rank_;
  std::map<std::pair<std::string, std::vector<std::int64_t>>, std::string> known_;
  std::map<std::string, std::vector<std::int64_t>> groups_;
};

// What one rank of a stage does, for the rank at that place.
ChakraTrace trace_of_rank(const ChakraTrace& stage, const RankPlace& at, GroupNumbers& groups) {
  ChakraTrace made = stage;
  std::unordered_map<std::string, std::string> known;
  const auto rank_at_stage = [&](std::int32_t other) {
    return static_cast<std::int32_t>(groups.rank({at.tensor, at.data, other}));
  };
  for (ChakraNode& node : made.nodes) {
    if (node.type == ChakraNodeType::kCollective && !node.pg_name.empty()) {
      const auto [found, is_new] = known.try_emplace(node.pg_name);
      if (is_new) found->second = groups.of(node.pg_name, at);
      node.pg_name = found->second;
    }
    if (node.comm_src) node.comm_src = rank_at_stage(*node.comm_src);
    if (node.comm_dst) node.comm_dst = rank_at_stage(*node.comm_dst);
  }
  return made;
}

}  // namespace

Result<LayoutTraces> layout_traces(const StepQuestion& question, const LayoutWork& work,
                                   bool every_rank) {
  const ParallelLayout& layout = *question.layout;
  TaskWriter writer(question, work);
  if (auto done = writer.run(); !done) return Unexpected{done.error()};
  if (every_rank && writer.nodes_of_rank() * to_real(layout.gpus()) > kMostNodes) {
    return fail(
        ErrorCode::kImpossible,
        fmt::format("expected at most {:.0f} million nodes, found about {:.0f} million in "
                    "the files of {} ranks (one file per stage holds {:.2g} million)",
                    kMostNodes * 1e-6, writer.nodes_of_rank() * to_real(layout.gpus()) * 1e-6,
                    layout.gpus(), writer.nodes_of_rank() * 1e-6));
  }
  const std::vector<ChakraTrace> stages = writer.traces();
  GroupNumbers groups(layout, work.sharded ? work.sharded->shards : 1, every_rank);
  LayoutTraces made{.timeline = writer.timeline(), .step_us = writer.makespan_us()};
  for (std::int64_t stage = 0; stage < layout.pp; ++stage) {
    const ChakraTrace& trace = stages[static_cast<std::size_t>(stage)];
    const std::int64_t replicas = every_rank ? layout.dp : 1, parts = every_rank ? layout.tp : 1;
    for (std::int64_t data = 0; data < replicas; ++data) {
      for (std::int64_t tensor = 0; tensor < parts; ++tensor) {
        made.ranks.push_back(trace_of_rank(trace, {tensor, data, stage}, groups));
      }
    }
  }
  made.groups.groups = std::move(groups).groups();
  return made;
}

}  // namespace perfmodel
