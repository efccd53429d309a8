#include "match_collectives.hpp"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "base/statistics.hpp"
#include "perfmodel/graph/detail/collective_name.hpp"

namespace perfmodel {
namespace {

constexpr double kSameEndUs = 300;      // ends of one collective on ranks of one host
constexpr double kEnoughMatched = 0.6;  // below this share, the clocks are taken to differ
constexpr double kAlignedUs = 50;       // offsets below this are the spread of the ends
constexpr std::size_t kOffsetSamples = 64, kOffsetCandidates = 16;
constexpr std::size_t kMissingTold = 5;  // by name

using Ranks = std::span<const std::vector<RankCollective>>;
using Groups = std::vector<std::vector<std::int32_t>>;  // as in CollectiveMatch

// Messages between two ranks: numbered per rank, so that numbers say nothing about partners.
bool is_message(const RankCollective& collective) {
  return collective.kind == "send" || collective.kind == "recv";
}

// Whether two ranks may be in one collective, by their records of it.
bool alike(const RankCollective& a, const RankCollective& b) {
  return a.kind == b.kind && a.process_group == b.process_group;
}

// Whether all collectives have a sequence number, and there are any.
bool all_numbered(Ranks ranks) {
  bool any = false;
  for (const auto& rank : ranks) {
    for (const RankCollective& collective : rank) {
      if (is_message(collective)) continue;
      if (collective.sequence < 0) return false;
      any = true;
    }
  }
  return any;
}

Result<Groups> groups_by_number(Ranks ranks, std::span<const std::string> names) {
  std::map<std::pair<std::string, std::int64_t>, std::vector<std::int32_t>> by_number;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (std::size_t i = 0; i < ranks[r].size(); ++i) {
      const RankCollective& collective = ranks[r][i];
      if (is_message(collective)) continue;
      auto& members = by_number[{collective.process_group, collective.sequence}];
      members.resize(ranks.size(), -1);
      // Several kernels of one number: the last one ends it.
      members[r] = static_cast<std::int32_t>(i);
    }
  }
  Groups groups;
  for (auto& [key, members] : by_number) {
    std::size_t first = ranks.size();
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (members[r] < 0) continue;
      if (first == ranks.size()) first = r;
      const std::string& kind = ranks[r][members[r]].kind;
      const std::string& expected = ranks[first][members[first]].kind;
      if (kind != expected) {
        return decline(
            fmt::format("expected one kind for collective {} of process group \"{}\", found {} in "
                        "{} and {} in {}",
                        key.second, key.first, expected, names[first], kind, names[r]));
      }
    }
    groups.push_back(std::move(members));
  }
  return groups;
}

// How many collectives of two ranks end together under an offset of the second one's clock.
std::size_t matched(const std::vector<RankCollective>& a, const std::vector<RankCollective>& b,
                    double offset_us) {
  std::size_t found = 0, next = 0;
  for (const RankCollective& collective : b) {
    const double end = collective.end_us - offset_us;
    while (next < a.size() && a[next].end_us < end - kSameEndUs) ++next;
    for (std::size_t i = next; i < a.size() && a[i].end_us <= end + kSameEndUs; ++i) {
      if (!alike(a[i], collective)) continue;
      ++found;
      break;
    }
  }
  return found;
}

// The distances between clocks that most pairs of alike collectives have in common.
std::vector<double> likely_offsets(const std::vector<RankCollective>& first,
                                   const std::vector<RankCollective>& rank) {
  std::map<std::int64_t, std::pair<std::size_t, double>> bins;  // count, sum
  const std::size_t samples = std::min(kOffsetSamples, rank.size());
  for (std::size_t i = 0; i < samples; ++i) {
    // Spread over the rank: at its beginning or end the other one may have nothing.
    const RankCollective& sample = rank[i * rank.size() / samples];
    for (const RankCollective& other : first) {
      if (!alike(other, sample)) continue;
      const double offset = sample.end_us - other.end_us;
      auto& bin = bins[static_cast<std::int64_t>(std::floor(offset / kSameEndUs))];
      ++bin.first;
      bin.second += offset;
    }
  }
  std::vector<std::pair<std::size_t, double>> ranked;
  for (const auto& [key, bin] : bins) {
    ranked.emplace_back(bin.first, bin.second / static_cast<double>(bin.first));
  }
  std::sort(ranked.begin(), ranked.end(), [](const auto& x, const auto& y) {
    return x.first != y.first ? x.first > y.first : std::abs(x.second) < std::abs(y.second);
  });
  std::vector<double> offsets;
  for (std::size_t i = 0; i < std::min(kOffsetCandidates, ranked.size()); ++i) {
    offsets.push_back(ranked[i].second);
  }
  return offsets;
}

