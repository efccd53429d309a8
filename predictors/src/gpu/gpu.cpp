#include "perfmodel/predictors/gpu.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "architecture_files.hpp"
#include "choice.hpp"
#include "core/edit_distance.hpp"
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
  gpu.title = root.string("title");
  gpu.vendor = root.string("vendor");
  if (!error && gpu.vendor != "nvidia" && gpu.vendor != "amd") {
    root.reject("vendor", "\"nvidia\" or \"amd\"");
  }
  name_architecture(root, error, files, gpu.architecture);
  gpu.target = root.string("target");
  gpu.aliases = root.strings("aliases");
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
  gpu.max_threads_per_sm = root.positive_integer("max_threads_per_sm");
  gpu.warp_size = root.positive_integer("warp_size");
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

// "; the nearest known are ...": at most three, and none where half of the letters differ.
std::string nearest_names(std::string_view wanted, std::span<const Gpu> gpus) {
  std::vector<std::pair<std::size_t, std::string>> scored;
  for (const Gpu& gpu : gpus) {
    std::size_t best =
        std::min(edit_distance(wanted, gpu.name), edit_distance(wanted, lower_case(gpu.title)));
    for (const std::string& alias : gpu.aliases) {
      best = std::min(best, edit_distance(wanted, lower_case(alias)));
    }
    if (gpu.name.starts_with(wanted)) best = 0;  // "a100" means one of the a100 boards
    if (best <= wanted.size() / 2) scored.emplace_back(best, gpu.name);
  }
  if (scored.empty()) return fmt::format("; none of the {} known ones is like it", gpus.size());
  return "; the nearest known are " + nearest_three(std::move(scored));
}

// The file that a name stands for, if there is one.
std::optional<fs::path> file_of(std::string_view name, const fs::path& folder) {
  const std::string wanted = lower_case(name);
  if (!is_plain_name(wanted)) return std::nullopt;  // else it may lead out of the folder
  std::error_code ignored;
  fs::path file = folder / (wanted + ".json");
  if (!fs::is_regular_file(file, ignored)) return std::nullopt;
  return file;
}

/// The file, and the figures of the architecture that it names.
Result<Gpu> read_with(const fs::path& file, ArchitectureFiles& architectures) {
  Result<Gpu> gpu =
      read_json_file(file, "GPU file", [&](const Json& document, std::optional<Error>& error) {
        return parse_gpu(document, error, architectures);
      });
  if (!gpu) return gpu;
  Architecture& own = gpu->architecture;
  auto figures = architectures.read(own.is_known() ? own.name : own.like);
  if (!figures) return Unexpected{figures.error()};
  if (own.is_known() && gpu->vendor != figures->vendor) {
    return Unexpected{
        Error{.message = fmt::format("expected \"{}\", the vendor of {}, found \"{}\"",
                                     figures->vendor, own.name, gpu->vendor),
              .file = file,
              .json_pointer = "/vendor"}};
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

// "NVIDIA A10-24Q", "GRID A100D-2-20C", "NVIDIA H100-1-10CME": a dash, digits, the kind of profile.
bool ends_in_vgpu_profile(std::string_view name) {
  if (name.ends_with("me")) name.remove_suffix(2);
  if (name.empty() || std::string_view("abcq").find(name.back()) == name.npos) return false;
  name.remove_suffix(1);
  const std::size_t number = name.find_last_not_of("0123456789");
  return number != name.npos && number + 1 < name.size() && name[number] == '-';
}

// "1g.5gb": how many slices of compute, and their memory.
bool has_mig_profile(std::string_view name) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (std::size_t at = name.find("g."); at != name.npos; at = name.find("g.", at + 1)) {
    if (at > 0 && is_digit(name[at - 1]) && at + 2 < name.size() && is_digit(name[at + 2])) {
      return true;
    }
  }
  return false;
}

// A virtual function is the whole board, passed through to a guest.
std::string_view without_virtual_function(std::string_view name) {
  for (const std::string_view ending : {" vf", "-vf", "_vf"}) {
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  }
  return name;
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
    case DType::kComplex128:
      tflop_per_s = p.fp64.value_or(fp32 / 32);
      break;
    case DType::kFloat16:
      tflop_per_s =
          std::max(fp32, (matrix_units ? first_of({p.fp16_matrix, p.fp16}) : p.fp16).value_or(0));
      break;
    case DType::kBFloat16:
      tflop_per_s = bf16(matrix_units);
      break;
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
  const auto files = json_files(folder, "GPU files");
  if (!files) return Unexpected{files.error()};

  ArchitectureFiles architectures(architectures_beside(folder));
  std::vector<Gpu> gpus;
  std::map<std::string, std::string> owners;  // lower-case alias -> GPU
  for (const fs::path& file : *files) {
    Result<Gpu> gpu = read_with(file, architectures);
    if (!gpu) return Unexpected{gpu.error()};
    if (gpu->name != file.stem().string()) {
      return Unexpected{Error{.message = "expected the name of the file, \"" +
                                         file.stem().string() + "\", found \"" + gpu->name + "\"",
                              .file = file,
                              .json_pointer = "/name"}};
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
        return Unexpected{Error{.message = "expected a name of one GPU only, found \"" + text +
                                           "\", which " + owner->second + " claims too",
                                .file = file,
                                .json_pointer = pointer}};
      }
    }
    gpus.push_back(std::move(*gpu));
  }
  std::ranges::sort(gpus, {}, &Gpu::name);
  return gpus;
}

