#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/kernel_models_option.hpp"
#include "kernels/price_kernel_table.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/output_file.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"
#include "terminal/text_aside.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

struct KernelsArguments : KernelsQuestion {
  std::string output;
  bool json = false;
};

/// Where the text of the prices goes: into a file that appears at the end, or, what is seen as it
/// is written, aside until no row can be wrong any more.
class PricesOutput {
 public:
  static Result<PricesOutput> open(const std::string& output) {
    PricesOutput result;
    std::error_code unknown;
    const auto status = std::filesystem::status(output, unknown);
    const bool is_seen_at_once = output.empty() || (std::filesystem::exists(status) &&
                                                    !std::filesystem::is_regular_file(status));
    result.output_ = output;
    if (!is_seen_at_once) {
      PERFMODEL_TRY(file, OutputFile::create(output));
      result.file_ = std::move(*file);
    }
    return result;
  }

  Result<void> write(std::string_view text) {
    if (!file_) return aside_.write(text);
    file_->write(text);
    return {};
  }

  /// To the file, if there is one, else to standard output. `head` and `tail` stand round the rows.
  Result<void> finish(std::string_view head, std::string_view tail) {
    if (output_.empty()) {
      PERFMODEL_TRY_TO(print(head));
      PERFMODEL_TRY_TO(aside_.each_piece(print));
      return print(tail);
    }
    if (!file_) {
      PERFMODEL_TRY(file, OutputFile::create(output_));
      file_ = std::move(*file);
      const auto copied = aside_.each_piece([this](std::string_view text) -> Result<void> {
        file_->write(text);
        return {};
      });
      if (!copied) return copied;
    }
    return file_->commit();
  }

 private:
  std::string output_;
  std::optional<OutputFile> file_;
  TextAside aside_;
};

std::string summary_text(const KernelsArguments& arguments, const PricedTable& priced) {
  TextList list;
  list.row("prices", arguments.output);
  list.row("rows", grouped(priced.rows));
  std::vector<std::string_view> gpus;
  for (const Gpu& gpu : priced.gpus) gpus.push_back(gpu.name);
  list.row(gpus.size() == 1 ? "GPU" : "GPUs", fmt::format("{}", fmt::join(gpus, ", ")));
  list.row("ops", fmt::format("{}", fmt::join(priced.ops, ", ")));
  list.row("models", arguments.models);
  return "\n" + list.text();
}

Json json_document(const KernelsArguments& arguments, const PricedTable& priced) {
  Json json = document(schemas::kKernels);
  json.update(kernels_json(arguments, priced));
  if (arguments.output.empty()) {
    json["kernels"] = Json::array();
  } else {
    json["output"] = file_name(arguments.output);
  }
  json["warnings"] = priced.warnings;
  return json;
}

/// Without an output file the prices are in the document.
Result<void> finish_document(const KernelsArguments& arguments, const PricedTable& priced,
                             PricesOutput& output) {
  const std::string text = to_text(json_document(arguments, priced));
  constexpr std::string_view kEmptyList = "\n \"kernels\": []";
  const std::size_t list = text.find(kEmptyList) + kEmptyList.size() - 1;
  return output.finish(text.substr(0, list) + "\n", "\n " + text.substr(list));
}

Result<void> run_kernels(const KernelsArguments& arguments) {
  PERFMODEL_TRY(data, find_data_folder());
  PERFMODEL_TRY(models, choose_kernel_models(arguments.models));
  PERFMODEL_TRY(output, PricesOutput::open(arguments.output));

  const bool lists_json = arguments.json && arguments.output.empty();
  if (!lists_json) PERFMODEL_TRY_TO(output->write(kPricesHeader));
  bool is_first = lists_json;
  const PriceSink sink{.format = lists_json ? append_price_json : append_prices,
                       .write = [&](std::string_view text) {
                         if (is_first) text.remove_prefix(std::string_view(",\n").size());
                         is_first = false;
                         return output->write(text);
                       }};
  PERFMODEL_TRY(priced, price_kernels(arguments, *data, *models, sink));
  if (!arguments.json) {
    for (const std::string& warning : priced->warnings) warn(warning);
  }
  if (lists_json) return finish_document(arguments, *priced, *output);
  PERFMODEL_TRY_TO(output->finish("", ""));
  if (arguments.output.empty()) return {};
  if (arguments.json) return print_document(json_document(arguments, *priced));
  return print_report(summary_text(arguments, *priced));
}

}  // namespace

Command kernels_command(CommandParser parent) {
  auto arguments = std::make_shared<KernelsArguments>();
  CommandParser app =
      parent.add_subcommand("kernels", "Prices kernels in bulk, one per row of a table");
  app.add_argument("QUERIES", arguments->queries,
                   "Kernels by their sizes (.csv or .csv.gz), see docs/formats.md");
  app.add_option("--gpu NAME", arguments->gpu,
                 "Price all rows on this GPU (default: the column device or gpu)");
  app.add_option("--op OP", arguments->op, "Op of rows that name none: gemm, linear, add, ...");
  app.add_option("--dtype TYPE", arguments->dtype,
                 "Type of rows that name none: fp32, fp16, fp8, ...");
  app.add_option("--topology NAME", arguments->topology,
                 "Of collectives: a known name, or a topology file (default: what each GPU usually "
                 "sits in)");
  app.add_option("-o,--output FILE", arguments->output,
                 "Table to write (.csv or .csv.gz; default: standard output)");
  add_models_option(app, arguments->models);
  const Option burst = app.add_flag(
      "--burst", arguments->burst,
      "Ignore the board's power limit, which holds kernels above a millisecond that run again and "
      "again");
  app.add_flag("--sustained", arguments->sustained, "Hold shorter kernels to the limit, too")
      .excludes(burst);
  app.add_flag("--json", arguments->json, "Print one JSON document");
  return {app, [arguments] { return run_kernels(*arguments); }};
}

}  // namespace perfmodel::cli
