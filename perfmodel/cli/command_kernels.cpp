#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <iterator>
#include <memory>

#include "arguments.hpp"
#include "command.hpp"
#include "kernel_models_option.hpp"
#include "output.hpp"
#include "perfmodel/choose_kernel_models.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/output_file.hpp"
#include "tables/kernel_table.hpp"
#include "text_table.hpp"

namespace perfmodel::cli {
namespace {

struct KernelsArguments {
  std::string queries, gpu, op, dtype, output, models = "learned";
  bool json = false;
};

struct Priced {
  KernelTable table;
  std::vector<Price> prices;  // one per row
};

Result<Priced> price_table(const KernelsArguments& arguments) {
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  const auto models = choose_kernel_models(arguments.models);
  if (!models) return Unexpected{models.error()};
  auto table = read_kernel_table(arguments.queries, {.gpu_folder = *data / "gpus",
                                                     .gpu = arguments.gpu,
                                                     .op = arguments.op,
                                                     .dtype = arguments.dtype});
  if (!table) return Unexpected{table.error()};
  Priced result{.table = std::move(*table), .prices = {}};
  result.prices.reserve(result.table.rows.size());
  std::size_t outside = 0;
  for (const KernelRow& row : result.table.rows) {
    if (row.gpu < 0) {
      return Unexpected{Error{.code = ErrorCode::kFormat,
                              .message = "expected a GPU in every row, or --gpu, found neither",
                              .file = result.table.file,
                              .json_pointer = "device",
                              .line = row.line,
                              .column = 1}};
    }
    Price price;
    if (!row.is_free) {
      price = models->models.price(row.work, result.table.gpus[static_cast<std::size_t>(row.gpu)]);
    }
    if (!std::isfinite(price.high.count())) {
      return Unexpected{Error{.code = ErrorCode::kImpossible,
                              .message = "expected sizes of a kernel whose time is a number, found "
                                         "larger ones",
                              .file = result.table.file,
                              .line = row.line,
                              .column = 1}};
    }
    if (!price.in_range) ++outside;
    result.prices.push_back(price);
  }
  for (const Gpu& gpu : result.table.gpus) {
    for (std::string& sentence : stand_ins(gpu)) {
      result.table.warnings.push_back(std::move(sentence));
    }
  }
  if (!models->warning.empty()) result.table.warnings.push_back(models->warning);
  if (auto readable = models->check(); !readable) return Unexpected{readable.error()};
  if (outside > 0) {
    result.table.warnings.push_back(
        fmt::format("{} of {} lie outside the range that their model was fitted or checked on",
                    grouped(outside), counted(result.prices.size(), "row")));
  }
  return result;
}

std::string_view bound_of(const KernelRow& row, const Price& price) {
  return row.is_free ? "fused" : to_string(price.bound);
}
std::string_view model_of(const KernelRow& row, const Price& price) {
  return row.is_free ? "fused" : price.model;
}

void append_time(fmt::memory_buffer& text, Microseconds time) {
  const double us = time.count();
  // Nanoseconds, but no time becomes 0.
  if (us == 0 || std::abs(us) >= 1) {
    fmt::format_to(std::back_inserter(text), "{:.3f}", us);
  } else {
    fmt::format_to(std::back_inserter(text), "{:.4g}", us);
  }
}

void append_quoted(fmt::memory_buffer& text, std::string_view cell) {
  if (cell.find_first_of(",\"\n\r") == std::string_view::npos) {
    text.append(cell);
    return;
  }
  text.push_back('"');
  for (const char c : cell) {
    if (c == '"') text.push_back('"');
    text.push_back(c);
  }
  text.push_back('"');
}

fmt::memory_buffer csv_text(const Priced& priced) {
  fmt::memory_buffer text;
  text.append(std::string_view("id,time_us,model,bound,in_range,low_us,high_us\n"));
  for (std::size_t i = 0; i < priced.prices.size(); ++i) {
    const KernelRow& row = priced.table.rows[i];
    const Price& price = priced.prices[i];
    append_quoted(text, row.id);
    text.push_back(',');
    append_time(text, price.time);
    fmt::format_to(std::back_inserter(text), ",{},{},{},", model_of(row, price),
                   bound_of(row, price), price.in_range ? 1 : 0);
    append_time(text, price.low);
    text.push_back(',');
    append_time(text, price.high);
    text.push_back('\n');
  }
  return text;
}

Json names(const std::vector<Gpu>& gpus) {
  Json list = Json::array();
  for (const Gpu& gpu : gpus) list.push_back(gpu.name);
  return list;
}

Json json_document(const KernelsArguments& arguments, const Priced& priced) {
  Json json = document(schemas::kKernels);
  json.update({{"queries", file_name(arguments.queries)},
               {"models", arguments.models},
               {"gpus", names(priced.table.gpus)},
               {"ops", priced.table.ops},
               {"rows", priced.prices.size()}});
  if (arguments.output.empty()) {
    Json& kernels = json["kernels"] = Json::array();
    for (std::size_t i = 0; i < priced.prices.size(); ++i) {
      const KernelRow& row = priced.table.rows[i];
      const Price& price = priced.prices[i];
      kernels.push_back({{"id", row.id},
                         {"gpu", priced.table.gpus[static_cast<std::size_t>(row.gpu)].name},
                         {"op", priced.table.ops[static_cast<std::size_t>(row.op)]},
                         {"time_us", price.time.count()},
                         {"model", model_of(row, price)},
                         {"bound", bound_of(row, price)},
                         {"in_range", price.in_range},
                         {"low_us", price.low.count()},
                         {"high_us", price.high.count()}});
    }
  } else {
    json["output"] = file_name(arguments.output);
  }
  json["warnings"] = priced.table.warnings;
  return json;
}

std::string summary_text(const KernelsArguments& arguments, const Priced& priced) {
  TextList list;
  list.row("prices", arguments.output);
  list.row("rows", grouped(priced.prices.size()));
  std::vector<std::string_view> gpus;
  for (const Gpu& gpu : priced.table.gpus) gpus.push_back(gpu.name);
  list.row(gpus.size() == 1 ? "GPU" : "GPUs", fmt::format("{}", fmt::join(gpus, ", ")));
  list.row("ops", fmt::format("{}", fmt::join(priced.table.ops, ", ")));
  list.row("models", arguments.models);
  return "\n" + list.text();
}

Result<void> run_kernels(const KernelsArguments& arguments) {
  const auto priced = price_table(arguments);
  if (!priced) return Unexpected{priced.error()};
  if (!arguments.json) {
    for (const std::string& warning : priced->table.warnings) warn(warning);
  }
  if (!arguments.output.empty()) {
    auto file = OutputFile::create(arguments.output);
    if (!file) return Unexpected{file.error()};
    const fmt::memory_buffer text = csv_text(*priced);
    file->write({text.data(), text.size()});
    if (auto written = file->commit(); !written) return written;
    if (arguments.json) return print_document(json_document(arguments, *priced));
    return print_report(summary_text(arguments, *priced));
  }
  if (arguments.json) return print_document(json_document(arguments, *priced));
  const fmt::memory_buffer text = csv_text(*priced);
  return print({text.data(), text.size()});
}

}  // namespace

Command kernels_command(CLI::App& parent) {
  auto arguments = std::make_shared<KernelsArguments>();
  CLI::App* app =
      parent.add_subcommand("kernels", "Prices kernels in bulk, one per row of a table");
  app->add_option("QUERIES", arguments->queries,
                  "Kernels by their sizes (.csv or .csv.gz), see docs/formats.md")
      ->type_name("")
      ->required();
  app->add_option("--gpu", arguments->gpu,
                  "Price all rows on this GPU (default: the column device or gpu)")
      ->type_name("NAME");
  app->add_option("--op", arguments->op, "Op of rows that name none: gemm, linear, add, ...")
      ->type_name("OP");
  app->add_option("--dtype", arguments->dtype, "Type of rows that name none: fp32, fp16, fp8, ...")
      ->type_name("TYPE");
  app->add_option("-o,--output", arguments->output,
                  "Table to write (.csv or .csv.gz; default: standard output)")
      ->type_name("FILE");
  add_models_option(*app, arguments->models);
  app->add_flag("--json", arguments->json, "Print one JSON document");
  return {app, [arguments] { return run_kernels(*arguments); }};
}

}  // namespace perfmodel::cli
