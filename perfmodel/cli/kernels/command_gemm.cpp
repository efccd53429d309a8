#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>

#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/kernel_models_option.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"
#include "price/tiles/tile_calibration.hpp"
#include "price/tiles/tile_time.hpp"
#include "tables/kernel_table.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

constexpr std::size_t kSchedulesShown = 10;

struct GemmArguments {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  std::string gpu, space = "simt1", double_buffer = "on", models = "learned", calibrate;
  bool explain = false, json = false;
};

/// What measured products of the GPU say of the library's time.
struct GemmCalibration {
  std::size_t rows = 0, left_out = 0;
  double library_us = 0, low_us = 0, high_us = 0;
  tiles::CalibrationErrors errors;
};

struct GemmReport {
  const GemmArguments* arguments = nullptr;
  Gpu gpu;
  GemmShape shape;
  std::string_view dtype;
  std::size_t raw = 0;
  std::vector<tiles::RankedTile> ranked;
  Price library;
  std::optional<GemmCalibration> calibration;
  std::vector<std::string> warnings;

  double library_us() const { return calibration ? calibration->library_us : library.time.count(); }
};

bool is_product_of(const KernelRow& row, tiles::TileSpace space) {
  const auto* shape = std::get_if<GemmShape>(&row.work.shape);
  if (row.work.family != KernelFamily::kGemm || !shape || shape->quantizes_a) return false;
  const DType dtype = row.work.dtype;
  return space == tiles::TileSpace::kMma ? dtype == DType::kFloat16 || dtype == DType::kBFloat16
                                         : dtype == DType::kFloat32 && !row.work.matrix_units;
}

// The GPU's products among the rows of a table, those of a type that the space has.
Result<GemmCalibration> calibrate_gemm(const std::string& file, tiles::TileSpace space,
                                       const std::filesystem::path& data, GemmReport& report) {
  const auto table = read_kernel_table(file, {.gpu_folder = data / "gpus", .needs_time = true});
  if (!table) return Unexpected{table.error()};
  report.warnings.insert(report.warnings.end(), table->warnings.begin(), table->warnings.end());
  std::vector<tiles::MeasuredProduct> products;
  for (const KernelRow& row : table->rows) {
    const bool is_own = row.gpu < 0 || table->gpus[row.gpu].name == report.gpu.name;
    if (!is_own || !is_product_of(row, space)) continue;
    products.push_back({std::get<GemmShape>(row.work.shape), row.measured_us});
  }
  const auto rows = tiles::calibration_rows(space, products, report.gpu);
  if (!rows) return Unexpected{rows.error()};
  if (table->has_launch_cost) {
    report.warnings.emplace_back(
        "times of the table are taken as those of kernels alone: it does not say \"# timing: "
        "graph replay, no launch cost\"");
  }
  const auto range = tiles::kept_out_range(*rows);
  GemmCalibration made;
  made.rows = rows->size();
  made.left_out = table->rows.size() - rows->size();
  made.errors = tiles::kept_out_errors(*rows);
  const auto best =
      tiles::rank_tiles(tiles::tile_space(space), space, report.shape, true, report.gpu);
  if (!best) return Unexpected{best.error()};
  made.library_us = tiles::TileCalibration::fit(*rows).library_us(report.shape, best->front());
  made.low_us = made.library_us * range.low;
  made.high_us = made.library_us * range.high;
  return made;
}

Result<GemmReport> rank_gemm(const GemmArguments& arguments) {
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  auto gpu = find_gpu(arguments.gpu, *data / "gpus");
  if (!gpu) return Unexpected{gpu.error()};
  const auto space = tiles::tile_space_of(arguments.space);
  if (!space) {
    return fail(ErrorCode::kUnknownName,
                fmt::format("expected a space ({}), found \"{}\"",
                            fmt::join(tiles::kTileSpaceNames, ", "), arguments.space));
  }
  auto models = choose_kernel_models(arguments.models, *data);
  if (!models) return Unexpected{models.error()};
  GemmReport report;
  report.arguments = &arguments;
  report.gpu = std::move(*gpu);
  report.warnings = stand_ins(report.gpu);
  if (!models->warning.empty()) report.warnings.push_back(models->warning);
  report.shape.batch = arguments.batch;
  report.shape.m = arguments.m;
  report.shape.n = arguments.n;
  report.shape.k = arguments.k;
  const bool matrix_units = *space == tiles::TileSpace::kMma;
  report.dtype = matrix_units ? "float16" : "float32";
  const tiles::TileSpaceList list = tiles::tile_space(*space);
  report.raw = list.raw;
  auto ranked =
      tiles::rank_tiles(list, *space, report.shape, arguments.double_buffer == "on", report.gpu);
  if (!ranked) return Unexpected{ranked.error()};
  report.ranked = std::move(*ranked);
  report.library = models->models.price(
      gemm_work(report.shape, matrix_units ? DType::kFloat16 : DType::kFloat32, matrix_units),
      report.gpu);
  if (auto readable = models->check(); !readable) return Unexpected{readable.error()};
  if (!arguments.calibrate.empty()) {
    auto calibration = calibrate_gemm(arguments.calibrate, *space, *data, report);
    if (!calibration) return Unexpected{calibration.error()};
    report.calibration = *calibration;
  }
  if (!report.library.in_range && !report.calibration) {
    report.warnings.emplace_back(
        "the library's kernel lies outside the range that its model was fitted or checked on");
  }
  return report;
}

