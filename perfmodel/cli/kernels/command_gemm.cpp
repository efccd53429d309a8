#include <fmt/format.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/kernel_models_option.hpp"
#include "kernels/gemm_answer.hpp"
#include "kernels/hashed_answer.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/field_table.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

constexpr std::size_t kSchedulesShown = 10;

struct GemmArguments : GemmQuestion {
  std::vector<std::string> gpus;
  std::int64_t hash = 0;  ///< numbers of the array; 0: the weight is stored
  bool explain = false, json = false;
};

std::string gemm_text(const GemmAnswer& answer, bool explain, bool bold) {
  const GemmQuestion& question = answer.question;
  TextList list;
  for (const std::string& warning : answer.warnings) list.row("warning", warning);
  list.row("product",
           fmt::format("{}{} x {} x {} in {} on {}",
                       question.batch > 1 ? fmt::format("{} of ", question.batch) : "", question.m,
                       question.n, question.k, answer.dtype, answer.gpu.title));
  list.row("space", fmt::format("{}: {}, {} valid", question.space, counted(answer.raw, "schedule"),
                                grouped(answer.valid)));
  list.row("library", fmt::format("{:.4g} us ({:.4g} to {:.4g}), {}", answer.library.time.count(),
                                  answer.library.low.count(), answer.library.high.count(),
                                  answer.library.model));
  if (answer.calibration) {
    const GemmCalibration& calibration = *answer.calibration;
    list.row("calibrated",
             fmt::format("{:.4g} us ({:.4g} to {:.4g}), by {} of this GPU", calibration.library_us,
                         calibration.low_us, calibration.high_us,
                         counted(calibration.rows, "measured product")));
    list.row("  kept-out error",
             fmt::format("{:.1f} %; a constant ratio {:.1f} %, the schedules as they are {:.1f} %",
                         100 * calibration.errors.calibrated, 100 * calibration.errors.constant,
                         100 * calibration.errors.schedule));
  }
  const tiles::RankedTile& best = answer.ranked.front();
  list.row("best schedule", fmt::format("{:.4g} us, {} of the library's time", best.time.time_us,
                                        percent_of(best.time.time_us, answer.library_us(), 0)));
  if (explain) {
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
  const TextTable table =
      field_table(answer.ranked, kTileFields,
                  {"tile", "time_us", "warps", "warp_tile", "split_k", "registers", "shared_bytes",
                   "resident_blocks", "waves", "bound"},
                  {}, explain ? answer.ranked.size() : kSchedulesShown);
  return list.text() + "\n" + table.text(bold);
}

std::string hashed_text(const HashedAnswer& answer, bool bold) {
  const HashedQuestion& question = answer.question;
  TextList list;
  for (const std::string& warning : answer.warnings) list.row("warning", warning);
  list.row("product", fmt::format("{} x {} x {}, the weight in an array of {} numbers", question.m,
                                  question.n, question.k, grouped(question.elements)));
  return list.text() + "\n" +
         field_table(answer.rows, kHashedFields,
                     {"gpu", "dtype", "pass", "stored_us", "roast_us", "hashednet_over_roast",
                      "ops_over_roast", "rehashed_over_roast", "rows_below_stored", "rows_of_ops"})
             .text(bold);
}

Result<void> run_hashed(const GemmArguments& arguments) {
  PERFMODEL_TRY(answer, answer_hashed({.m = arguments.m,
                                       .n = arguments.n,
                                       .k = arguments.k,
                                       .elements = arguments.hash,
                                       .gpus = arguments.gpus,
                                       .models = arguments.models}));
  if (arguments.json) return print_document(schemas::kGemm, hashed_json(*answer));
  return print_report(hashed_text(*answer, bold_allowed()));
}

Result<void> run_gemm(GemmArguments& arguments) {
  if (arguments.hash > 0) return run_hashed(arguments);
  if (arguments.gpus.size() > 1) {
    return decline("--gpu: expected one GPU without --hash, found several");
  }
  arguments.gpu = arguments.gpus.front();
  PERFMODEL_TRY(answer, answer_gemm(arguments));
  if (arguments.json) return print_document(schemas::kGemm, gemm_json(*answer, arguments.explain));
  return print_report(gemm_text(*answer, arguments.explain, bold_allowed()));
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
  const Option batch =
      app.add_option("--batch B", arguments->batch, "Products of this size (default: 1)")
          .check(between(1, 1e9));
  app.add_option("--gpu NAME", arguments->gpus, "A known name, or a GPU file; with --hash a list")
      .required()
      .delimiter(',');
  const Option space =
      app.add_option("--space SPACE", arguments->space,
                     "simt1, simt2 (fp32 on vector units) or mma (fp16 on matrix units)")
          .capture_default_str();
  const Option buffers = app.add_option("--double-buffer {on,off}", arguments->double_buffer,
                                        "Whether the next tile is loaded while this one is summed")
                             .capture_default_str()
                             .check(one_of({"on", "off"}));
  const Option rows =
      app.add_option("--calibrate ROWS", arguments->calibrate,
                     "Measured products of this GPU (.csv or .csv.gz), 10 or more: they tell the "
                     "library's time where its model does not know the product");
  add_models_option(app, arguments->models);
  const Option explain =
      app.add_flag("--explain", arguments->explain, "All schedules with the terms of their time");
  app.add_option("--hash S", arguments->hash,
                 "Instead: the product with its weight in an array of S numbers (ROAST, HashedNet) "
                 "against a stored one, for each GPU")
      .check(between(1, 1e12))
      .excludes(batch)
      .excludes(space)
      .excludes(buffers)
      .excludes(rows)
      .excludes(explain);
  app.add_flag("--json", arguments->json, "Print one JSON document");
  return {app, [arguments] { return run_gemm(*arguments); }};
}

}  // namespace perfmodel::cli