// One offset per rank against the first, only if the clocks as given match too little.
std::vector<double> find_offsets(Ranks ranks) {
  std::vector<double> offsets(ranks.size(), 0);
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    const std::size_t possible = std::min(ranks[0].size(), ranks[r].size());
    std::size_t best = matched(ranks[0], ranks[r], 0);
    if (static_cast<double>(best) >= kEnoughMatched * static_cast<double>(possible)) continue;
    for (double offset : likely_offsets(ranks[0], ranks[r])) {
      const std::size_t found = matched(ranks[0], ranks[r], offset);
      if (found <= best) continue;
      best = found;
      offsets[r] = offset;
    }
  }
  return offsets;
}

// All ranks' collectives in the order of their ends; each joins the oldest open group of its kind
// that its rank is not in yet.
Groups groups_by_end_time(Ranks ranks, const std::vector<double>& clock_offset_us) {
  struct Entry {
    double end_us;
    std::size_t rank;
    std::int32_t position;
  };
  std::vector<Entry> entries;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (std::size_t i = 0; i < ranks[r].size(); ++i) {
      if (is_message(ranks[r][i])) continue;
      entries.push_back({ranks[r][i].end_us - clock_offset_us[r], r, static_cast<std::int32_t>(i)});
    }
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.end_us < b.end_us; });
  struct Open {
    std::size_t group;
    double first_end_us;
    std::size_t rank;
    std::int32_t position;  // one of its members
  };
  Groups groups;
  std::vector<Open> open;
  for (const Entry& entry : entries) {
    std::erase_if(open, [&](const Open& o) { return entry.end_us - o.first_end_us > kSameEndUs; });
    const auto fits = std::find_if(open.begin(), open.end(), [&](const Open& o) {
      return groups[o.group][entry.rank] < 0 &&
             alike(ranks[o.rank][o.position], ranks[entry.rank][entry.position]);
    });
    if (fits != open.end()) {
      groups[fits->group][entry.rank] = entry.position;
      continue;
    }
    open.push_back({groups.size(), entry.end_us, entry.rank, entry.position});
    groups.emplace_back(ranks.size(), -1);
    groups.back()[entry.rank] = entry.position;
  }
  return groups;
}

Groups groups_by_order(Ranks ranks) {
  std::map<std::tuple<std::string, std::string, std::size_t>, std::vector<std::int32_t>> ordered;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::map<std::pair<std::string, std::string>, std::size_t> seen;
    for (std::size_t i = 0; i < ranks[r].size(); ++i) {
      const RankCollective& c = ranks[r][i];
      if (is_message(c)) continue;
      auto& members = ordered[{c.kind, c.process_group, seen[{c.kind, c.process_group}]++}];
      members.resize(ranks.size(), -1);
      members[r] = static_cast<std::int32_t>(i);
    }
  }
  Groups groups;
  for (auto& [key, members] : ordered) groups.push_back(std::move(members));
  return groups;
}

// The rank that shares most collectives with an aligned one, and the differences of their ends.
std::tuple<std::size_t, std::size_t, std::vector<double>> best_connected(
    Ranks ranks, const Groups& groups, const std::vector<bool>& aligned) {
  std::map<std::pair<std::size_t, std::size_t>, std::vector<double>> pairs;
  for (const auto& members : groups) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (aligned[r] || members[r] < 0) continue;
      for (std::size_t to = 0; to < ranks.size(); ++to) {
        if (!aligned[to] || members[to] < 0) continue;
        pairs[{r, to}].push_back(ranks[r][members[r]].end_us - ranks[to][members[to]].end_us);
        break;  // one of them is enough
      }
    }
  }
  std::tuple<std::size_t, std::size_t, std::vector<double>> best{0, 0, {}};
  for (auto& [pair, differences] : pairs) {
    if (differences.size() > std::get<2>(best).size()) {
      best = {pair.first, pair.second, std::move(differences)};
    }
  }
  return best;
}

