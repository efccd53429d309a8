#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <optional>

#include "commands.hpp"
#include "gpu_of.hpp"
#include "open_device.hpp"
#include "perfmodel/data_files.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace kernels_bench {
namespace {

using perfmodel::ErrorCode;
using perfmodel::fail;
using perfmodel::Result;
using perfmodel::cli::complain;
using perfmodel::cli::TextTable;
using perfmodel::cli::warn;

struct Arguments {
  std::string backend = "auto", gpu, folder;
  std::optional<std::string> budget;
  std::vector<std::string> families;
  int device = 0;
  CampaignOptions campaign;
  bool no_check = false;
};

std::string text_of(const FamilyReport& report, std::string_view what) {
  return fmt::format("{}: {}", report.family->name, what);
}

std::string percent_if_finite(double share) {
  return std::isfinite(share) ? perfmodel::percent(share) : "";
}

std::string rate(double value) {
  if (!(value > 0)) return "";
  return value < 1000 ? fmt::format("{:.4g}", value)
                      : perfmodel::grouped(static_cast<std::size_t>(value));
}

std::string table_of(const CampaignReport& report, bool bold) {
  TextTable table({"family", "planned", "rows", "new", "skipped", "seconds", "best GB/s",
                   "best TFLOP/s", "quick model"});
  for (const FamilyReport& family : report.families) {
    using perfmodel::grouped;
    table.row({std::string(family.family->name), grouped(family.planned), grouped(family.rows),
               grouped(family.measured), grouped(family.skipped),
               fmt::format("{:.1f}", family.seconds), rate(family.best_gb_per_s),
               rate(family.best_tflop_per_s), percent_if_finite(family.quick_error)});
  }
  return table.text(bold);
}

Result<perfmodel::Gpu> gpu_for(const Arguments& arguments, const DeviceInfo& info,
                               const std::filesystem::path& gpu_folder, bool& is_known) {
  if (!arguments.gpu.empty()) {
    is_known = true;
    return perfmodel::find_gpu(arguments.gpu, gpu_folder);
  }
  GpuOfDevice found = gpu_of(info, gpu_folder);
  is_known = found.is_known;
  return std::move(found.gpu);
}

// Tells the user about absent libraries before the rows.
void report_libraries(const DeviceInfo& info) {
  for (const LibraryInfo& library : info.libraries) {
    if (library.version.empty()) {
      warn(fmt::format("{}: {}", library.name, library.problem));
    }
  }
}

Result<void> run(Arguments& arguments, const StopFlag& stop) {
  auto families = families_of(arguments.families);
  if (!families) return tl::unexpected(families.error());
  if (arguments.budget) {
    const auto seconds = seconds_of(*arguments.budget);
    if (!seconds) return tl::unexpected(seconds.error());
    arguments.campaign.budget_seconds = *seconds;
  }
  const auto data = perfmodel::find_data_folder();
  if (!data) return tl::unexpected(data.error());
  auto device = open_device(arguments.backend, arguments.device);
  if (!device) return fail(ErrorCode::kImpossible, device.error().message);
  const DeviceInfo& info = (*device)->info();
  bool is_known = false;
  const auto gpu = gpu_for(arguments, info, *data / "gpus", is_known);
  if (!gpu) return tl::unexpected(gpu.error());

  complain(fmt::format("{} ({}), {:.1f} GiB free", info.name, gpu->name,
                       static_cast<double>(info.free_bytes) / (1 << 30)));
  report_libraries(info);
  arguments.campaign.folder = arguments.folder;
  arguments.campaign.families = *families;
  arguments.campaign.measure.check = !arguments.no_check;
  const auto report = run_campaign(**device, *gpu, arguments.campaign, stop);
  if (!report) return tl::unexpected(report.error());

  if (auto printed = perfmodel::cli::print(table_of(*report, perfmodel::cli::bold_allowed()));
      !printed) {
    return printed;
  }
  for (const FamilyReport& family : report->families) {
    if (!family.problem.empty()) warn(text_of(family, family.problem));
  }
  if (!is_known) {
    const std::filesystem::path file = arguments.campaign.folder / "gpu.json";
    if (auto written = write_gpu_file(info, *gpu, arguments.campaign.folder, file); !written) {
      warn(fmt::format("{} is not in data/gpus: {}", info.name,
                       perfmodel::to_string(written.error())));
    } else {
      complain(
          fmt::format("note: {} is not in data/gpus; what the driver and the peaks say is in {}",
                      info.name, file.string()));
    }
  }
  if (report->stopped) {
    return fail(ErrorCode::kImpossible,
                "stopped; rows so far are kept, the same command goes on from here");
  }
  if (report->out_of_time) {
    complain("the time is up; the same command goes on from here");
  }
  return {};
}

}  // namespace

Command run_command(CommandParser parent, std::string command_line, const StopFlag& stop) {
  const CommandParser app = parent.add_subcommand(
      "run",
      "Measures kernels into tables that `perfpredict train` reads; goes on where it stopped");
  auto arguments = std::make_shared<Arguments>();
  arguments->campaign.command = std::move(command_line);
  app.add_option("--out", arguments->folder, "Folder of the tables, one CSV per family").required();
  app.add_option("--budget", arguments->budget,
                 "Time to spend (90s, 8m, 1h), most where a quick model is least certain; without "
                 "it, the whole campaign");
  const Option points =
      app.add_option("--points", arguments->campaign.points,
                     "Rows of each family's sweep at most, those in the tables included")
          .check(whole_number(1));
  app.add_option("--share", arguments->campaign.share,
                 "Of each family's sweep, 0.0001 to 1 (default 1)")
      .check(in_range(1e-4, 1.0))
      .excludes(points);
  app.add_option("--families", arguments->families, "Families by name (see --list)").delimiter(',');
  app.add_option("--backend", arguments->backend, "auto, cuda, hip, or analytic: a GPU on paper")
      .check(one_of({"auto", "cuda", "hip", "analytic"}));
  app.add_option("--device", arguments->device, "Number of the GPU").check(whole_number(0));
  app.add_option("--gpu", arguments->gpu,
                 "Name in data/gpus, or a file, where the driver's name does not tell");
  app.add_option("--seed", arguments->campaign.seed, "Of the sweeps and of the data")
      .check(whole_number(0));
  app.add_option("--seconds-per-point", arguments->campaign.measure.seconds,
                 "Repetitions = this over the time, 3 to 30 (default 0.1)")
      .check(positive_number());
  app.add_flag("--warm", arguments->campaign.measure.warm_l2,
               "Leave the L2 as the run before left it (rows are marked)");
  app.add_flag("--no-check", arguments->no_check, "Do not compare results with references");
  return {app, [arguments, &stop] { return run(*arguments, stop); }};
}

}  // namespace kernels_bench
