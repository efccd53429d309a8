#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <numeric>

#include "../core/case_cells.hpp"
#include "../core/case_work.hpp"
#include "commands.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/output_file.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace kernels_bench {
namespace {

using perfmodel::Result;
using perfmodel::cli::Json;
using perfmodel::cli::TextTable;

struct Arguments {
  std::string gpu = "h200-sxm-141gb", folder;
  std::vector<std::string> families;
  std::size_t points = 0;
  std::uint64_t seed = 1;
  bool json = false;
};

struct FamilyPlan {
  const Family* family = nullptr;
  std::vector<Case> points;
  double flop = 0, traffic = 0;  ///< one run of each point
  double most_memory = 0, seconds = 0;
};

FamilyPlan plan_of(const Family& family, const Arguments& arguments, const perfmodel::Gpu& gpu) {
  const std::size_t count =
      arguments.points > 0 ? std::min(arguments.points, family.points) : family.points;
  FamilyPlan plan{&family, sweep(family, count, arguments.seed, limits_for(gpu.dram_gb * 1e9))};
  for (const Case& point : plan.points) {
    const perfmodel::KernelWork work = work_of(point, gpu);
    const auto price = perfmodel::KernelModels::heuristic().price(work, gpu);
    plan.flop += work.flop.value;
    plan.traffic += work.bytes().value;
    plan.most_memory = std::max(plan.most_memory, footprint_bytes(point));
    plan.seconds += expected_seconds(point, std::max(1.0, price.time.count()), {});
  }
  return plan;
}

std::string duration(double seconds) {
  const auto whole = std::lround(seconds);
  return whole < 60 ? fmt::format("{} s", whole)
                    : fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

Result<void> print_plans(const std::vector<FamilyPlan>& plans, const perfmodel::Gpu& gpu) {
  TextTable table({"family", "points", "TFLOP", "TB moved", "largest GB", "expected"});
  FamilyPlan all;
  std::size_t points = 0;
  for (const FamilyPlan& plan : plans) {
    table.row({std::string(plan.family->name), perfmodel::grouped(plan.points.size()),
               fmt::format("{:.1f}", plan.flop * 1e-12),
               fmt::format("{:.2f}", plan.traffic * 1e-12),
               fmt::format("{:.2f}", plan.most_memory * 1e-9), duration(plan.seconds)});
    points += plan.points.size();
    all.flop += plan.flop;
    all.traffic += plan.traffic;
    all.most_memory = std::max(all.most_memory, plan.most_memory);
    all.seconds += plan.seconds;
  }
  table.row({"all", perfmodel::grouped(points), fmt::format("{:.1f}", all.flop * 1e-12),
             fmt::format("{:.2f}", all.traffic * 1e-12),
             fmt::format("{:.2f}", all.most_memory * 1e-9), duration(all.seconds)});
  return perfmodel::cli::print(
      table.text(perfmodel::cli::bold_allowed()) +
      fmt::format("\n{} ({:g} GB). FLOP and bytes of one run of each point; expected: heuristic "
                  "kernel times,\n3 to 30 repetitions, and estimated costs of memory, random data "
                  "and checks.\n",
                  gpu.title, gpu.dram_gb));
}

Result<void> print_json(const std::vector<FamilyPlan>& plans, const perfmodel::Gpu& gpu) {
  Json document = perfmodel::cli::document(perfmodel::schemas::kBenchPlan, "kernels_bench");
  document["gpu"] = gpu.name;
  document["families"] = Json::array();
  for (const FamilyPlan& plan : plans) {
    document["families"].push_back({{"family", plan.family->name},
                                    {"points", plan.points.size()},
                                    {"flop", plan.flop},
                                    {"moved_bytes", plan.traffic},
                                    {"largest_bytes", plan.most_memory},
                                    {"expected_s", perfmodel::rounded(plan.seconds)}});
  }
  return perfmodel::cli::print(perfmodel::cli::to_text(document) + "\n");
}

// Points without times: queries for `perfpredict kernels`.
Result<void> write_points(const FamilyPlan& plan, const std::filesystem::path& folder) {
  auto output =
      perfmodel::OutputFile::create(folder / fmt::format("{}.points.csv", plan.family->name));
  if (!output) return tl::unexpected(output.error());
  std::string header;
  for (const std::string_view column : plan.family->columns) {
    header += fmt::format("{}{}", header.empty() ? "" : ",", column);
  }
  output->write(header + "\n");
  for (const Case& point : plan.points) {
    const std::vector<Cell> cells = cells_of(point);
    std::string line;
    for (const std::string_view column : plan.family->columns) {
      if (column != plan.family->columns.front()) line += ',';
      for (const Cell& cell : cells) {
        if (cell.column == column) line += cell.text;
      }
    }
    output->write(line + "\n");
  }
  return output->commit();
}

Result<void> run(const Arguments& arguments) {
  const auto families = families_of(arguments.families);
  if (!families) return tl::unexpected(families.error());
  const auto data = perfmodel::find_data_folder();
  if (!data) return tl::unexpected(data.error());
  const auto gpu = perfmodel::find_gpu(arguments.gpu, *data / "gpus");
  if (!gpu) return tl::unexpected(gpu.error());
  std::vector<FamilyPlan> plans;
  for (const Family* family : *families) plans.push_back(plan_of(*family, arguments, *gpu));
  if (!arguments.folder.empty()) {
    std::error_code failure;
    std::filesystem::create_directories(arguments.folder, failure);  // else the files say why
    for (const FamilyPlan& plan : plans) {
      if (auto written = write_points(plan, arguments.folder); !written) return written;
    }
  }
  return arguments.json ? print_json(plans, *gpu) : print_plans(plans, *gpu);
}

}  // namespace

Command plan_command(CommandParser parent) {
  const CommandParser app = parent.add_subcommand(
      "plan", "Dry run: what a campaign on a GPU would measure, and how long it takes");
  auto arguments = std::make_shared<Arguments>();
  app.add_option("--gpu", arguments->gpu, "Name or file (default h200-sxm-141gb)");
  app.add_option("--families", arguments->families, "Families by name (see --list)").delimiter(',');
  app.add_option("--points", arguments->points, "Rows of each family's sweep")
      .check(whole_number(1));
  app.add_option("--seed", arguments->seed, "Of the sweeps").check(whole_number(0));
  app.add_option("-o,--out", arguments->folder,
                 "Folder for the points, FAMILY.points.csv, which `perfpredict kernels` prices");
  app.add_flag("--json", arguments->json, "Print one JSON document");
  return {app, [arguments] { return run(*arguments); }};
}

}  // namespace kernels_bench