// Ends of one collective are one moment: the median of their differences is the clocks'. A rank
// is aligned with any that is aligned already, beginning with the first.
void align(Ranks ranks, std::span<const std::string> names, CollectiveMatch& match) {
  const std::vector<double> found =
      std::exchange(match.clock_offset_us, std::vector<double>(ranks.size(), 0));
  std::vector<bool> aligned(ranks.size(), false);
  aligned[0] = true;
  for (std::size_t done = 1; done < ranks.size(); ++done) {
    const auto [next, to, differences] = best_connected(ranks, match.groups, aligned);
    if (differences.empty()) break;
    const double offset = match.clock_offset_us[to] + median_of(differences);
    aligned[next] = true;
    if (std::abs(offset) <= kAlignedUs) continue;
    match.clock_offset_us[next] = offset;
    match.warnings.push_back(fmt::format("the clock of {} is {:.0f} us ahead of {}'s: aligned",
                                         names[next], offset, names[0]));
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (aligned[r]) continue;
    match.clock_offset_us[r] = found[r];
    if (!ranks[r].empty()) {
      match.warnings.push_back(fmt::format(
          "{} shares no collective with {}, directly or by others: its clock is taken as it is",
          names[r], names[0]));
    }
  }
}

// Ends that meet by chance do not make a job.
Result<void> check_share(Ranks ranks, std::span<const std::string> names, const Groups& groups) {
  std::vector<std::size_t> met(ranks.size(), 0);
  for (const auto& members : groups) {
    const auto present =
        std::count_if(members.begin(), members.end(), [](auto m) { return m >= 0; });
    for (std::size_t r = 0; r < ranks.size() && present > 1; ++r) met[r] += members[r] >= 0;
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::size_t most = 0;  // most that it could share with another
    for (std::size_t other = 0; other < ranks.size(); ++other) {
      if (other != r) most = std::max(most, std::min(ranks[r].size(), ranks[other].size()));
    }
    const bool enough = static_cast<double>(met[r]) >= kEnoughMatched * static_cast<double>(most);
    if (enough || met[r] == 0) continue;  // nothing at all in common is reported later
    return decline(
        fmt::format("expected ranks of one job, found that of {} collectives of {} only {} end "
                    "together with those of another rank",
                    ranks[r].size(), names[r], met[r]));
  }
  return {};
}

std::string label(const RankCollective& collective) {
  if (collective.sequence < 0) return fmt::format("at {:.0f} us", collective.start_us);
  return fmt::format("{} of process group \"{}\"", collective.sequence, collective.process_group);
}

Result<void> check_sizes(Ranks ranks, std::span<const std::string> names,
                         const std::vector<std::int32_t>& members) {
  std::size_t here = 0;
  while (members[here] < 0) ++here;
  const RankCollective& first = ranks[here][members[here]];
  // All-to-all and its relatives may give each rank another share.
  if (first.kind != "all_reduce" && first.kind != "broadcast" && first.kind != "reduce" &&
      first.kind != "reduce_scatter" && first.kind != "all_gather") {
    return {};
  }
  for (std::size_t r = here + 1; r < ranks.size(); ++r) {
    if (members[r] < 0) continue;
    const RankCollective& other = ranks[r][members[r]];
    if (other.in_elements < 0 || first.in_elements < 0) continue;
    if (other.in_elements == first.in_elements) continue;
    return decline(fmt::format("expected one size for {} {}, found {} elements in {} and {} in {}",
                               first.kind, label(first), first.in_elements, names[here],
                               other.in_elements, names[r]));
  }
  return {};
}

// Names collectives that ranks lack, and says whether they can be ranks of one job.
class MatchCheck {
 public:
  MatchCheck(Ranks ranks, std::span<const std::string> names, const MatchOptions& options,
             CollectiveMatch& match)
      : ranks_(ranks), names_(names), options_(options), match_(match) {}

  Result<void> check() {
    if (match_.by_end_time && !options_.missing_ranks && count() > 1) {
      PERFMODEL_TRY_TO(check_share(ranks_, names_, match_.groups));
    }
    std::vector<bool> met(count(), false);
    for (const auto& members : match_.groups) {
      const auto present = static_cast<std::size_t>(
          std::count_if(members.begin(), members.end(), [](std::int32_t m) { return m >= 0; }));
      if (present == 1) ++match_.unmatched;
      for (std::size_t r = 0; r < count() && present > 1; ++r) met[r] = met[r] || members[r] >= 0;
      PERFMODEL_TRY_TO(check_sizes(ranks_, names_, members));
      PERFMODEL_TRY_TO(lacks(members));
    }
    if (missing_ > kMissingTold) {
      match_.warnings.push_back(
          fmt::format("{} more collectives are missing", missing_ - kMissingTold));
    }
    bool any = false;
    std::size_t messages = 0;
    for (const auto& rank : ranks_) {
      const auto own =
          static_cast<std::size_t>(std::count_if(rank.begin(), rank.end(), is_message));
      any |= own < rank.size();
      messages += own;
    }
    if (messages > 0) {
      match_.warnings.push_back(fmt::format(
          "{} sends and receives between two ranks stand as they are: they wait for nobody",
          messages));
    }
    if (!any) match_.warnings.push_back("no rank has collectives: they do not wait for each other");
    const auto alone = std::find(met.begin(), met.end(), false);
    if (!any || count() == 1 || alone == met.end()) return {};
    return decline(fmt::format(
        "expected ranks of one job, found no collective in common between {} and the others",
        names_[alone - met.begin()]));
  }

