#include "kernels/known_gpus.hpp"

#include <filesystem>
#include <optional>
#include <utility>

#include "base/each_name.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/predictors/detail/learned_models.hpp"

namespace perfmodel {
namespace {

// Figures that are not published, or not of this board.
OrderedJson if_above_zero(double value) {
  return value > 0 ? rounded(value) : OrderedJson(nullptr);
}

OrderedJson knowledge_json(const std::map<std::string, Knowledge>& kernels) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [kind, knowledge] : kernels) json[kind] = to_string(knowledge);
  return json;
}

Result<std::vector<Gpu>> gpus_of(const std::string& name, const std::filesystem::path& folder) {
  if (name.empty()) return read_gpus(folder);
  PERFMODEL_TRY(gpu, find_gpu(name, folder));
  return std::vector<Gpu>{std::move(*gpu)};
}

}  // namespace

Result<std::vector<KnownGpu>> known_gpus(const std::string& name, bool kernels) {
  PERFMODEL_TRY(data, find_data_folder());
  PERFMODEL_TRY(gpus, gpus_of(name, *data / "gpus"));
  std::optional<LearnedModels> models;
  std::error_code ignored;
  if (kernels && std::filesystem::exists(*data / "models", ignored)) {
    PERFMODEL_TRY(opened, LearnedModels::open(*data / "models"));
    models = std::move(*opened);
  }
  std::vector<KnownGpu> known;
  for (Gpu& gpu : *gpus) {
    known.push_back({std::move(gpu), {}});
    if (!kernels) continue;
    const Gpu& moved = known.back().gpu;
    known.back().kernels = models ? models->knowledge(moved) : heuristic_knowledge(moved);
  }
  if (models && models->problem()) return Unexpected{*models->problem()};
  return known;
}

OrderedJson gpu_json(const KnownGpu& known) {
  const Gpu& gpu = known.gpu;
  OrderedJson peaks = OrderedJson::object();
  for (const GpuPeak& peak : kGpuPeaks) {
    const auto& value = gpu.peak_tflop_per_s.*peak.value;
    peaks[peak.key] = value ? rounded(*value) : OrderedJson(nullptr);
  }
  return {PERFMODEL_VALUES(gpu, name, title, vendor),
          {"architecture", gpu.architecture.name},
          {"like", gpu.architecture.like.empty() ? OrderedJson(nullptr)
                                                 : OrderedJson(gpu.architecture.like)},
          PERFMODEL_VALUES(gpu, target, aliases, num_sms),
          {"base_clock_mhz", if_above_zero(gpu.base_clock_mhz)},
          {"boost_clock_mhz", if_above_zero(gpu.boost_clock_mhz)},
          {"peak_tflop_per_s", std::move(peaks)},
          {"dram",
           {{"type", gpu.dram_type},
            {"size_gb", rounded(gpu.dram_gb)},
            {"usable_gib", if_above_zero(gpu.usable_gib)},
            {"bandwidth_gb_per_s", rounded(gb_per_s(gpu.dram_bandwidth))}}},
          {"l2_mib", rounded(mib(gpu.l2_size))},
          {"last_level_cache_mib", if_above_zero(mib(gpu.last_level_cache_size))},
          {"shared_memory_per_sm_kib", rounded(gpu.shared_memory_per_sm.value / 1024)},
          {"max_threads_per_sm", gpu.max_threads_per_sm},
          {"warp_size", gpu.warp_size},
          {"pcie",
           {{"generation", gpu.pcie_generation},
            {"lanes", gpu.pcie_lanes},
            {"bandwidth_gb_per_s", rounded(gb_per_s(gpu.pcie_bandwidth))}}},
          {"link", gpu.link_type.empty() ? OrderedJson(nullptr)
                                         : OrderedJson{{"type", gpu.link_type},
                                                       {"links", gpu.link_count},
                                                       {"bandwidth_gb_per_s",
                                                        rounded(gb_per_s(gpu.link_bandwidth))}}},
          {"tdp_w", rounded(gpu.tdp_w)},
          {"kernels", knowledge_json(known.kernels)},
          {"notes", gpu.notes},
          {"sources", gpu.sources}};
}

double gb_per_s(BytesPerSecond rate) { return rate.value / 1e9; }
double mib(Bytes size) { return size.value / (1024.0 * 1024.0); }

}  // namespace perfmodel
