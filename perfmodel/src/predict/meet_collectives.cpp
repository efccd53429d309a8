#include "meet_collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "record/match_collectives.hpp"

namespace perfmodel {
namespace {

// Old graphs name a group by its address, which is another one in each process: then groups are
// told apart by their order.
std::string group_name(const std::string& recorded, std::map<std::string, std::size_t>& by_order) {
  constexpr std::size_t kAddressDigits = 9;
  const bool digits = recorded.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || recorded.size() < kAddressDigits) return recorded;
  return fmt::format("#{}", by_order.try_emplace(recorded, by_order.size()).first->second);
}

std::vector<RankCollective> collectives_of(const RankProgram& rank) {
  const HostProgram& program = rank.program;
  std::map<std::string, std::size_t> by_order;
  std::vector<RankCollective> made;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Launch* launch = collective_of(program.instructions[i]);
    if (!launch) continue;
    const CollectiveLaunch& own = program.collective(*launch);
    RankCollective& one =
        made.emplace_back(RankCollective{.kind = canonical_collective(program.kernel(*launch).name),
                                         .sequence = own.sequence,
                                         .event = static_cast<std::int32_t>(i)});
    if (own.comm >= 0) {
      const CommRecord& record = rank.graph().comm_records[own.comm];
      one.kind = canonical_collective(record.collective);
      one.process_group = group_name(record.process_group, by_order);
      one.group_size = record.group_size;
    }
    if (own.bytes >= 0) one.in_elements = static_cast<std::int64_t>(own.bytes);
  }
  return made;
}

// Stages of a pipeline meet already.
std::int32_t known_meetings(std::span<const RankProgram> ranks) {
  std::int32_t meetings = 0;
  for (const RankProgram& rank : ranks) {
    for (const CollectiveLaunch& own : rank.program.collectives) {
      meetings = std::max(meetings, own.meeting + 1);
    }
  }
  return meetings;
}

void warn_of_absent_ranks(std::span<const RankProgram> ranks,
                          const std::vector<std::vector<RankCollective>>& collectives,
                          std::vector<std::string>& warnings) {
  std::int64_t world = 0, given = 0;
  for (const RankProgram& rank : ranks) given += rank.count;
  for (const auto& rank : collectives) {
    for (const RankCollective& collective : rank) world = std::max(world, collective.group_size);
  }
  if (world <= given) return;
  warnings.push_back(
      fmt::format("{} of {} ranks are given; the others are taken to arrive no later than these",
                  given, world));
}

}  // namespace

void agree_on_time(std::span<Price* const> prices) {
  constexpr Microseconds kNever(std::numeric_limits<double>::infinity());
  Microseconds shortest_traced = kNever, longest{0};
  for (const Price* price : prices) {
    if (price->bound == Bound::kMeasured) {
      shortest_traced = std::min(shortest_traced, price->time);
    } else {
      longest = std::max(longest, price->time);
    }
  }
  const bool any_traced = shortest_traced < kNever;
  for (Price* price : prices) {
    price->time = any_traced ? shortest_traced : longest;
    price->low = std::min(price->low, price->time);
    price->high = any_traced ? price->time : std::max(price->high, price->time);
  }
}

Result<std::int32_t> meet_collectives(std::span<RankProgram> ranks, bool missing,
                                      std::vector<std::string>& warnings) {
  if (ranks.size() == 1) return 0;
  if (const std::int32_t known = known_meetings(ranks); known > 0) return known;
  std::vector<std::vector<RankCollective>> collectives;
  std::vector<std::string> names;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const std::string& name = ranks[r].rank.name;
    names.push_back(name.empty() ? fmt::format("rank {}", r) : name);
    collectives.push_back(collectives_of(ranks[r]));
  }
  PERFMODEL_TRY(matched,
                match_collectives(collectives, names, {.timed = false, .missing_ranks = missing}));
  warnings.insert(warnings.end(), matched->warnings.begin(), matched->warnings.end());
  warn_of_absent_ranks(ranks, collectives, warnings);
  std::int32_t meetings = 0;
  for (const std::vector<std::int32_t>& members : matched->groups) {
    const auto present = std::ranges::count_if(members, [](auto member) { return member >= 0; });
    if (present < 2) continue;
    std::vector<Price*> prices;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (members[r] < 0) continue;
      HostProgram& program = ranks[r].program;
      const auto event = collectives[r][members[r]].event;
      auto& launch = std::get<Launch>(program.instructions[event].what);
      program.collective(launch).meeting = meetings;
      prices.push_back(&program.kernel(launch).price);
    }
    agree_on_time(prices);
    ++meetings;
  }
  return meetings;
}

}  // namespace perfmodel