Json tile_json(const tiles::RankedTile& one, bool explain) {
  const tiles::TileSchedule& tile = one.schedule;
  const tiles::TileTime& time = one.time;
  Json json = {{"tile", {{"m", tile.block.m}, {"n", tile.block.n}, {"k", tile.block_k}}},
               {"warps", tile.warp_count()},
               {"warp_tile", {{"m", tile.warp.m}, {"n", tile.warp.n}}},
               {"threads", tile.threads},
               {"stages", tile.stages},
               {"split_k", time.split_k},
               {"time_us", rounded(time.time_us)},
               {"registers", tile.registers},
               {"shared_bytes", tile.shared_bytes},
               {"resident_blocks", time.resident},
               {"bound", time.bound}};
  if (!explain) return json;
  json.update({{"waves", six_digits(time.waves)},
               {"load_us", six_digits(time.load_us)},
               {"compute_us", six_digits(time.compute_us)},
               {"prologue_us", six_digits(time.prologue_us)},
               {"epilogue_us", six_digits(time.epilogue_us)},
               {"fixed_us", six_digits(time.fixed_us)},
               {"reduce_us", six_digits(time.reduce_us)},
               {"dram_bytes", six_digits(time.dram_bytes)}});
  return json;
}

Json gemm_json(const GemmReport& report) {
  const GemmArguments& arguments = *report.arguments;
  Json json = document(schemas::kGemm);
  json.update({{"gpu", report.gpu.name},
               {"m", arguments.m},
               {"n", arguments.n},
               {"k", arguments.k},
               {"batch", arguments.batch},
               {"space", arguments.space},
               {"dtype", report.dtype},
               {"double_buffer", arguments.double_buffer == "on"},
               {"raw_schedules", report.raw},
               {"valid_schedules", report.ranked.size()},
               {"best", tile_json(report.ranked.front(), true)},
               {"library",
                {{"time_us", rounded(report.library.time.count())},
                 {"low_us", rounded(report.library.low.count())},
                 {"high_us", rounded(report.library.high.count())},
                 {"model", report.library.model},
                 {"in_range", report.library.in_range}}},
               {"choice", report.ranked.front().time.time_us < report.library_us() ? "schedule"
                                                                                   : "library"}});
  if (report.calibration) {
    const GemmCalibration& made = *report.calibration;
    json["library"]["calibrated_us"] = rounded(made.library_us);
    json["library"]["calibrated_low_us"] = rounded(made.low_us);
    json["library"]["calibrated_high_us"] = rounded(made.high_us);
    json["calibration"] = {{"rows", made.rows},
                           {"rows_left_out", made.left_out},
                           {"kept_out_error", six_digits(made.errors.calibrated)},
                           {"constant_ratio_error", six_digits(made.errors.constant)},
                           {"schedule_error", six_digits(made.errors.schedule)}};
  }
  if (arguments.explain) {
    json["schedules"] = Json::array();
    for (const tiles::RankedTile& one : report.ranked) {
      json["schedules"].push_back(tile_json(one, true));
    }
  }
  json["warnings"] = report.warnings;
  return json;
}

