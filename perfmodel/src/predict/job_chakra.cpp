#include "job_chakra.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>

#include "record/match_collectives.hpp"
#include "replay/chakra_export.hpp"

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

// The content of a task of the last pass; a collective's arrival only has its rank.
struct Doing {
  std::size_t rank = 0;
  const Instruction* instruction = nullptr;
};

const KernelWork* work_of(const HostProgram& program, const CollectiveLaunch& collective) {
  return collective.work < 0 ? nullptr
                             : &program.comm_works[static_cast<std::size_t>(collective.work)];
}

double bytes_of(const HostProgram& program, const CollectiveLaunch& collective) {
  const KernelWork* work = work_of(program, collective);
  if (!work) return std::max(0.0, collective.bytes);
  return std::max(work->bytes_read.value, work->bytes_written.value);
}

const std::string& group_of(const RankProgram& rank, const CollectiveLaunch& collective) {
  return rank.graph().comm_records[static_cast<std::size_t>(collective.comm)].process_group;
}

bool has_several_groups(const RankProgram& rank) {
  std::set<std::string_view> groups;
  for (const Instruction& at : rank.program.instructions) {
    const Launch* launch = collective_of(at);
    if (!launch) continue;
    const CollectiveLaunch& own = rank.program.collective(*launch);
    if (own.from < 0 && own.comm >= 0) groups.insert(group_of(rank, own));
  }
  return groups.size() > 1;
}

std::map<std::int32_t, double> bytes_of_meetings(std::span<const RankProgram> programs) {
  std::map<std::int32_t, double> bytes;
  for (const RankProgram& rank : programs) {
    for (const Instruction& at : rank.program.instructions) {
      const Launch* launch = collective_of(at);
      if (!launch || rank.program.collective(*launch).meeting < 0) continue;
      const CollectiveLaunch& own = rank.program.collective(*launch);
      double& most = bytes[own.meeting];
      most = std::max(most, bytes_of(rank.program, own));
    }
  }
  return bytes;
}

std::unordered_map<TaskId, Doing> last_pass(std::span<const RankProgram> programs,
                                            const JobTasks& tasks) {
  std::unordered_map<TaskId, Doing> made;
  for (std::size_t r = 0; r < programs.size(); ++r) {
    for (const auto& placed : tasks.ranks[r]->last_pass()) {
      const auto at = static_cast<std::size_t>(placed.instruction);
      made[placed.task] = {r, &programs[r].program.instructions[at]};
      if (placed.arrival != placed.task) made[placed.arrival] = {r, nullptr};
    }
  }
  return made;
}

void describe_message(const RankProgram& rank, const CollectiveLaunch& own, ChakraTask& made) {
  made.transfer = ChakraTransfer{.receives = static_cast<std::size_t>(own.to) == made.rank,
                                 .from = own.from,
                                 .to = own.to,
                                 .tag = own.meeting};
  made.comm_bytes = static_cast<std::int64_t>(bytes_of(rank.program, own));
}

// A single group contains all ranks, whatever its name.
void describe_collective(const RankProgram& rank, const Launch& launch, bool several_groups,
                         const std::map<std::int32_t, double>& meetings, ChakraTask& made) {
  const CollectiveLaunch& own = rank.program.collective(launch);
  std::string kind = canonical_collective(made.name);
  if (const KernelWork* work = work_of(rank.program, own)) {
    if (const auto* shape = std::get_if<CollectiveShape>(&work->shape)) {
      kind = shape->kind;
      made.group_size = shape->world_size;
    }
  }
  if (own.from >= 0) return describe_message(rank, own, made);
  if (own.comm >= 0 && several_groups) made.process_group = group_of(rank, own);
  made.collective = chakra_collective(kind);
  made.group_size = std::max<std::int64_t>(1, made.group_size);
  made.comm_bytes = static_cast<std::int64_t>(own.meeting >= 0 ? meetings.at(own.meeting)
                                                               : bytes_of(rank.program, own));
}

std::size_t unknown_kinds(std::span<const RankProgram> programs) {
  std::size_t unknown = 0;
  for (const RankProgram& rank : programs) {
    for (const Instruction& at : rank.program.instructions) {
      const Launch* launch = collective_of(at);
      if (!launch || rank.program.collective(*launch).work >= 0) continue;
      unknown += !chakra_collective(canonical_collective(rank.program.kernel(*launch).name));
    }
  }
  return unknown;
}

}  // namespace

std::vector<ChakraTrace> job_chakra(std::span<const RankProgram> programs, const JobTasks& tasks,
                                    std::vector<std::string>& warnings) {
  if (const std::size_t unknown = unknown_kinds(programs); unknown > 0) {
    warnings.push_back(fmt::format(
        "{} collectives of a kind that Chakra does not know are written as computation", unknown));
  }
  const auto doing = last_pass(programs, tasks);
  const auto meetings = bytes_of_meetings(programs);
  std::vector<bool> several_groups;
  for (const RankProgram& rank : programs) several_groups.push_back(has_several_groups(rank));
  const auto describe = [&](TaskId task) -> std::optional<ChakraTask> {
    const auto found = doing.find(task);
    if (found == doing.end()) return {};
    const auto [r, at] = found->second;
    if (!at) return ChakraTask{.rank = r};
    const HostProgram& program = programs[r].program;
    ChakraTask made{.rank = r, .on_host = tasks.ranks[r]->on_host(task)};
    const Launch* launch = launch_of(*at);
    if (made.on_host || !launch) {
      made.name = name_of(program.item(at->item), programs[r].graph());
      return made;
    }
    made.name = program.kernel(*launch).name;
    if (launch->is_collective()) {
      describe_collective(programs[r], *launch, several_groups[r], meetings, made);
    }
    return made;
  };
  return chakra_traces(tasks.graph, tasks.schedule,
                       {tasks.pass_begin, static_cast<TaskId>(tasks.graph.size())}, programs.size(),
                       describe);
}

}  // namespace perfmodel
