#include <fmt/format.h>

#include <cmath>
#include <map>
#include <memory>

#include "base/plain_text.hpp"
#include "cli/shared/command.hpp"
#include "kernels/known_gpus.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

struct GpusArguments {
  std::string name;
  bool json = false, full = false;
};

constexpr const char* kLetters[kKnowledgeLevels] = {"-", "A", "C", "M"};

std::string number(double value) { return fmt::format("{:g}", std::round(value * 100) / 100); }

std::string clocks_text(const Gpu& gpu) {
  const auto mhz = [](double clock) { return clock > 0 ? number(clock) + " MHz" : "-"; };
  return fmt::format("{} base, {} boost", mhz(gpu.base_clock_mhz), mhz(gpu.boost_clock_mhz));
}

std::string list_text(const std::vector<KnownGpu>& gpus, bool bold) {
  TextTable table{"GPU", "<title", "<design", "SMs", "TFLOP/s", "GB", "GB/s"};
  for (const auto& [gpu, kernels] : gpus) {
    const auto fp32 = gpu.peak_tflop_per_s.fp32;
    table.row({gpu.name, gpu.title, gpu.architecture.name, std::to_string(gpu.num_sms),
               fp32 ? fmt::format("{:.1f}", *fp32) : "-", number(gpu.dram_gb),
               grouped(static_cast<std::size_t>(gb_per_s(gpu.dram_bandwidth)))});
  }
  return "\n" + table.text(bold) +
         "\n  TFLOP/s: dense peak in FP32. GB, GB/s: device memory."
         "\n  `perfpredict gpus NAME` shows one in full, with its other names and its sources; "
         "--full "
         "what was\n  measured on each.\n";
}

/// One letter per kind of kernels.
std::string knowledge_text(const std::vector<KnownGpu>& gpus, bool bold) {
  std::map<std::string, std::size_t> kinds;  // every kind that somebody measured
  for (const KnownGpu& known : gpus) {
    for (const auto& [kind, knowledge] : known.kernels) kinds[kind] = 0;
  }
  std::vector<std::string> titles{"GPU"};
  TextList legend;
  for (auto& [kind, column] : kinds) {
    column = titles.size();
    titles.push_back(std::to_string(column));
    legend.row(titles.back(), kind);
  }
  TextTable table(titles);
  for (const KnownGpu& known : gpus) {
    std::vector<std::string> cells(titles.size(), "-");
    cells.front() = known.gpu.name;
    for (const auto& [kind, knowledge] : known.kernels) {
      cells[kinds[kind]] = kLetters[static_cast<std::size_t>(knowledge)];
    }
    table.row(cells);
  }
  return "\n" + table.text(bold) + "\n" + legend.text() +
         "\n  Times rest on measurements of: M this GPU, C another board with its chip, A another "
         "chip of "
         "its\n  architecture; -: the data sheet alone, as for all kernels not named.\n";
}

void add_knowledge(TextList& list, const std::map<std::string, Knowledge>& kernels) {
  const auto row = [&](std::string_view title, auto is_chosen) {
    std::vector<std::string_view> kinds;
    for (const auto& [kind, knowledge] : kernels) {
      if (is_chosen(knowledge)) kinds.push_back(kind);
    }
    if (!kinds.empty()) list.row(title, fmt::format("{}", fmt::join(kinds, ", ")));
  };
  row("measured", [](Knowledge k) { return k == Knowledge::kBoard; });
  row("same chip measured", [](Knowledge k) { return k == Knowledge::kChip; });
  row("architecture measured", [](Knowledge k) { return k == Knowledge::kArchitecture; });
  list.row("data sheet only", "all other kernels");
}

std::string details_text(const KnownGpu& known, bool bold) {
  const Gpu& gpu = known.gpu;
  std::string text =
      fmt::format("\n  {}{}{} ({})\n\n", bold ? "\033[1m" : "", plain_text(gpu.title),
                  bold ? "\033[0m" : "", plain_text(gpu.name));
  TextList list;
  list.row("also called",
           gpu.aliases.empty() ? "-" : fmt::format("{}", fmt::join(gpu.aliases, ", ")));
  list.row("architecture",
           fmt::format("{} {} ({})", gpu.vendor, gpu.architecture.name, gpu.target));
  list.row(gpu.vendor == "amd" ? "CUs" : "SMs", std::to_string(gpu.num_sms));
  list.row("clocks", clocks_text(gpu));
  for (const GpuPeak& peak : kGpuPeaks) {
    if (const auto& value = gpu.peak_tflop_per_s.*peak.value) {
      list.row(peak.title,
               number(*value) +
                   (std::string_view(peak.key).starts_with("int8") ? " TOP/s" : " TFLOP/s"));
    }
  }
  list.row("memory", fmt::format("{} GB {}, {} GB/s", number(gpu.dram_gb), gpu.dram_type,
                                 number(gb_per_s(gpu.dram_bandwidth))));
  list.row("L2", number(mib(gpu.l2_size)) + " MiB");
  if (gpu.last_level_cache_size.value > 0) {
    list.row("last-level cache", number(mib(gpu.last_level_cache_size)) + " MiB");
  }
  list.row("shared memory",
           fmt::format("{} KiB per {}", number(gpu.shared_memory_per_sm.value / 1024),
                       gpu.vendor == "amd" ? "CU" : "SM"));
  list.row("PCIe", fmt::format("{}.0 x{}, {} GB/s one way", gpu.pcie_generation, gpu.pcie_lanes,
                               number(gb_per_s(gpu.pcie_bandwidth))));
  list.row("GPU link", gpu.link_type.empty()
                           ? "none"
                           : fmt::format("{} {}, {} GB/s both ways", gpu.link_count, gpu.link_type,
                                         number(gb_per_s(gpu.link_bandwidth))));
  list.row("power", number(gpu.tdp_w) + " W");
  add_knowledge(list, known.kernels);
  for (const std::string& sentence : stand_ins(gpu)) list.row("warning", sentence);
  if (!gpu.notes.empty()) list.row("notes", gpu.notes);
  for (std::size_t i = 0; i < gpu.sources.size(); ++i) {
    list.row(i == 0 ? "sources" : "", gpu.sources[i]);
  }
  return text + list.text();
}

Result<void> run_gpus(const GpusArguments& arguments) {
  // The list of all shows data sheets only: it takes no reading of models.
  const bool is_list = arguments.name.empty() && !arguments.full && !arguments.json;
  PERFMODEL_TRY(known, known_gpus(arguments.name, !is_list));
  if (arguments.json) {
    Json gpus = Json::array();
    for (const KnownGpu& gpu : *known) gpus.push_back(gpu_json(gpu));
    return print_document(schemas::kGpus, {{"gpus", std::move(gpus)}});
  }
  const bool bold = bold_allowed();
  return print_report(is_list                  ? list_text(*known, bold)
                      : arguments.name.empty() ? knowledge_text(*known, bold)
                                               : details_text(known->front(), bold));
}

}  // namespace

Command gpus_command(CommandParser parent) {
  auto arguments = std::make_shared<GpusArguments>();
  const CommandParser app = parent.add_subcommand("gpus", "Known GPUs, or one of them in full");
  app.add_option("NAME", arguments->name, "Name, alias or title of a GPU, or a GPU file");
  app.add_flag("--full", arguments->full,
               "Which kernels were measured on each GPU, not its figures");
  app.add_flag("--json", arguments->json, "Print one JSON document");
  return {app, [arguments] { return run_gpus(*arguments); }};
}

}  // namespace perfmodel::cli
