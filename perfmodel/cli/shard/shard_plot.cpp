#include <fmt/format.h>

#include <algorithm>

#include "plot/bar_plot.hpp"
#include "plot/line_plot.hpp"
#include "plot/svg_document.hpp"
#include "shard_report.hpp"
#include "sharding/study/plan_words.hpp"

namespace perfmodel::cli {
namespace {

using namespace sharding;

constexpr std::size_t kMostBars = 64;

struct RankBar {
  std::size_t rank = 0;
  double load_us = 0, memory = 0;
};

std::vector<RankBar> bars_of(const PricedPlan& plan) {
  std::vector<RankBar> bars;
  if (plan.time) {
    for (std::size_t r = 0; r < plan.time->ranks.size(); ++r) {
      const BatchRank& rank = plan.time->ranks[r];
      bars.push_back(
          {r, rank.parts[BatchPart::kLookupForward] + rank.parts[BatchPart::kLookupBackward],
           rank.memory.total()});
    }
  } else if (plan.rating) {
    for (std::size_t r = 0; r < plan.rating->ranks.size(); ++r) {
      bars.push_back({r, 1000 * plan.rating->ranks[r].total_ms(),
                      static_cast<double>(plan.rating->ranks[r].hbm_bytes)});
    }
  }
  if (bars.size() > kMostBars) {
    std::stable_sort(bars.begin(), bars.end(),
                     [](const auto& a, const auto& b) { return a.load_us > b.load_us; });
    bars.resize(kMostBars);
  }
  return bars;
}

// Time of a batch over the number of GPUs; the hashed plan's counts its iterations.
Result<SvgPanel> compression_panel(const CompressionReport& compression) {
  LinePlot plot{.title = "Hashed array and shards",
                .x_label = "GPUs",
                .y_label = "time per batch",
                .y_unit = svg::Unit::kTime};
  LinePlot::Line sharded{.name = "sharded", .points = {}};
  LinePlot::Line hashed{.name = fmt::format("hashed {:.4g}x", compression.factor()), .points = {}};
  if (compression.iterations_multiplier != 1) {
    hashed.note = fmt::format("{:g} iterations for one", compression.iterations_multiplier);
  }
  for (const CompressionReport::Row& row : compression.rows) {
    const auto gpus = static_cast<double>(row.world);
    plot.x_marks.push_back(gpus);
    if (row.sharded_us) sharded.points.emplace_back(gpus, *row.sharded_us);
    if (row.hashed_us) {
      hashed.points.emplace_back(gpus, *row.hashed_us * compression.iterations_multiplier);
    }
  }
  for (LinePlot::Line* line : {&sharded, &hashed}) {
    if (!line->points.empty()) plot.lines.push_back(std::move(*line));
  }
  return line_panel(plot);
}

}  // namespace

Result<std::string> shard_svg(const ShardReport& report) {
  const LoadedStudy& loaded = *report.loaded;
  const PricedPlan& plan = report.plans.front();
  BarPlot load{.title = plan.rating ? "Rating of each GPU" : "Lookups of each GPU",
               .x_label = plan.rating ? "TorchRec's estimate" : "time per batch",
               .unit = svg::Unit::kTime,
               .bars = {},
               .groups = {"load"}};
  BarPlot memory{.title = "Memory of each GPU",
                 .x_label = fmt::format("share of {}", bytes_text(report.memory_cap)),
                 .unit = svg::Unit::kPercent,
                 .bars = {},
                 .groups = {"memory"}};
  for (const RankBar& bar : bars_of(plan)) {
    const std::string name = fmt::format("GPU {}", bar.rank);
    load.bars.push_back({.name = name, .note = time_text(bar.load_us), .value = bar.load_us});
    memory.bars.push_back(
        {.name = name, .note = bytes_text(bar.memory), .value = bar.memory / report.memory_cap});
  }
  const auto left = bar_panel(load);
  if (!left) return Unexpected{left.error()};
  const auto right = bar_panel(memory);
  if (!right) return Unexpected{right.error()};
  const std::string subtitle =
      plan.time ? fmt::format("{} per batch, {} x {}", time_text(plan.time->predicted_us),
                              *loaded.study.world, loaded.gpu.name)
                : fmt::format("rating {:.4g} ms, {} x {}", plan.cost(), *loaded.study.world,
                              loaded.gpu.name);
  std::vector<SvgPanel> panels = {*left, *right};
  if (report.compression) {
    auto third = compression_panel(*report.compression);
    if (!third) return Unexpected{third.error()};
    panels.push_back(std::move(*third));
  }
  return svg_document(
      "Sharding of " + (loaded.study.name.empty() ? loaded.file : loaded.study.name), subtitle,
      panels, 2);
}

}  // namespace perfmodel::cli