std::string gemm_text(const GemmReport& report, bool bold) {
  const GemmArguments& arguments = *report.arguments;
  TextList list;
  for (const std::string& warning : report.warnings) list.row("warning", warning);
  list.row("product",
           fmt::format("{}{} x {} x {} in {} on {}",
                       arguments.batch > 1 ? fmt::format("{} of ", arguments.batch) : "",
                       arguments.m, arguments.n, arguments.k, report.dtype, report.gpu.title));
  list.row("space", fmt::format("{}: {}, {} valid", arguments.space,
                                counted(report.raw, "schedule"), grouped(report.ranked.size())));
  list.row("library", fmt::format("{:.4g} us ({:.4g} to {:.4g}), {}", report.library.time.count(),
                                  report.library.low.count(), report.library.high.count(),
                                  report.library.model));
  if (report.calibration) {
    const GemmCalibration& made = *report.calibration;
    list.row("calibrated",
             fmt::format("{:.4g} us ({:.4g} to {:.4g}), by {} of this GPU", made.library_us,
                         made.low_us, made.high_us, counted(made.rows, "measured product")));
    list.row("  kept-out error",
             fmt::format("{:.1f} %; a constant ratio {:.1f} %, the schedules as they are {:.1f} %",
                         100 * made.errors.calibrated, 100 * made.errors.constant,
                         100 * made.errors.schedule));
  }
  const tiles::RankedTile& best = report.ranked.front();
  list.row("best schedule", fmt::format("{:.4g} us, {} of the library's time", best.time.time_us,
                                        percent_of(best.time.time_us, report.library_us(), 0)));
  if (arguments.explain) {
    const tiles::TileTime& time = best.time;
    list.row(
        "  is made of",
        fmt::format("{:.3g} us of an empty kernel{}; {:.3g} waves of {:.3g} us prologue, "
                    "{:.3g} us loads and {:.3g} us sums per tile, {:.3g} us epilogue",
                    time.fixed_us,
                    time.split_k > 1
                        ? fmt::format(", {:.3g} us to add {} parts", time.reduce_us, time.split_k)
                        : std::string(),
                    time.waves, time.prologue_us, time.load_us, time.compute_us, time.epilogue_us));
  }
  TextTable table({"tile", "time us", "warps", "warp's", "split k", "registers", "shared B",
                   "blocks/SM", "waves", "<bound"});
  const std::size_t shown =
      arguments.explain ? report.ranked.size() : std::min(kSchedulesShown, report.ranked.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const tiles::TileSchedule& tile = report.ranked[i].schedule;
    const tiles::TileTime& time = report.ranked[i].time;
    table.row({tile.text(), fmt::format("{:.2f}", time.time_us),
               fmt::format("{}", tile.warp_count()), fmt::format("{}x{}", tile.warp.m, tile.warp.n),
               fmt::format("{}", time.split_k), fmt::format("{}", tile.registers),
               grouped(tile.shared_bytes), fmt::format("{}", time.resident),
               fmt::format("{:.2f}", time.waves), std::string(time.bound)});
  }
  return list.text() + "\n" + table.text(bold);
}

Result<void> run_gemm(const GemmArguments& arguments) {
  const auto report = rank_gemm(arguments);
  if (!report) return Unexpected{report.error()};
  if (arguments.json) return print_document(gemm_json(*report));
  return print_report(gemm_text(*report, bold_allowed()));
}

}  // namespace

Command gemm_command(CommandParser parent) {
  auto arguments = std::make_shared<GemmArguments>();
  const CommandParser app = parent.add_subcommand(
      "gemm", "Tile schedules of a matrix product: counted, timed, beside the library's kernel");
  for (const auto& [name, size, help] : {std::tuple{"m", &arguments->m, "Rows of the result"},
                                         {"n", &arguments->n, "Columns of the result"},
                                         {"k", &arguments->k, "Terms of each sum"}}) {
    app.add_option(name, *size, help).required().check(between(1, 1e9)).type_name("N");
  }
  app.add_option("--batch", arguments->batch, "Products of this size (default: 1)")
      .check(between(1, 1e9))
      .type_name("B");
  app.add_option("--gpu", arguments->gpu, "A known name, or a GPU file")
      .required()
      .type_name("NAME");
  app.add_option("--space", arguments->space,
                 "simt1, simt2 (fp32 on vector units) or mma (fp16 on matrix units)")
      .capture_default_str()
      .type_name("SPACE");
  app.add_option("--double-buffer", arguments->double_buffer,
                 "Whether the next tile is loaded while this one is summed")
      .capture_default_str()
      .check(one_of({"on", "off"}))
      .type_name("{on,off}");
  app.add_option("--calibrate", arguments->calibrate,
                 "Measured products of this GPU (.csv or .csv.gz), 10 or more: they tell the "
                 "library's time where its model does not know the product")
      .type_name("ROWS");
  add_models_option(app, arguments->models);
  app.add_flag("--explain", arguments->explain, "All schedules with the terms of their time");
  app.add_flag("--json", arguments->json, "Print one JSON document");
  return {app, [arguments] { return run_gemm(*arguments); }};
}

}  // namespace perfmodel::cli
