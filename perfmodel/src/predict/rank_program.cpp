#include "rank_program.hpp"

#include <fmt/format.h>

#include <utility>

#include "perfmodel/graph/detail/event_names.hpp"
#include "program/add_scale_out.hpp"
#include "program/given_times.hpp"
#include "program/launch_regions.hpp"
#include "program/lower_program.hpp"
#include "program/price_program.hpp"
#include "program/silent_collectives.hpp"

namespace perfmodel {
namespace {

// The rank becomes one of strategy ddp.
Result<void> make_data_parallel(RankProgram& made) {
  RankInput& rank = made.rank;
  PERFMODEL_TRY(graph, make_data_parallel_graph(*rank.graph, *rank.options.scale_out));
  made.made = std::make_shared<DataParallelGraph>(std::move(*graph));
  rank.graph = &made.made->graph;
  if (rank.options.kernel_times) {
    made.times =
        std::make_shared<KernelTimes>(times_of_copies(*rank.options.kernel_times, *made.made));
    rank.options.kernel_times = made.times.get();
  }
  return {};
}

std::int64_t world_of(const PredictOptions& options) {
  return options.scale_out ? options.scale_out->world : options.world_size;
}

Result<void> record_collectives(std::size_t silent, RankProgram& made,
                                std::vector<std::string>& warnings) {
  RankInput& rank = made.rank;
  PERFMODEL_TRY(graph, record_silent_collectives(*rank.graph, world_of(rank.options)));
  made.recorded = std::make_shared<const ExecutionGraph>(std::move(*graph));
  rank.graph = made.recorded.get();
  warnings.push_back(
      fmt::format("{} collectives were recorded without communication (a fake process group): "
                  "they are priced by size and group",
                  silent));
  return {};
}

Result<HostFacts> facts_of(const RankInput& rank) {
  return make_host_facts(*rank.graph, *rank.table, rank.options.iterations);
}

// Warns of fused updates, which a strategy cannot see.
void warn_of_fused_updates(const RankProgram& made, std::size_t updates,
                           std::vector<std::string>& warnings) {
  const auto& how = made.rank.options.scale_out;
  if (updates == 0 || !how || how->world == 1 || made.program.scaled_out->own_collectives) return;
  warnings.push_back(fmt::format(
      "{} {} of embedding tables in the backward pass itself, without gradients: {} keeps all "
      "these tables on every rank and does not synchronise them (`shard` divides tables between "
      "ranks)",
      updates, updates == 1 ? "update" : "updates", to_string(how->strategy)));
}

// Warns of the answer's assumptions about the host.
void warn_of_regions(const LaunchRegions& found, Launching launching,
                     std::vector<std::string>& warnings) {
  if (launching == Launching::kEager) return;
  if (found.regions == 0) {
    warnings.push_back(
        "no stretch of the step can be launched at once: every op with work waits "
        "for the device");
    return;
  }
  warnings.push_back(fmt::format(
      "{} launches of {} {} of the step are made {}", found.launches, found.regions,
      found.regions == 1 ? "stretch" : "stretches",
      launching == Launching::kCudaGraphs
          ? "by captured graphs, as if all their sizes and addresses stayed the same"
          : "by code that does nothing else, a bound: what compiled code spends between launches "
            "is not known"));
}

// Calls of compiled regions that no op below them makes. A table of the same program lists them.
void warn_of_kernels_without_op(const RankInput& rank, const HostProgram& program,
                                std::vector<std::string>& warnings) {
  const KernelTimes* times = rank.options.kernel_times;
  if (!times || program.coverage.own_launches) return;
  std::size_t calls = 0;
  double us = 0;
  for (std::size_t i = 0; i < rank.graph->nodes.size(); ++i) {
    const auto node = static_cast<std::int32_t>(i);
    if (!is_compiled_region(rank.graph->name(node))) continue;
    for (std::uint32_t ordinal = 0; const auto* time = times->find(node, ordinal); ++ordinal) {
      ++calls;
      us += time->us;
    }
  }
  if (calls == 0) return;
  warnings.push_back(fmt::format(
      "{} launches of compiled code, {:.3f} ms in {}, have no op in the graph and are left out: "
      "predict the trace itself",
      calls, us / 1e3, times->source));
}

// Whether questions about other sizes can take over the program.
bool may_repeat(const RankInput& rank, const HostFacts& facts) {
  const PredictOptions& options = rank.options;
  return facts.silent_collectives == 0 && !options.kernel_times && !options.scale_out &&
         options.launching == Launching::kEager && options.host_scale == 1 && !options.keep_ops;
}

Result<void> set_times(const RankInput& rank, const Gpu& gpu, LoweredProgram& lowered) {
  price_program(*rank.graph, gpu, rank.options, lowered);
  if (rank.options.host_scale != 1) scale_host(lowered.program, rank.options.host_scale);
  scale_device(lowered.program, rank.options.device_scale);
  return check_times(lowered.program, *rank.graph);
}

// The questions are kept for those who want them.
void take(LoweredProgram lowered, bool keep_questions, RankProgram& made) {
  made.program = std::move(lowered.program);
  made.notes = std::move(lowered.notes);
  if (keep_questions || made.notes) made.questions = std::move(lowered.questions);
}

Result<LoweredProgram> write_program(const RankInput& rank, const Gpu& gpu, const HostFacts& facts,
                                     bool name_kernels, bool write_notes,
                                     std::vector<std::string>& warnings) {
  const auto& [graph, table, options, name] = rank;
  PERFMODEL_TRY(lowered,
                lower_program(*graph, gpu, *table, facts, options, name_kernels, write_notes));
  if (const auto& how = options.scale_out) {
    PERFMODEL_TRY(scaled,
                  add_scale_out(*graph, gpu, *table, *how, facts.reduces_gradients, *lowered));
  }
  warn_of_regions(launch_by_regions(*table, options.launching, lowered->program), options.launching,
                  warnings);
  warn_of_kernels_without_op(rank, lowered->program, warnings);
  PERFMODEL_TRY_TO(set_times(rank, gpu, *lowered));
  return lowered;
}

}  // namespace

Result<RankProgram> make_rank_program(const RankInput& rank, const Gpu& gpu, const HostFacts* known,
                                      std::optional<double> added_bytes, bool name_kernels,
                                      std::vector<std::string>& warnings, bool keep_questions) {
  RankProgram made{.rank = rank};
  made.gpu = &gpu;
  const bool write_notes = known && may_repeat(rank, *known);
  if (write_notes) made.facts = known;
  Result<HostFacts> own;
  if (!known) {
    own = facts_of(rank);
    if (!own) return Unexpected{own.error()};
    known = &*own;
  }
  if (known->silent_collectives > 0 && world_of(rank.options) > 1) {
    PERFMODEL_TRY(done, record_collectives(known->silent_collectives, made, warnings));
    own = facts_of(made.rank);
    if (!own) return Unexpected{own.error()};
    known = &*own;
  }
  const auto& how = rank.options.scale_out;
  if (how && asks_for_data_parallel(*how, known->reduces_gradients)) {
    PERFMODEL_TRY_TO(make_data_parallel(made));
    added_bytes = made.made->gradient_bytes;
    own = facts_of(made.rank);
    if (!own) return Unexpected{own.error()};
    known = &*own;
  }
  PERFMODEL_TRY(program,
                write_program(made.rank, gpu, *known, name_kernels, write_notes, warnings));
  take(std::move(*program), keep_questions, made);
  made.memory = known->memory;
  if (auto& scaled = made.program.scaled_out; scaled && added_bytes) {
    scaled->own_collectives = false;
    scaled->parameter_bytes = *added_bytes;
  }
  warn_of_fused_updates(made, known->fused_updates, warnings);
  return made;
}

Result<bool> repeat_rank_program(const RankInput& rank, const Gpu& gpu, const HostFacts& facts,
                                 const std::vector<bool>* reshaped, RankProgram& last) {
  const bool same = last.facts == &facts && last.gpu == &gpu && last.notes;
  if (!same || !may_repeat(rank, facts)) return false;
  LoweredProgram program{.program = std::move(last.program),
                         .questions = std::move(last.questions),
                         .nodes_say_times = facts.has_given_times,
                         .notes = std::move(last.notes)};
  const bool repeats = lower_again(*rank.graph, gpu, *rank.table, facts,
                                   reshaped == last.reshaped ? reshaped : nullptr, program);
  last.facts = nullptr;  // until all is done
  if (repeats) {
    PERFMODEL_TRY_TO(set_times(rank, gpu, program));
    last.rank = rank;
    last.memory = facts.memory;
    last.facts = &facts;
    last.repeats = true;
  }
  take(std::move(program), true, last);
  return repeats;
}

}  // namespace perfmodel
