// Tables in files, pooled.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>

#include "base/decimal_number.hpp"
#include "collector_cost.hpp"
#include "pool_overheads.hpp"

namespace perfmodel {
namespace {

// "T4=1.5" for every term of the host.
Result<TermFactors> term_factors(const std::vector<std::string>& texts) {
  TermFactors factors;
  factors.fill(0);
  for (const std::string& text : texts) {
    const std::size_t sign = std::min(text.find('='), text.size());
    const auto term = std::ranges::find(kHostTerms, text.substr(0, sign), &HostTerm::name);
    double factor = 0;
    const bool is_number =
        read_decimal(std::string_view(text).substr(std::min(sign + 1, text.size())), factor);
    if (term == std::ranges::end(kHostTerms) || !is_number ||
        !(factor >= 0.001 && factor <= 1000)) {
      return fail(
          ErrorCode::kUnknownName,
          fmt::format("expected TERM=FACTOR with T1, T2, T3, T4, T5 or TX and a factor from "
                      "0.001 to 1000, found {}",
                      text));
    }
    factors[term - std::ranges::begin(kHostTerms)] = factor;
  }
  if (std::ranges::count(factors, 0.0) > 0) {
    return decline(fmt::format("expected a factor for each of T1, T2, T3, T4, T5 and TX, found {}",
                               fmt::join(texts, ",")));
  }
  return factors;
}

// Scales a recording as if the profiler had recorded it with shapes. Tables that no pool takes
// stay.
Result<void> scale_to_profiler(OverheadTable& table, const std::string& name) {
  if (!table.unfit_for_pools.empty()) return {};
  const auto slowdown = slowdown_under(table.collector);
  if (!slowdown) {
    return decline(fmt::format(
        "expected tables whose collector's cost was measured, found {} with collector: {}", name,
        to_string(table.collector)));
  }
  scale_host(table, *slowdown_under(Collector::kProfiler) / *slowdown);
  return {};
}

Result<TermFactors> chosen_factors(const std::vector<std::string>& without_collector,
                                   bool measured) {
  if (measured) return kWithoutProfiler;
  return term_factors(without_collector);
}

}  // namespace

Result<OverheadTable> pool_overhead_files(const std::vector<std::string>& files,
                                          const std::string& reference,
                                          const std::vector<std::string>& without_collector) {
  std::deque<OverheadTable> tables;
  std::vector<PoolMember> members;
  const bool measured = without_collector == std::vector<std::string>{"measured"};
  for (const std::string& file : files) {
    PERFMODEL_TRY(table, read_overheads(file));
    const std::string name = std::filesystem::path(file).stem().string();
    if (measured) PERFMODEL_TRY_TO(scale_to_profiler(*table, name));
    tables.push_back(std::move(*table));
    members.push_back({.name = name, .table = &tables.back()});
  }
  PERFMODEL_TRY(pooled, pool_overheads(members, reference));
  if (!without_collector.empty()) {
    PERFMODEL_TRY(factors, chosen_factors(without_collector, measured));
    scale_terms(*pooled, *factors);
    pooled->without_collector = *factors;
  }
  return pooled;
}

}  // namespace perfmodel
