#include <fmt/format.h>

#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include "base/plain_text.hpp"
#include "cli/shared/command.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/predictors/detail/learned_models.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

struct GpusArguments {
  std::string name;
  bool json = false, full = false;
};

/// A GPU, and what its kernels are priced from by kind ("gemm-bfloat16").
struct KnownGpu {
  Gpu gpu;
  std::map<std::string, Knowledge> kernels;
};

struct Peak {
  const char *key, *title;
  std::optional<double> Gpu::Peaks::*value;
};
constexpr const char* kLetters[kKnowledgeLevels] = {"-", "A", "C", "M"};

constexpr Peak kPeaks[] = {
    {"fp64", "FP64", &Gpu::Peaks::fp64},
    {"fp32", "FP32", &Gpu::Peaks::fp32},
    {"fp16", "FP16", &Gpu::Peaks::fp16},
    {"bf16", "BF16", &Gpu::Peaks::bf16},
    {"fp32_matrix", "FP32 matrix", &Gpu::Peaks::fp32_matrix},
    {"tf32_matrix", "TF32 matrix", &Gpu::Peaks::tf32_matrix},
    {"fp16_matrix", "FP16 matrix", &Gpu::Peaks::fp16_matrix},
    {"bf16_matrix", "BF16 matrix", &Gpu::Peaks::bf16_matrix},
    {"fp8_matrix", "FP8 matrix", &Gpu::Peaks::fp8_matrix},
    {"fp4_matrix", "FP4 matrix", &Gpu::Peaks::fp4_matrix},
    {"int8_matrix_top_per_s", "INT8 matrix", &Gpu::Peaks::int8_matrix},
};

double gb_per_s(BytesPerSecond rate) { return rate.value / 1e9; }
double mib(Bytes size) { return size.value / (1024.0 * 1024.0); }

/// Base clocks are not always published.
Json clock_json(double mhz) { return mhz > 0 ? rounded(mhz) : Json(nullptr); }

Json kernels_json(const std::map<std::string, Knowledge>& kernels) {
  Json json = Json::object();
  for (const auto& [kind, knowledge] : kernels) json[kind] = to_string(knowledge);
  return json;
}

// The keys of `data/gpus/*.json`, the architecture that stands in for an unknown one, and what
// prices rest on.
Json gpu_json(const KnownGpu& known) {
  const Gpu& gpu = known.gpu;
  Json peaks = Json::object();
  for (const Peak& peak : kPeaks) {
    const auto& value = gpu.peak_tflop_per_s.*peak.value;
    peaks[peak.key] = value ? rounded(*value) : Json(nullptr);
  }
  return {{"name", gpu.name},
          {"title", gpu.title},
          {"vendor", gpu.vendor},
          {"architecture", gpu.architecture.name},
          {"like", gpu.architecture.like.empty() ? Json(nullptr) : Json(gpu.architecture.like)},
          {"target", gpu.target},
          {"aliases", gpu.aliases},
          {"num_sms", gpu.num_sms},
          {"base_clock_mhz", clock_json(gpu.base_clock_mhz)},
          {"boost_clock_mhz", clock_json(gpu.boost_clock_mhz)},
          {"peak_tflop_per_s", std::move(peaks)},
          {"dram",
           {{"type", gpu.dram_type},
            {"size_gb", rounded(gpu.dram_gb)},
            {"usable_gib", gpu.usable_gib > 0 ? rounded(gpu.usable_gib) : Json(nullptr)},
            {"bandwidth_gb_per_s", rounded(gb_per_s(gpu.dram_bandwidth))}}},
          {"l2_mib", rounded(mib(gpu.l2_size))},
          {"last_level_cache_mib", gpu.last_level_cache_size.value > 0
                                       ? rounded(mib(gpu.last_level_cache_size))
                                       : Json(nullptr)},
          {"shared_memory_per_sm_kib", rounded(gpu.shared_memory_per_sm.value / 1024)},
          {"max_threads_per_sm", gpu.max_threads_per_sm},
          {"warp_size", gpu.warp_size},
          {"pcie",
           {{"generation", gpu.pcie_generation},
            {"lanes", gpu.pcie_lanes},
            {"bandwidth_gb_per_s", rounded(gb_per_s(gpu.pcie_bandwidth))}}},
          {"link", gpu.link_type.empty()
                       ? Json(nullptr)
                       : Json{{"type", gpu.link_type},
                              {"links", gpu.link_count},
                              {"bandwidth_gb_per_s", rounded(gb_per_s(gpu.link_bandwidth))}}},
          {"tdp_w", rounded(gpu.tdp_w)},
          {"kernels", kernels_json(known.kernels)},
          {"notes", gpu.notes},
          {"sources", gpu.sources}};
}

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
  for (const Peak& peak : kPeaks) {
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

/// With what their kernels are priced from, by the models of the data folder, if it has any.
Result<std::vector<KnownGpu>> known_gpus(std::vector<Gpu> gpus, const std::filesystem::path& data) {
  std::optional<LearnedModels> models;
  std::error_code ignored;
  if (std::filesystem::exists(data / "models", ignored)) {
    auto opened = LearnedModels::open(data / "models");
    if (!opened) return Unexpected{opened.error()};
    models = std::move(*opened);
  }
  std::vector<KnownGpu> known;
  for (Gpu& gpu : gpus) {
    auto kernels = models ? models->knowledge(gpu) : heuristic_knowledge(gpu);
    known.push_back({std::move(gpu), std::move(kernels)});
  }
  if (models && models->problem()) return Unexpected{*models->problem()};
  return known;
}

std::vector<KnownGpu> without_kernels(std::vector<Gpu> gpus) {
  std::vector<KnownGpu> known;
  for (Gpu& gpu : gpus) known.push_back({std::move(gpu), {}});
  return known;
}

Result<void> run_gpus(const GpusArguments& arguments) {
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  std::vector<Gpu> gpus;
  if (arguments.name.empty()) {
    auto all = read_gpus(*data / "gpus");
    if (!all) return Unexpected{all.error()};
    gpus = std::move(*all);
  } else {
    auto gpu = find_gpu(arguments.name, *data / "gpus");
    if (!gpu) return Unexpected{gpu.error()};
    gpus.push_back(std::move(*gpu));
  }
  // The list of all shows data sheets only: it takes no reading of models.
  if (arguments.name.empty() && !arguments.full && !arguments.json) {
    return print_report(list_text(without_kernels(std::move(gpus)), bold_allowed()));
  }
  const auto known = known_gpus(std::move(gpus), *data);
  if (!known) return Unexpected{known.error()};
  if (arguments.json) {
    Json json = document(schemas::kGpus);
    json["gpus"] = Json::array();
    for (const KnownGpu& gpu : *known) json["gpus"].push_back(gpu_json(gpu));
    return print_document(json);
  }
  return print_report(arguments.name.empty() ? knowledge_text(*known, bold_allowed())
                                             : details_text(known->front(), bold_allowed()));
}

}  // namespace

Command gpus_command(CommandParser parent) {
  auto arguments = std::make_shared<GpusArguments>();
  const CommandParser app = parent.add_subcommand("gpus", "Known GPUs, or one of them in full");
  app.add_option("NAME", arguments->name, "Name, alias or title of a GPU, or a GPU file")
      .type_name("");
  app.add_flag("--full", arguments->full,
               "Which kernels were measured on each GPU, not its figures");
  app.add_flag("--json", arguments->json, "Print one JSON document");
  return {app, [arguments] { return run_gpus(*arguments); }};
}

}  // namespace perfmodel::cli