Result<Gpu> find_gpu(std::string_view name, const fs::path& folder) {
  const fs::path architectures = architectures_beside(folder);
  if (const auto file = file_of(name, folder)) return read_gpu(*file, architectures);
  const fs::path path{std::string(name)};
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return read_gpu(path, architectures);
  if (path.extension() == ".json") return read_gpu(path);  // says that it cannot be opened
  auto found = find_known_gpu(name, folder);
  if (!found && found.error().code == ErrorCode::kUnknownName) {
    found.error().message += fmt::format(
        "; a file (.json) is taken, too: docs/extending.md says how to write one, from a copy of "
        "one in {}",
        folder.string());
  }
  return found;
}

Result<Gpu> find_known_gpu(std::string_view name, const fs::path& folder) {
  if (const auto file = file_of(name, folder)) {
    return read_gpu(*file, architectures_beside(folder));
  }
  Result<std::vector<Gpu>> gpus = read_gpus(folder);
  if (!gpus) return Unexpected{gpus.error()};
  const auto found = find_gpu(name, *gpus);
  if (!found) return Unexpected{found.error()};
  return std::move((*gpus)[*found]);
}

std::string_view why_not_a_board(std::string_view name) {
  const std::string wanted = lower_case(name);
  const auto has = [&](std::string_view word) { return wanted.find(word) != wanted.npos; };
  if (has_mig_profile(wanted) || has(" mig")) {
    return "a MIG slice, which has a share of a board's SMs, cache and bandwidth";
  }
  if (ends_in_vgpu_profile(wanted) || has("mxgpu")) {
    return "a vGPU, which has a share of a board's time or units";
  }
  if (has("laptop") || has("mobile")) {
    return "a laptop GPU, which has other units, clocks and memory than the desktop card of that "
           "name";
  }
  if (has("max-q")) {
    return "a Max-Q design, which has lower clocks and power than the card of that name";
  }
  return {};
}

Result<std::size_t> find_gpu(std::string_view name, std::span<const Gpu> gpus) {
  const std::string wanted = lower_case(name);
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const Gpu& gpu = gpus[i];
    const bool matches = wanted == gpu.name || wanted == lower_case(gpu.title) ||
                         std::ranges::any_of(gpu.aliases, [&](const auto& alias) {
                           return lower_case(alias) == wanted;
                         });
    if (matches) return i;
  }
  if (const auto board = without_virtual_function(wanted); board != wanted) {
    if (const auto found = find_gpu(board, gpus)) return found;
  }
  const std::string_view reason = why_not_a_board(name);
  return fail(
      ErrorCode::kUnknownName,
      fmt::format("expected the name of a known GPU, found \"{}\"{}", name,
                  reason.empty() ? nearest_names(wanted, gpus) : fmt::format(", {}", reason)));
}

}  // namespace perfmodel
