#include "pool_overheads.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <set>

#include "host_kind.hpp"
#include "statistics.hpp"

namespace perfmodel {
namespace {

// ---- hosts
// ----------------------------------------------------------------------------------------

// Host time of ops and calls, and their share of the program: two programs are compared by it.
struct Feature {
  double log_us = 0, share = 0;
};
using Features = std::map<std::string, Feature>;

Features features_of(const OverheadTable& table) {
  Features found;
  double total = 0;
  const auto add = [&](const std::string& name, const OverheadStats& stats) {
    const double us = stats.mean_us * static_cast<double>(stats.count);
    if (us <= 0) return;
    found[name] = {std::log(stats.mean_us), us};
    total += us;
  };
  for (const auto& [op, stats] : table.ops) add(op, stats);
  for (const auto& [call, stats] : table.t4) add(canonical_call(call), stats);
  for (auto& [name, feature] : found) feature.share /= total;
  return found;
}

struct Weighted {
  double value = 0, weight = 0;
};

double weighted_median(std::vector<Weighted> values) {
  std::ranges::sort(values, {}, &Weighted::value);
  double total = 0;
  for (const Weighted& at : values) total += at.weight;
  double below = 0;
  for (const Weighted& at : values) {
    below += at.weight;
    if (below >= total / 2) return at.value;
  }
  return 0;
}

// ---- figures
// --------------------------------------------------------------------------------------

// Value of one key in one program.
struct Sample {
  std::size_t program = 0;
  OverheadStats stats;
};
using SamplesByKey = std::unordered_map<std::uint64_t, std::vector<Sample>>;

double mean_square(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value * value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// Relative variances of a term; see pool_overheads. Nothing shrinks if keys differ without limit.
struct Spread {
  double samples = 1, keys = std::numeric_limits<double>::infinity();
  std::optional<double> programs;  // not known if no key is in two programs

  double n0() const { return programs ? samples / *programs : kFewSamples; }
  double k() const { return programs ? *programs / keys : 0; }

  static constexpr double kFewSamples = 4;
};

// `prior`: mean of the wider key in the same program.
Spread spread_of(const SamplesByKey& keys,
                 const std::function<double(const Sample&, std::uint64_t key)>& prior) {
  constexpr double kLeast = 0.01;
  std::vector<double> within, between_programs, between_keys;
  for (const auto& [key, samples] : keys) {
    std::vector<double> logs;
    for (const Sample& sample : samples) {
      const OverheadStats& stats = sample.stats;
      if (stats.mean_us <= 0) continue;
      if (stats.count >= 4) within.push_back(std::pow(stats.std_us / stats.mean_us, 2));
      logs.push_back(std::log(stats.mean_us));
      const double wider = prior(sample, key);
      if (wider > 0) between_keys.push_back(std::log(stats.mean_us / wider));
    }
    if (logs.size() < 2) continue;
    const double mean = mean_of(logs);
    double squares = 0;
    for (double log : logs) squares += (log - mean) * (log - mean);
    between_programs.push_back(squares / static_cast<double>(logs.size() - 1));
  }
  Spread spread;
  if (!within.empty()) spread.samples = std::max(kLeast, median_of(within));
  if (!between_programs.empty()) spread.programs = std::max(kLeast, mean_of(between_programs));
  if (!between_keys.empty()) spread.keys = std::max(kLeast, mean_square(between_keys));
  return spread;
}

// Lists of tensors are brought to their mean length before they are averaged.
OverheadStats pooled(const std::vector<Sample>& samples, const std::vector<OverheadStats>& alls,
                     const Spread& spread, double prior_us, double fixed_share = 0) {
  double tensors = 0, lists = 0;
  for (const Sample& sample : samples) {
    if (sample.stats.tensors <= 0) continue;
    tensors += sample.stats.tensors;
    ++lists;
  }
  if (lists > 0) tensors /= lists;
  OverheadStats made{.tensors = tensors};
  double weights = spread.k(), sum = spread.k() * prior_us, seen = 0, seen_sum = 0, squares = 0;
  std::vector<double> medians;
  for (const Sample& sample : samples) {
    const OverheadStats& stats = sample.stats;
    if (lists > 0 && stats.tensors <= 0) continue;
    const auto n = static_cast<double>(stats.count);
    const double weight = n / (n + spread.n0());
    const double us = stats.at_length(tensors, alls[sample.program].mean_us, fixed_share);
    weights += weight;
    sum += weight * us;
    seen += weight;
    seen_sum += weight * us;
    squares += weight * (us * us + stats.std_us * stats.std_us);
    made.count += stats.count;
    OverheadStats median = stats;
    median.mean_us = stats.median_us;
    medians.push_back(median.at_length(tensors, alls[sample.program].mean_us, fixed_share));
  }
  made.mean_us = sum / weights;
  made.median_us = median_of(medians);
  const double seen_mean = seen_sum / seen;
  made.std_us = std::sqrt(std::max(0.0, squares / seen - seen_mean * seen_mean));
  return made;
}

class TermPool {
 public:
  /// `alike`: the names are of one kind, so that one with few samples is like the others. Classes
  /// of gaps are not.
  TermPool(const std::vector<const OverheadTerm*>& terms, bool alike) : alike_(alike) {
    for (std::size_t p = 0; p < terms.size(); ++p) {
      const OverheadTerm& term = *terms[p];
      alls_.push_back(term.all);
      for (const auto& [key, named] : term.by_name) {
        if (is_host_kind(named.name) && named.name != kAnyList) continue;
        names_[key].push_back({p, named.stats});
        titles_.try_emplace(key, named.name);
      }
      for (const auto& [key, stats] : term.by_context) contexts_[key].push_back({p, stats});
      name_of_.insert(term.name_of_context.begin(), term.name_of_context.end());
    }
  }

  OverheadTerm pool() const {
    OverheadTerm made;
    // An op that no program has is one more name: names weigh alike, not samples.
    std::vector<double> means;
    for (const auto& [key, samples] : names_) {
      std::vector<double> of_programs;
      for (const Sample& sample : samples) of_programs.push_back(sample.stats.mean_us);
      if (alike_) means.push_back(mean_of(of_programs));
    }
    for (const OverheadStats& all : alls_) {
      if (!alike_) means.push_back(all.mean_us);
    }
    made.all = stats_of(means);
    made.all.count = 0;
    for (const OverheadStats& all : alls_) made.all.count += all.count;
    Spread names = spread_of(
        names_, [&](const Sample& sample, std::uint64_t) { return alls_[sample.program].mean_us; });
    if (!alike_) names.keys = Spread{}.keys;
    for (const auto& [key, samples] : names_) {
      made.by_name[key] = {titles_.at(key),
                           pooled(samples, alls_, names, made.all.mean_us, fixed_share())};
    }
    const auto wider = [&](const Sample& sample, std::uint64_t key) {
      const auto name = name_of_.find(key);
      if (name == name_of_.end()) return 0.0;
      for (const Sample& other : names_.at(name->second)) {
        if (other.program == sample.program) return other.stats.mean_us;
      }
      return 0.0;
    };
    const Spread contexts = spread_of(contexts_, wider);
    for (const auto& [key, samples] : contexts_) {
      const auto name = name_of_.find(key);
      double prior = made.all.mean_us;
      if (name != name_of_.end()) {
        const OverheadStats& of_name = made.by_name.at(name->second).stats;
        prior = of_name.at_length(samples.front().stats.tensors, made.all.mean_us, fixed_share());
      }
      made.by_context[key] = pooled(samples, alls_, contexts, prior, fixed_share());
    }
    made.name_of_context = name_of_;
    return made;
  }

 private:
  double fixed_share() const { return alike_ ? 0 : kFixedShareOfGaps; }

  bool alike_;
  std::vector<OverheadStats> alls_;
  SamplesByKey names_, contexts_;
  std::unordered_map<std::uint64_t, std::uint64_t> name_of_;  // wider keys of contexts
  std::unordered_map<std::uint64_t, std::string> titles_;
};

OverheadStats alike(const std::vector<const OverheadStats*>& programs) {
  std::vector<Sample> samples;
  for (const OverheadStats* stats : programs) samples.push_back({samples.size(), *stats});
  const std::vector<OverheadStats> none(samples.size());
  return pooled(samples, none, {}, 0);
}

LaunchTemplates joined_templates(const std::vector<const LaunchTemplates*>& programs) {
  struct Votes {
    std::uint32_t programs = 0, count = 0;
  };
  LaunchTemplates made;
  const auto index_of = [&](const LaunchTemplate& list) {
    const auto index = std::ranges::find(made.lists, list) - made.lists.begin();
    if (index == std::ssize(made.lists)) made.lists.push_back(list);
    return static_cast<std::uint32_t>(index);
  };
  // The sizes of one program say nothing about another's.
  for (auto level = static_cast<std::size_t>(TemplateLevel::kDevices); level < kTemplateLevels;
       ++level) {
    std::map<std::uint64_t, std::map<std::uint32_t, Votes>> votes;
    for (const LaunchTemplates* templates : programs) {
      const std::map<std::uint64_t, LaunchTemplates::Entry> sorted(templates->by_key[level].begin(),
                                                                   templates->by_key[level].end());
      for (const auto& [key, entry] : sorted) {
        Votes& votes_of = votes[key][index_of(templates->lists[entry.list])];
        ++votes_of.programs;
        votes_of.count += entry.count;
      }
    }
    for (const auto& [key, lists] : votes) {
      const auto most = std::ranges::max_element(lists, [](const auto& a, const auto& b) {
        return std::pair(a.second.programs, a.second.count) <
               std::pair(b.second.programs, b.second.count);
      });
      made.by_key[level][key] = {.list = most->first, .count = most->second.count};
    }
  }
  return made;
}

std::unordered_map<std::uint64_t, GapSplit> mean_splits(
    const std::vector<const OverheadTable*>& programs) {
  std::unordered_map<std::uint64_t, std::pair<GapSplit, double>> sums;
  for (const OverheadTable* table : programs) {
    for (const auto& [key, split] : table->gap_splits) {
      auto& [sum, count] = sums.try_emplace(key, GapSplit{0, 0}, 0.0).first->second;
      sum.tail += split.tail;
      sum.head += split.head;
      ++count;
    }
  }
  std::unordered_map<std::uint64_t, GapSplit> made;
  for (const auto& [key, entry] : sums) {
    made[key] = {.tail = entry.first.tail / entry.second, .head = entry.first.head / entry.second};
  }
  return made;
}

// Medians: a mishap in one recording decides nothing.
DeviceConstants typical(const std::vector<const OverheadTable*>& programs) {
  DeviceConstants made;
  for (double DeviceConstants::*constant :
       {&DeviceConstants::launch_latency_us, &DeviceConstants::collective_latency_us,
        &DeviceConstants::copy_latency_us, &DeviceConstants::blocking_read_latency_us,
        &DeviceConstants::blocking_write_latency_us, &DeviceConstants::kernel_gap_us,
        &DeviceConstants::event_gap_us}) {
    std::vector<double> values;
    for (const OverheadTable* table : programs) values.push_back(table->device.*constant);
    made.*constant = median_of(values);
  }
  return made;
}

std::map<std::string, OverheadStats> alike_by_key(
    const std::vector<const OverheadTable*>& programs,
    std::map<std::string, OverheadStats> OverheadTable::*figures,
    std::string (*key_of)(std::string_view)) {
  std::map<std::string, std::vector<const OverheadStats*>> by_key;
  for (const OverheadTable* table : programs) {
    for (const auto& [key, stats] : table->*figures) by_key[key_of(key)].push_back(&stats);
  }
  std::map<std::string, OverheadStats> made;
  for (const auto& [key, stats] : by_key) made[key] = alike(stats);
  return made;
}

double launch_us(const OverheadTable& table) { return table.call_us("cudaLaunchKernel").us; }

OverheadTable pool_scaled(const std::vector<const OverheadTable*>& programs) {
  OverheadTable made{.method = OverheadMethod::kContext};
  for (const HostTerm& host : kHostTerms) {
    if (!host.figures) continue;
    const bool any_clean = std::ranges::any_of(
        programs, [](const OverheadTable* table) { return !table->python_recorded; });
    std::vector<const OverheadTerm*> terms;
    for (const OverheadTable* table : programs) {
      if (!host.is_gap || !any_clean || !table->python_recorded) {
        terms.push_back(&(table->*host.figures));
      }
    }
    made.*host.figures = TermPool(terms, !host.is_gap).pool();
    if (!host.is_gap) add_kinds(made.*host.figures);
  }
  made.t4 = alike_by_key(programs, &OverheadTable::t4, canonical_call);
  made.ops = alike_by_key(programs, &OverheadTable::ops,
                          [](std::string_view name) { return std::string(name); });
  made.gap_splits = mean_splits(programs);
  made.device = typical(programs);
  std::vector<const LaunchTemplates*> templates;
  for (const OverheadTable* table : programs) templates.push_back(&table->templates);
  made.templates = joined_templates(templates);
  return made;
}

}  // namespace

std::vector<HostFactor> compare_hosts(std::span<const PoolMember> programs) {
  constexpr int kRounds = 30;
  std::vector<Features> features;
  std::map<std::string, int> seen;
  for (const PoolMember& member : programs) {
    features.push_back(features_of(*member.table));
    for (const auto& [name, feature] : features.back()) ++seen[name];
  }
  std::vector<HostFactor> made(programs.size());
  std::vector<double> host(programs.size(), 0);
  for (std::size_t p = 0; p < programs.size(); ++p) {
    for (const auto& [name, feature] : features[p]) {
      if (seen[name] > 1) made[p].shared += feature.share;
    }
  }
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t p = 0; p < programs.size(); ++p) {
      std::vector<Weighted> ratios;
      for (const auto& [name, own] : features[p]) {
        // Mean of the others on a host of factor 1.
        double sum = 0, weights = 0, shares = 0;
        for (std::size_t q = 0; q < programs.size(); ++q) {
          if (q == p) continue;
          const auto other = features[q].find(name);
          if (other == features[q].end()) continue;
          const double weight = std::sqrt(other->second.share);
          sum += weight * (other->second.log_us - host[q]);
          weights += weight;
          shares = std::max(shares, other->second.share);
        }
        if (weights <= 0) continue;
        ratios.push_back({own.log_us - sum / weights, std::sqrt(own.share * shares)});
      }
      host[p] = weighted_median(std::move(ratios));
    }
    for (std::size_t p = programs.size(); p-- > 0;) host[p] -= host[0];
  }
  for (std::size_t p = 0; p < programs.size(); ++p) made[p].slower = std::exp(host[p]);
  return made;
}

