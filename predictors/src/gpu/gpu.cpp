#include "perfmodel/predictors/gpu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "architecture_files.hpp"
#include "base/each_name.hpp"
#include "choice.hpp"
#include "files/json_file.hpp"
#include "files/lower_case.hpp"

namespace perfmodel {
namespace {

namespace fs = std::filesystem;

constexpr double kMib = 1024.0 * 1024.0;
constexpr std::string_view kLinkTypes[] = {"nvlink", "xgmi"};

/// Name of the architecture, and of the known one that stands in for one without a file.
void name_architecture(ObjectReader& root, std::optional<Error>& error,
                       const ArchitectureFiles& files, Architecture& architecture) {
  architecture.name = root.plain_name("architecture");
  const std::string like = root.has("like") ? root.plain_name("like") : std::string();
  if (error || files.has(architecture.name)) return;
  if (like.empty()) {
    root.fail_at("/architecture", "a known architecture",
                 fmt::format("{}{}; a new one needs the file {}, or \"like\": the name of a known "
                             "one that stands in",
                             found(Json(architecture.name)), files.nearest(architecture.name),
                             files.file_of(architecture.name).string()));
  } else if (!files.has(like)) {
    root.fail_at("/like", "a known architecture", found(Json(like)) + files.nearest(like));
  }
  architecture.like = like;
}

Gpu parse_gpu(const Json& document, std::optional<Error>& error, const ArchitectureFiles& files) {
  Gpu gpu;
  ObjectReader root(document, "", error);
  root.expect_schema(schemas::kGpu);
  gpu.name = root.plain_name("name");
  PERFMODEL_READ(gpu, root.string, title, vendor);
  if (!error && gpu.vendor != "nvidia" && gpu.vendor != "amd") {
    root.reject("vendor", "\"nvidia\" or \"amd\"");
  }
  name_architecture(root, error, files, gpu.architecture);
  gpu.target = root.string("target");
  gpu.aliases = root.strings("aliases");
  if (root.has("usual")) gpu.usual = root.boolean("usual");
  gpu.num_sms = root.positive_integer("num_sms");
  gpu.base_clock_mhz = root.positive("base_clock_mhz", true);
  gpu.boost_clock_mhz = root.positive("boost_clock_mhz", true);

  if (const Json* peaks = root.object("peak_tflop_per_s")) {
    ObjectReader reader(*peaks, "/peak_tflop_per_s", error);
    for (const GpuPeak& peak : kGpuPeaks) {
      if (peak.value == &Gpu::Peaks::fp4_matrix && !reader.has(peak.key)) continue;
      const bool null_allowed = peak.value != &Gpu::Peaks::fp32;  // every model starts from it
      gpu.peak_tflop_per_s.*peak.value = reader.optional_positive(peak.key, null_allowed);
    }
    reader.finish();
  }
  if (const Json* dram = root.object("dram")) {
    ObjectReader reader(*dram, "/dram", error);
    gpu.dram_type = reader.string("type");
    gpu.dram_gb = reader.positive("size_gb");
    if (reader.has("usable_gib")) gpu.usable_gib = reader.positive("usable_gib");
    if (!error && gpu.usable_gib > gpu.dram_gb) reader.reject("usable_gib", "at most size_gb");
    gpu.dram_bandwidth = {reader.positive("bandwidth_gb_per_s") * 1e9};
    reader.finish();
  }
  gpu.l2_size = {root.positive("l2_mib") * kMib};
  gpu.last_level_cache_size = {root.positive("last_level_cache_mib", true) * kMib};
  gpu.shared_memory_per_sm = {root.positive("shared_memory_per_sm_kib") * 1024};
  PERFMODEL_READ(gpu, root.positive_integer, max_threads_per_sm, warp_size);
  if (const Json* pcie = root.object("pcie")) {
    ObjectReader reader(*pcie, "/pcie", error);
    gpu.pcie_generation = reader.positive_integer("generation");
    gpu.pcie_lanes = reader.positive_integer("lanes");
    gpu.pcie_bandwidth = {reader.positive("bandwidth_gb_per_s") * 1e9};
    reader.finish();
  }
  if (const Json* link = root.object("link", true)) {
    ObjectReader reader(*link, "/link", error);
    std::string unknown;
    const std::size_t type = choice_or_like(reader, "type", kLinkTypes, unknown);
    gpu.link_type = unknown.empty() ? kLinkTypes[type] : unknown;
    if (!unknown.empty()) gpu.link_like = kLinkTypes[type];
    reader.positive("generation");
    gpu.link_count = reader.positive_integer("links");
    gpu.link_bandwidth = {reader.positive("bandwidth_gb_per_s") * 1e9};
    reader.finish();
  }
  gpu.tdp_w = root.positive("tdp_w", true);
  gpu.notes = root.string("notes");
  gpu.sources = root.strings("sources");
  root.finish();
  return gpu;
}

/// The file, and the figures of the architecture that it names.
Result<Gpu> read_with(const fs::path& file, ArchitectureFiles& architectures) {
  Result<Gpu> gpu =
      read_json_file(file, "GPU file", [&](const Json& document, std::optional<Error>& error) {
        return parse_gpu(document, error, architectures);
      });
  if (!gpu) return gpu;
  Architecture& own = gpu->architecture;
  PERFMODEL_TRY(figures, architectures.read(own.is_known() ? own.name : own.like));
  if (own.is_known() && gpu->vendor != figures->vendor) {
    return fail(ErrorCode::kFormat,
                fmt::format("expected \"{}\", the vendor of {}, found \"{}\"", figures->vendor,
                            own.name, gpu->vendor),
                file, "/vendor");
  }
  figures->name = std::move(own.name);
  figures->like = std::move(own.like);
  own = std::move(*figures);
  const auto& blocks = own.max_blocks_of_targets;
  if (const auto other = blocks.find(gpu->target); other != blocks.end()) {
    own.max_blocks_per_sm = other->second;
  }
  return gpu;
}

std::optional<double> first_of(std::initializer_list<std::optional<double>> candidates) {
  for (const auto& candidate : candidates) {
    if (candidate) return candidate;
  }
  return std::nullopt;
}

}  // namespace

FlopPerSecond Gpu::peak(DType dtype, bool matrix_units) const {
  const Peaks& p = peak_tflop_per_s;
  const double fp32 = p.fp32.value_or(0);
  // Half types without a vector rate, or with a token one, are computed in fp32. Hardware without a
  // published fp64 rate gets 1/32 of fp32, the usual ratio of consumer boards.
  double tflop_per_s = fp32;
  // Narrow types without matrix units of their own are computed in the next wider ones, in the end
  // in bf16, which recipes for them are built on.
  const auto bf16 = [&](bool on_matrix_units) {
    const auto rate = on_matrix_units ? first_of({p.bf16_matrix, p.bf16}) : p.bf16;
    return std::max(fp32, rate.value_or(0));
  };
  switch (dtype) {
    case DType::kFloat64:
    case DType::kComplex128: tflop_per_s = p.fp64.value_or(fp32 / 32); break;
    case DType::kFloat16:
      tflop_per_s =
          std::max(fp32, (matrix_units ? first_of({p.fp16_matrix, p.fp16}) : p.fp16).value_or(0));
      break;
    case DType::kBFloat16: tflop_per_s = bf16(matrix_units); break;
    case DType::kFloat8:
      if (matrix_units) tflop_per_s = p.fp8_matrix.value_or(bf16(true));
      break;
    case DType::kFloat4:
      if (matrix_units) tflop_per_s = first_of({p.fp4_matrix, p.fp8_matrix}).value_or(bf16(true));
      break;
    case DType::kInt8:
    case DType::kUInt8:
      if (matrix_units) tflop_per_s = p.int8_matrix.value_or(fp32);
      break;
    default:
      if (matrix_units) tflop_per_s = first_of({p.fp32_matrix, p.tf32_matrix}).value_or(fp32);
  }
  return {tflop_per_s * 1e12};
}

Bytes Gpu::usable_memory() const {
  constexpr double kGib = 1 << 30;
  return {kGib * (usable_gib > 0 ? usable_gib : dram_gb * architecture.usable_memory_share)};
}

bool gemm_uses_matrix_units(DType dtype, const Gpu& gpu) {
  constexpr bool kAllowTf32 = false;  // torch.backends.cuda.matmul.allow_tf32
  if (dtype == DType::kFloat32) {
    return gpu.peak_tflop_per_s.fp32_matrix.has_value() ||
           (kAllowTf32 && gpu.peak_tflop_per_s.tf32_matrix.has_value());
  }
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat8 ||
         dtype == DType::kFloat4 || dtype == DType::kInt8;
}

bool has_matrix_units(DType dtype, const Gpu& gpu) {
  const Gpu::Peaks& peaks = gpu.peak_tflop_per_s;
  if (dtype == DType::kFloat8) return peaks.fp8_matrix.has_value();
  return dtype != DType::kFloat4 || peaks.fp4_matrix.has_value();
}

std::vector<std::string> stand_ins(const Gpu& gpu) {
  std::vector<std::string> sentences;
  if (!gpu.taken_for.empty()) sentences.push_back(gpu.taken_for);
  const Architecture& architecture = gpu.architecture;
  if (architecture.name.empty()) {
    sentences.push_back(gpu.name +
                        " has no architecture: its data sheet alone makes the prices of kernels, "
                        "all out of range");
  } else if (!architecture.is_known()) {
    sentences.push_back(fmt::format(
        "architecture {} of {} is not known: {} stands in, and every price of a kernel is out of "
        "range",
        architecture.name, gpu.name, architecture.like));
  }
  if (!gpu.link_like.empty()) {
    sentences.push_back(fmt::format("link {} of {} is not known: {} stands in", gpu.link_type,
                                    gpu.name, gpu.link_like));
  }
  return sentences;
}

Result<Gpu> read_gpu(const fs::path& file, const fs::path& architectures) {
  ArchitectureFiles files(architectures_for(file, architectures));
  return read_with(file, files);
}

Result<std::vector<Gpu>> read_gpus(const fs::path& folder) {
  PERFMODEL_TRY(files, json_files(folder, "GPU files"));

  ArchitectureFiles architectures(architectures_beside(folder));
  std::vector<Gpu> gpus;
  std::map<std::string, std::string> owners;  // lower-case alias -> GPU
  for (const fs::path& file : *files) {
    PERFMODEL_TRY(gpu, read_with(file, architectures));
    if (gpu->name != file.stem().string()) {
      return fail(ErrorCode::kFormat,
                  "expected the name of the file, \"" + file.stem().string() + "\", found \"" +
                      gpu->name + "\"",
                  file, "/name");
    }
    for (std::size_t i = 0; i < gpu->aliases.size() + 2; ++i) {
      const bool is_alias = i < gpu->aliases.size();
      const std::string pointer = is_alias                   ? "/aliases/" + std::to_string(i)
                                  : i == gpu->aliases.size() ? "/name"
                                                             : "/title";
      const std::string& text = is_alias                   ? gpu->aliases[i]
                                : i == gpu->aliases.size() ? gpu->name
                                                           : gpu->title;
      const auto [owner, is_new] = owners.emplace(lower_case(text), gpu->name);
      if (!is_new && owner->second != gpu->name) {
        return fail(ErrorCode::kFormat,
                    "expected a name of one GPU only, found \"" + text + "\", which " +
                        owner->second + " claims too",
                    file, pointer);
      }
    }
    gpus.push_back(std::move(*gpu));
  }
  std::ranges::sort(gpus, {}, &Gpu::name);
  return gpus;
}

}  // namespace perfmodel
