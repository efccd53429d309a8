#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/plain_text.hpp"
#include "shard_report.hpp"
#include "sharding/study/plan_words.hpp"
#include "sharding/study/shard_results.hpp"
#include "terminal/field_table.hpp"

namespace perfmodel::cli {
namespace {

using namespace sharding;

constexpr std::size_t kMostRanks = 16, kMostTables = 40, kBarWidth = 16;

double exchanges_us(const PartTimes& parts) {
  return parts[BatchPart::kVectorExchange] + parts[BatchPart::kGradientExchange];
}
// Blocks of an eighth of a character.
std::string bar(double share) {
  constexpr const char* kPart[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths =
      static_cast<std::size_t>(std::lround(std::clamp(share, 0.0, 1.0) * 8 * kBarWidth));
  std::string text;
  for (std::size_t i = 0; i < eighths / 8; ++i) text += "█";
  return text + kPart[eighths % 8];
}

// One word for all tables, or "mixed".
template <class Property>
std::string of_all(const ShardingStudy& study, Property property) {
  const std::string first = property(study.tables.front());
  const bool same =
      std::all_of(study.tables.begin(), study.tables.end(),
                  [&](const ShardedTable& table) { return property(table) == first; });
  return same ? first : "mixed";
}

// Settings of the study, or their defaults.
std::string settings_text(const LoadedStudy& loaded) {
  const ShardingStudy& study = loaded.study;
  const auto bytes = [](const ShardedTable& table) {
    return fmt::format("{} bytes", table.element_bytes);
  };
  const auto optimizer = [](const ShardedTable& table) {
    return std::string(to_string(table.optimizer));
  };
  const auto ids = [](const ShardedTable& table) {
    return table.skew.exponent == 0 ? std::string("uniform")
                                    : fmt::format("Zipf {:g}", table.skew.exponent);
  };
  return fmt::format("elements {}, optimizer {}, ids {}, pipeline {}, {} of memory kept free",
                     of_all(study, bytes), of_all(study, optimizer), of_all(study, ids),
                     loaded.pipeline_name(), percent(loaded.free_share(), 0));
}

std::string headline(const ShardReport& report) {
  const LoadedStudy& loaded = *report.loaded;
  const ShardingStudy& study = loaded.study;
  std::string text =
      fmt::format("{}: {}, {}, on {} x {} ({}), {} samples per GPU\n",
                  plain_text(study.name.empty() ? loaded.file : study.name),
                  counted(study.tables.size(), "table"), bytes_text(loaded.table_bytes()),
                  *study.world, plain_text(loaded.gpu.name), plain_text(loaded.topology.name),
                  grouped(*study.batch_per_rank));
  text += wrapped(settings_text(loaded), "", 0);
  for (const std::string& warning : loaded.warnings) {
    text += wrapped("note: " + warning, "", 2);
  }
  for (const std::string& warning : report.warnings) {
    text += wrapped("note: " + warning, "", 2);
  }
  return text + "\n";
}

std::string plan_table(const ShardReport& report, bool bold) {
  static const auto kFields = joined_fields<ReportedPlan>(
      {kPlanFields,
       {{"tables", [](const ReportedPlan& one) { return types_text(one.plan->placements, true); },
         "<tables"}}});
  const auto table = [&](const std::vector<std::string_view>& names) {
    return field_table(reported_plans(report), kFields, names).text(bold);
  };
  if (report.loaded->is_torchrec) {
    return table({"name", "rating_ms", "mean_ms", "limiting_rank", "memory_bytes", "tables"}) +
           "A rating of TorchRec's planner ranks plans; it is no time.\n";
  }
  return table(
      {"name", "predicted_us", "low_us", "high_us", "samples_per_s", "memory_bytes", "tables"});
}

std::string search_text(const ShardReport& report) {
  if (!report.search) return "";
  const ShardReport::Search& search = *report.search;
  const double best = report.plans.front().cost();
  std::string text;
  if (search.proved_best) {
    text = "Proved best by the costs of the search";
  } else {
    const double gap = best > 0 ? (best - search.lower_bound) / best : 0;
    text = fmt::format("Lower bound {}: at most {:.1f} % are left to gain",
                       report.loaded->is_torchrec ? fmt::format("{:.4g} ms", search.lower_bound)
                                                  : time_text(search.lower_bound),
                       100 * gap);
  }
  // Equal questions get equal answers: seconds appear only if the search took noticeably long.
  constexpr double kWorthTelling = 1;
  const std::string seconds =
      search.seconds >= kWorthTelling ? fmt::format(" in {:.0f} s", search.seconds) : "";
  return fmt::format("{}; {} moves{}{}.\n", text, grouped(search.moves), seconds,
                     search.stopped ? ", then stopped" : "");
}

std::vector<std::string> rank_cells(const PricedPlan& plan, std::size_t r) {
  if (plan.time) {
    const BatchRank& rank = plan.time->ranks[r];
    return {time_text(lookups_us(rank.parts)), time_text(exchanges_us(rank.parts)),
            time_text(dense_us(rank.parts)), time_text(rank.waiting_us)};
  }
  const TorchrecCost& rank = plan.rating->ranks[r];
  return {fmt::format("{:.4g} ms", rank.forward_compute_ms + rank.backward_compute_ms),
          fmt::format("{:.4g} ms", rank.forward_comms_ms + rank.backward_comms_ms),
          fmt::format("{:.4g} ms", rank.prefetch_ms)};
}

// One line per GPU; of many, the busiest.
std::string rank_table(const ShardReport& report, const PricedPlan& plan, bool bold) {
  std::vector<RankLoad> ranks = rank_loads(plan);
  const std::size_t all = ranks.size();
  double most = 0;
  for (const RankLoad& rank : ranks) most = std::max(most, rank.load);
  std::string left_out;
  if (all > kMostRanks) {
    sort_by_load(ranks);
    const double middle = ranks[all / 2].load, least = ranks.back().load;
    ranks.resize(kMostRanks);
    left_out = fmt::format("The {} busiest of {} GPUs; median {} %, least {} % of the first.\n",
                           kMostRanks, all, std::lround(100 * middle / std::max(most, 1e-12)),
                           std::lround(100 * least / std::max(most, 1e-12)));
  }
  const bool timed = plan.time.has_value();
  TextTable table(timed ? std::vector<std::string>{"GPU", "<lookups", "", "exchange", "dense",
                                                   "waiting", "<memory", ""}
                        : std::vector<std::string>{"GPU", "<load", "compute", "comms", "prefetch",
                                                   "<memory", ""});
  bool marked = false;
  for (const RankLoad& rank : ranks) {
    const bool limits = timed && rank.rank == plan.time->limiting_rank && all > 1;
    marked |= limits;
    std::vector<std::string> cells = {fmt::format("{}{}", rank.rank, limits ? " *" : "")};
    cells.push_back(bar(most > 0 ? rank.load / most : 0));
    for (std::string& cell : rank_cells(plan, rank.rank)) cells.push_back(std::move(cell));
    cells.push_back(bar(rank.memory / report.memory_cap));
    cells.push_back(percent(rank.memory / report.memory_cap, 0));
    table.row(std::move(cells));
  }
  return table.text(bold) + (marked ? "* the others wait longest for its lookups\n" : "") +
         left_out;
}

std::string advice_text(const ShardReport& report, const PricedPlan& plan) {
  if (!plan.advice) return "";
  const PlanAdvice& advice = *plan.advice;
  const double before = plan.time->predicted_us;
  if (plan.is_host_bound()) {
    return wrapped(
        "Limit: the host, which launches op by op: it needs as long as the batch takes. "
        "Fewer kinds of exchange, fewer tables or CUDA graphs (--launch graphs) help.",
        "", 2);
  }
  std::string text = fmt::format("Limit: {}", to_string(advice.bottleneck));
  if (advice.table) {
    text += fmt::format(" of GPU {}, {:.0f} % of it table {}", advice.rank,
                        100 * advice.table_share, report.loaded->study.tables[*advice.table].name);
  }
  text += fmt::format(": without it a batch would take {} ({:+.1f} %).",
                      time_text(before - advice.free_gain_us), -100 * advice.free_gain_us / before);
  text = wrapped(text, "", 2);
  if (advice.fix.empty()) return text + "None of the changes tried helps.\n";
  return text + wrapped(fmt::format("Cheapest fix: {}: {} ({:+.1f} %).", advice.fix,
                                    time_text(before - advice.fix_gain_us),
                                    -100 * advice.fix_gain_us / before),
                        "", 2);
}

std::string memory_text(const PricedPlan& plan) {
  if (!plan.time) return "";
  const auto fullest = std::max_element(
      plan.time->ranks.begin(), plan.time->ranks.end(),
      [](const auto& a, const auto& b) { return a.memory.total() < b.memory.total(); });
  const RankMemory& memory = fullest->memory;
  std::string text = fmt::format(
      "Memory of GPU {}: tables {}, optimizer {}, cache {}, buffers {}, dense part {}, reserve {}",
      fullest - plan.time->ranks.begin(), bytes_text(memory.weights), bytes_text(memory.optimizer),
      bytes_text(memory.cache), bytes_text(memory.buffers), bytes_text(memory.dense),
      bytes_text(memory.reserve));
  if (fullest->host_bytes > 0)
    text += fmt::format("; on the host {}", bytes_text(fullest->host_bytes));
  text = wrapped(text + ".", "", 2);
  if (!plan.time->ranks_over_memory.empty()) {
    text += wrapped(fmt::format("Does not fit: GPUs {} need more than they have.",
                                fmt::join(plan.time->ranks_over_memory, ", ")),
                    "", 2);
  }
  return text;
}

std::string placement_table(const ShardReport& report, const PricedPlan& plan, bool bold) {
  const ShardingStudy& study = report.loaded->study;
  const bool any = !chosen_settings(plan.placements).empty();
  std::vector<std::string> headers = {"table",     "rows",    "dim",  "pooling",
                                      "<sharding", "<kernel", "<GPUs"};
  if (any) headers.emplace_back("<chosen");
  TextTable table(headers);
  std::vector<std::size_t> order(study.tables.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (order.size() > kMostTables) {
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return study.tables[a].rows * study.tables[a].dim >
             study.tables[b].rows * study.tables[b].dim;
    });
    order.resize(kMostTables);
  }
  for (std::size_t t : order) {
    const ShardedTable& of = study.tables[t];
    double pooling = 0;
    for (const TableFeature& feature : of.features) {
      pooling += feature.pooling_factor * feature.poolings;
    }
    const TablePlacement& placement = plan.placements[t];
    std::string type(to_string(placement.type));
    if (placement.least_columns > 0) type += fmt::format(" {}", placement.least_columns);
    std::vector<std::string> cells = {of.name,
                                      grouped(of.rows),
                                      std::to_string(of.dim),
                                      fmt::format("{:.4g}", pooling),
                                      type,
                                      std::string(to_string(placement.kernel)),
                                      shortened(ranks_text(placement, *study.world), 32)};
    if (any) cells.push_back(settings_of(placement));
    table.row(std::move(cells));
  }
  std::string text = table.text(bold);
  if (study.tables.size() > kMostTables) {
    text += fmt::format("The {} largest of {} tables; --json has all.\n", kMostTables,
                        study.tables.size());
  }
  return text;
}

// "hashed on 1 to 2 GPUs, sharded on 4"
std::string faster_text(const CompressionReport& compression) {
  std::string text;
  const auto& rows = compression.rows;
  for (std::size_t begin = 0; begin < rows.size();) {
    std::size_t end = begin + 1;
    while (end < rows.size() && compression.hashed_wins(end) == compression.hashed_wins(begin)) {
      ++end;
    }
    if (!text.empty()) text += ", ";
    text += compression.hashed_wins(begin) ? "hashed on " : "sharded on ";
    text += std::to_string(rows[begin].world);
    if (end - begin > 1) text += fmt::format(" to {}", rows[end - 1].world);
    begin = end;
  }
  return text;
}

std::string compression_text(const CompressionReport& compression, bool bold) {
  TextTable table{"GPUs", "sharded", "hashed", "<faster"};
  for (std::size_t i = 0; i < compression.rows.size(); ++i) {
    const CompressionReport::Row& row = compression.rows[i];
    const auto cell = [](const std::optional<double>& us) {
      return us ? time_text(*us) : std::string("does not fit");
    };
    std::string faster;
    if (row.sharded_us && row.hashed_us) {
      const double hashed = *row.hashed_us * compression.iterations_multiplier;
      faster = compression.hashed_wins(i)
                   ? fmt::format("hashed {:.2f}x", *row.sharded_us / hashed)
                   : fmt::format("sharded {:.2f}x", hashed / *row.sharded_us);
    }
    table.row({std::to_string(row.world), cell(row.sharded_us), cell(row.hashed_us), faster});
  }
  const auto fewest = [](const std::optional<std::int64_t>& gpus) {
    return gpus ? std::to_string(*gpus) : std::string("more than these");
  };
  return "\nHashed array\n" + table.text(bold) +
         wrapped(fmt::format("Compression {:.4g}: {:.4g} elements of tables in an array of {:.4g}. "
                             "GPUs needed: {} hashed, {} sharded. Faster: {} (counting {:g}x "
                             "iterations hashed).",
                             compression.factor(), compression.table_elements,
                             compression.array_elements, fewest(compression.hashed_fits),
                             fewest(compression.sharded_fits), faster_text(compression),
                             compression.iterations_multiplier),
                 "", 2);
}

}  // namespace

Json shard_json(const ShardReport& report) {
  Json json = document(schemas::kShard);
  json.update(report_json(report));
  return json;
}

std::string shard_text(const ShardReport& report, bool bold) {
  std::string text = headline(report) + plan_table(report, bold) + search_text(report);
  if (report.plans.empty()) return text;
  if (const std::string chosen = chosen_settings(report.plans.front().placements);
      !chosen.empty()) {
    text += wrapped(fmt::format("The plan has {}{}.", chosen,
                                report.search ? " (--choose none leaves tables as they are)" : ""),
                    "", 2);
  }
  const PricedPlan& best = report.plans.front();
  text += fmt::format("\nPlan {}\n", plain_text(best.name)) + rank_table(report, best, bold) +
          memory_text(best) + advice_text(report, best) + "\n" +
          placement_table(report, best, bold);
  if (report.compression) text += compression_text(*report.compression, bold);
  return text;
}

}  // namespace perfmodel::cli
