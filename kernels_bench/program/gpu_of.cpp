#include "gpu_of.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/schema.hpp"
#include "core/edit_distance.hpp"
#include "json/csv_file.hpp"
#include "perfmodel/detail/output_file.hpp"

namespace kernels_bench {
namespace {

using perfmodel::Gpu;
using perfmodel::Result;
using Json = nlohmann::ordered_json;

constexpr double kMib = 1024.0 * 1024.0;

std::string slug(std::string_view name) {
  std::string text;
  for (const char c : name) {
    const bool keeps = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (keeps) {
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!text.empty() && text.back() != '-') {
      text += '-';
    }
  }
  while (text.ends_with('-')) text.pop_back();
  return text;
}

// Double data rate: two transfers per clock of the memory.
double bandwidth(const DeviceInfo& info) {
  constexpr double kUnknown = 1e12;  // until the peaks are measured
  const double rate = info.memory_clock_mhz * 1e6 * 2 * info.memory_bus_bits / 8;
  return rate > 0 ? rate : kUnknown;
}

// The architecture that compiles for this target; else the one with the most similar target.
perfmodel::Architecture architecture_of(const DeviceInfo& info, std::string_view vendor,
                                        const std::filesystem::path& folder) {
  perfmodel::Architecture own;
  own.name = info.target.empty() ? "unknown" : info.target;
  const auto known = perfmodel::read_architectures(folder);
  if (!known) return own;
  std::size_t least = std::string::npos;
  for (const perfmodel::Architecture& architecture : *known) {
    if (architecture.vendor != vendor) continue;
    for (const std::string& target : architecture.targets) {
      if (target == info.target) return architecture;
      const std::size_t distance = perfmodel::edit_distance(target, info.target);
      if (distance >= least) continue;
      least = distance;
      own = architecture;
    }
  }
  own.like = own.name;
  own.name = info.target.empty() ? "unknown" : info.target;
  return own;
}

Gpu described(const DeviceInfo& info, const std::filesystem::path& gpu_folder) {
  Gpu gpu;
  gpu.name = slug(info.name);
  gpu.title = info.name;
  gpu.vendor = info.vendor == "amd" ? "amd" : "nvidia";
  gpu.architecture = architecture_of(info, gpu.vendor, gpu_folder.parent_path() / "architectures");
  gpu.target = info.target;
  gpu.num_sms = info.num_sms;
  gpu.boost_clock_mhz = info.clock_mhz;
  constexpr double kLanes = 128;  // per SM; until the peaks are measured
  gpu.peak_tflop_per_s.fp32 = 2 * kLanes * info.num_sms * std::max(1.0, info.clock_mhz) * 1e-6;
  gpu.dram_type = "unknown";
  gpu.dram_gb = static_cast<double>(info.memory_bytes) * 1e-9;
  gpu.dram_bandwidth = {bandwidth(info)};
  gpu.l2_size = {static_cast<double>(info.l2_bytes)};
  gpu.shared_memory_per_sm = {static_cast<double>(info.shared_memory_per_sm)};
  gpu.max_threads_per_sm = info.max_threads_per_sm;
  gpu.warp_size = info.warp_size;
  gpu.pcie_bandwidth = {25e9};
  return gpu;
}

/// Highest rates of a peaks table by "op dtype".
struct MeasuredPeaks {
  std::map<std::string, double> tflop_per_s;
  double copy_gb_per_s = 0, link_gb_per_s = 0;
};

/// Peaks of a file, up to where it breaks off; none if it cannot be read.
MeasuredPeaks read_peaks(const std::filesystem::path& file) {
  MeasuredPeaks peaks;
  auto csv = perfmodel::CsvFile::open(file);
  if (!csv) return peaks;
  const auto cell = [&](std::string_view column) { return csv->cell(csv->column(column)); };
  const auto number = [&](std::string_view column) {
    return perfmodel::parse_double(cell(column)).value_or(0);
  };
  while (csv->next()) {
    const std::string op(cell("op"));
    if (op == "copy_bandwidth" && number("bytes") >= (1 << 28)) {  // larger than any L2
      peaks.copy_gb_per_s = std::max(peaks.copy_gb_per_s, number("gb_per_s"));
    } else if (op == "memcpy" && cell("copy_kind") == "h2d") {
      peaks.link_gb_per_s =
          std::max(peaks.link_gb_per_s, number("gb_per_s") / 2);  // read here, written there
    } else {
      double& rate = peaks.tflop_per_s[op + " " + std::string(cell("dtype"))];
      rate = std::max(rate, number("tflop_per_s"));
    }
  }
  return peaks;
}

Json rate_or_null(const MeasuredPeaks& peaks, const std::string& name) {
  const auto found = peaks.tflop_per_s.find(name);
  if (found == peaks.tflop_per_s.end() || found->second <= 0) return nullptr;
  return std::round(found->second * 100) / 100;
}

}  // namespace

GpuOfDevice gpu_of(const DeviceInfo& info, const std::filesystem::path& gpu_folder) {
  if (auto known = perfmodel::find_known_gpu(info.name, gpu_folder))
    return {std::move(*known), true};
  // A file of a past campaign describes it under the name that it was given.
  if (auto known = perfmodel::find_known_gpu(slug(info.name), gpu_folder)) {
    return {std::move(*known), true};
  }
  return {described(info, gpu_folder), false};
}

Result<void> write_gpu_file(const DeviceInfo& info, const Gpu& gpu,
                            const std::filesystem::path& folder,
                            const std::filesystem::path& file) {
  const MeasuredPeaks peaks = read_peaks(folder / "peaks.csv");
  const Json fp32 = rate_or_null(peaks, "fma fp32");
  const double by_driver = gpu.dram_bandwidth.value / 1e9;
  const double dram = info.memory_bus_bits > 0 ? by_driver : peaks.copy_gb_per_s;
  if (fp32.is_null() || !(dram > 0)) {
    return perfmodel::fail(perfmodel::ErrorCode::kImpossible,
                           "expected measured peaks (family peaks: fma fp32, copy_bandwidth) to "
                           "describe this GPU, found none");
  }
  const double link =
      peaks.link_gb_per_s > 0 ? peaks.link_gb_per_s : gpu.pcie_bandwidth.value / 1e9;
  Json document = {
      {"schema", perfmodel::schemas::kGpu.name},
      {"version", perfmodel::schemas::kGpu.version},
      {"name", gpu.name},
      {"title", gpu.title},
      {"vendor", gpu.vendor},
      {"architecture", gpu.architecture.name},
      {"target", gpu.target},
      {"aliases", {info.name}},
      {"num_sms", gpu.num_sms},
      {"base_clock_mhz", nullptr},
      {"boost_clock_mhz", info.clock_mhz > 0 ? Json(info.clock_mhz) : Json(nullptr)},
      {"peak_tflop_per_s",
       {{"fp64", nullptr},
        {"fp32", fp32},
        {"fp16", rate_or_null(peaks, "fma fp16")},
        {"bf16", rate_or_null(peaks, "fma bf16")},
        {"fp32_matrix", nullptr},
        {"tf32_matrix", rate_or_null(peaks, "matrix tf32")},
        {"fp16_matrix", rate_or_null(peaks, "matrix fp16")},
        {"bf16_matrix", rate_or_null(peaks, "matrix bf16")},
        {"fp8_matrix", nullptr},
        {"fp4_matrix", nullptr},
        {"int8_matrix_top_per_s", nullptr}}},
      {"dram",
       {{"type", gpu.dram_type},
        {"size_gb", std::round(gpu.dram_gb)},
        {"bandwidth_gb_per_s", std::round(dram)}}},
      {"l2_mib", gpu.l2_size.value / kMib},
      {"last_level_cache_mib", nullptr},
      {"shared_memory_per_sm_kib", gpu.shared_memory_per_sm.value / 1024},
      {"max_threads_per_sm", gpu.max_threads_per_sm},
      {"warp_size", gpu.warp_size},
      {"pcie",
       {{"generation", 4}, {"lanes", 16}, {"bandwidth_gb_per_s", std::round(link * 10) / 10}}},
      {"link", nullptr},
      {"tdp_w", nullptr},
      {"notes",
       "Written by kernels_bench: sizes and clocks as the driver says, arithmetic and PCIe rates "
       "as "
       "measured (so below any data sheet's), DRAM bandwidth from the memory's clock and bus where "
       "the driver tells them. PCIe generation and lanes were not asked for."},
      {"sources", {"Measured peaks, peaks.csv of the same campaign"}}};
  if (const std::string& like = gpu.architecture.like; !like.empty()) document["like"] = like;
  auto output = perfmodel::OutputFile::create(file);
  if (!output) return tl::unexpected(output.error());
  output->write(document.dump(2) + "\n");
  return output->commit();
}

}  // namespace kernels_bench