 private:
  std::size_t count() const { return ranks_.size(); }

  // A collective before a rank's first one or after its last one is outside its window.
  Result<void> lacks(const std::vector<std::int32_t>& members) {
    std::size_t here = 0;
    while (members[here] < 0) ++here;
    const RankCollective& collective = ranks_[here][members[here]];
    for (std::size_t r = 0; r < count(); ++r) {
      if (members[r] >= 0 || !in_window(r, here, collective)) continue;
      const std::string what = fmt::format("{} lacks {} {} of {}", names_[r], collective.kind,
                                           label(collective), names_[here]);
      if (!options_.missing_ranks) {
        return decline("expected every collective on every rank, found that " + what);
      }
      if (missing_++ < kMissingTold) match_.warnings.push_back(what);
    }
    return {};
  }

  // Numbers and ends of a rank's collectives in one process group, from the first to the last.
  struct Extent {
    std::int64_t first = 0, last = 0;
    double first_end_us = 0, last_end_us = 0;
  };

  bool in_window(std::size_t rank, std::size_t here, const RankCollective& collective) {
    if (extents_.empty()) find_extents();
    // A rank outside of the group misses nothing.
    const auto known = extents_[rank].find(collective.process_group);
    if (known == extents_[rank].end()) return false;
    if (!options_.timed) return true;  // a graph does not show the begin or end of a recording
    const Extent& extent = known->second;
    if (collective.sequence >= 0) {
      return extent.first < collective.sequence && extent.last > collective.sequence;
    }
    const double end =
        collective.end_us - match_.clock_offset_us[here] + match_.clock_offset_us[rank];
    return extent.first_end_us < end - kSameEndUs && extent.last_end_us > end + kSameEndUs;
  }

  void find_extents() {
    extents_.resize(count());
    for (std::size_t r = 0; r < count(); ++r) {
      for (const RankCollective& c : ranks_[r]) {
        if (is_message(c)) continue;
        const Extent own{c.sequence, c.sequence, c.end_us, c.end_us};
        Extent& extent = extents_[r].try_emplace(c.process_group, own).first->second;
        extent.first = std::min(extent.first, own.first);
        extent.last = std::max(extent.last, own.last);
        extent.first_end_us = std::min(extent.first_end_us, own.first_end_us);
        extent.last_end_us = std::max(extent.last_end_us, own.last_end_us);
      }
    }
  }

  Ranks ranks_;
  std::span<const std::string> names_;
  const MatchOptions& options_;
  CollectiveMatch& match_;
  std::vector<std::map<std::string, Extent>> extents_;  // per rank, by process group
  std::size_t missing_ = 0;
};

}  // namespace

Result<CollectiveMatch> match_collectives(std::span<const std::vector<RankCollective>> ranks,
                                          std::span<const std::string> names,
                                          const MatchOptions& options) {
  CollectiveMatch match;
  match.clock_offset_us.assign(ranks.size(), 0);
  if (all_numbered(ranks)) {
    PERFMODEL_TRY(groups, groups_by_number(ranks, names));
    match.groups = std::move(*groups);
  } else if (options.timed) {
    match.by_end_time = true;
    match.clock_offset_us = find_offsets(ranks);
    match.groups = groups_by_end_time(ranks, match.clock_offset_us);
  } else {
    match.groups = groups_by_order(ranks);
  }
  if (options.timed) align(ranks, names, match);
  PERFMODEL_TRY_TO(MatchCheck(ranks, names, options, match).check());
  return match;
}

std::string canonical_collective(std::string_view name) {
  const std::string_view kind = collective_in_name(name);
  return std::string(kind.empty() ? "collective" : kind);
}

}  // namespace perfmodel