OverheadScaling scale_to_shared_ops(OverheadTable& table, const OverheadTable& reference) {
  const PoolMember members[] = {{"reference", &reference}, {"table", &table}};
  const std::vector<HostFactor> hosts = compare_hosts(members);
  OverheadScaling scaling{.coverage = hosts[0].shared};
  if (scaling.coverage <= 0) return scaling;
  scaling.factor = hosts[0].slower / hosts[1].slower;
  scale_host(table, scaling.factor);
  return scaling;
}

Result<OverheadTable> pool_overheads(std::span<const PoolMember> programs,
                                     const std::string& reference) {
  std::vector<OverheadProgram> report;
  std::vector<PoolMember> fit;
  for (const PoolMember& member : programs) {
    if (member.table->method != OverheadMethod::kContext) {
      return decline(fmt::format("expected tables of method context to pool, found {} of method {}",
                                 member.name, to_string(member.table->method)));
    }
    if (member.table->without_collector) {
      return decline(
          fmt::format("expected tables as recorded to pool (overheads --as-recorded), found {} "
                      "without what its collector added",
                      member.name));
    }
    report.push_back({.name = member.name,
                      .gpu = member.table->gpu,
                      .sources = member.table->sources,
                      .launch_us = launch_us(*member.table),
                      .left_out = member.table->unfit_for_pools});
    if (member.table->unfit_for_pools.empty()) fit.push_back(member);
  }
  if (fit.empty()) {
    return decline("expected at least one table that is fit to pool, found none");
  }
  const std::vector<HostFactor> factors = compare_hosts(fit);
  double base = 0;
  const auto anchor = std::ranges::find(fit, reference, &PoolMember::name);
  if (!reference.empty() && anchor == fit.end()) {
    return fail(ErrorCode::kUnknownName,
                fmt::format("expected one of the pooled programs as host, found {}", reference));
  }
  if (!reference.empty()) {
    base = std::log(factors[anchor - fit.begin()].slower);
  } else {
    for (const HostFactor& factor : factors) base += std::log(factor.slower);
    base /= static_cast<double>(factors.size());
  }
  std::vector<OverheadTable> scaled;
  Collector collector = Collector::kUnknown;
  std::set<std::string> gpus;
  std::size_t iterations = 0;
  for (std::size_t p = 0; p < fit.size(); ++p) {
    const double factor = std::exp(base) / factors[p].slower;
    scale_host(scaled.emplace_back(*fit[p].table), factor);
    collector = std::max(collector, fit[p].table->collector);
    gpus.insert(fit[p].table->gpu);
    iterations += fit[p].table->iterations;
    OverheadProgram& said = *std::ranges::find(report, fit[p].name, &OverheadProgram::name);
    said.host_scale = factor;
    said.shared = factors[p].shared;
  }
  std::vector<const OverheadTable*> pointers;
  for (const OverheadTable& table : scaled) pointers.push_back(&table);
  OverheadTable made = pool_scaled(pointers);
  made.gpu = fmt::format("{}", fmt::join(gpus, ", "));
  made.iterations = iterations;
  made.collector = collector;
  for (const OverheadProgram& program : report) {
    if (!program.left_out.empty()) {
      made.warnings.push_back(fmt::format("{} is left out: {}", program.name, program.left_out));
      continue;
    }
    made.sources.insert(made.sources.end(), program.sources.begin(), program.sources.end());
  }
  made.programs = std::move(report);
  return made;
}

Result<void> scale_to_file(OverheadTable& table, const std::filesystem::path& file) {
  PERFMODEL_TRY(reference, read_overheads(file));
  const OverheadScaling scaling = scale_to_shared_ops(table, *reference);
  if (scaling.coverage <= 0) {
    return decline("expected ops that the traces have too, found none", file);
  }
  table.warnings.push_back(fmt::format(
      "host figures are multiplied by {:.3f} to match {}: the shared ops are {:.0f} % of "
      "its host time",
      scaling.factor, file.filename().string(), 100 * scaling.coverage));
  return {};
}

}  // namespace perfmodel
