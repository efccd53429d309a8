#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/detail/units.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/predictors/detail/architecture.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Datasheet facts of one schedulable device, read from `data/gpus/<name>.json`.
struct Gpu {
  std::string name;    ///< "a100-sxm-40gb"
  std::string title;   ///< "NVIDIA A100-SXM4-40GB"
  std::string vendor;  ///< "nvidia" or "amd"
  Architecture architecture;
  std::string target;  ///< "sm_80", "gfx90a"
  std::vector<std::string> aliases;
  bool usual = false;     ///< the board that people mean by the name of its chip
  std::string taken_for;  ///< a sentence, if a short name fitted other boards, too
  int num_sms = 0;        ///< SMs or CUs
  double base_clock_mhz = 0, boost_clock_mhz = 0;

  /// Dense peaks in TFLOP/s; absent if the hardware has no such unit or the figure is unpublished.
  struct Peaks {
    std::optional<double> fp64, fp32, fp16, bf16;
    std::optional<double> fp32_matrix, tf32_matrix, fp16_matrix, bf16_matrix, fp8_matrix,
        fp4_matrix;
    std::optional<double> int8_matrix;
  } peak_tflop_per_s;

  std::string dram_type;
  double dram_gb = 0;     ///< as sold, in GiB
  double usable_gib = 0;  ///< memory that the driver shows programs; 0: unknown for this board
  BytesPerSecond dram_bandwidth;
  Bytes l2_size;
  Bytes last_level_cache_size;  ///< 0: none besides L2
  Bytes shared_memory_per_sm;
  int max_threads_per_sm = 0, warp_size = 32;
  int pcie_generation = 0, pcie_lanes = 0;
  BytesPerSecond pcie_bandwidth;  ///< one direction, theoretical
  std::string link_type;          ///< "nvlink", "xgmi", an unknown one, or empty
  std::string link_like;          ///< the known type that an unknown one counts as
  int link_count = 0;
  BytesPerSecond link_bandwidth;  ///< both directions together, as datasheets quote it; 0: no link
  double tdp_w = 0;
  std::string notes;
  std::vector<std::string> sources;

  /// Peak rate for arithmetic in `dtype`; with `matrix_units` the tensor or matrix cores are
  /// used if the GPU has them for this type, else the vector units. Half types never count slower
  /// than fp32: if the hardware is slower (consumer Pascal), libraries convert.
  FlopPerSecond peak(DType dtype, bool matrix_units) const;

  /// Memory that programs see; if this board's figure is unknown, the architecture's share counts.
  Bytes usable_memory() const;
};

/// A dense peak as GPU files and reports name it.
struct GpuPeak {
  const char *key, *title;
  std::optional<double> Gpu::Peaks::*value;
};

inline constexpr GpuPeak kGpuPeaks[] = {
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

/// Whether a library's matrix product in `dtype` runs on tensor or matrix cores. Half types do;
/// fp32 does on AMD (exact fp32 matrix cores), not on NVIDIA: TF32 for matrix products is off in
/// PyTorch by default.
bool gemm_uses_matrix_units(DType dtype, const Gpu& gpu);

/// Whether the GPU's matrix units have the type. Only types of 8 and 4 bits can be missing:
/// libraries convert the others or compute them elsewhere.
bool has_matrix_units(DType dtype, const Gpu& gpu);

/// One sentence for each substitute that the GPU's prices rely on: figures of another architecture
/// or link. Empty for every GPU of the data folder.
std::vector<std::string> stand_ins(const Gpu& gpu);

/// One GPU file. Its architecture is looked up next to the folder of the file, in
/// `../architectures`, if that folder is called `gpus`, as in the data folder; else in
/// `architectures`. Errors name the missing or odd field. An architecture without a file is an
/// error, unless the GPU file names a substitute (`like`).
Result<Gpu> read_gpu(const std::filesystem::path& file,
                     const std::filesystem::path& architectures = {});

/// Every GPU of a folder, sorted by name; their architectures are in `../architectures`.
/// An alias that two GPUs claim is an error.
Result<std::vector<Gpu>> read_gpus(const std::filesystem::path& folder);

/// Says why a name that contains a board's name is no whole board: "a MIG slice, which ..."; a
/// vGPU, a laptop GPU, a Max-Q design. Empty for other names. An AMD virtual function ("AMD
/// Instinct MI300X VF") is a whole board and found as such.
std::string_view why_not_a_board(std::string_view name);

/// By name, alias or title, ignoring case; by some of their words ("4090", "A100 80GB"), of several
/// boards the usual one (`Gpu::taken_for`); or, if `name` is a path to a file, that file, whose
/// architecture may be next to `folder`. An unknown name is an error that lists the nearest known
/// ones, one that fits several boards lists these.
Result<Gpu> find_gpu(std::string_view name, const std::filesystem::path& folder);

/// The same for names from a file: a path is an unknown name, so that the writer of a table cannot
/// choose what its reader opens.
Result<Gpu> find_known_gpu(std::string_view name, const std::filesystem::path& folder);

/// Position of a GPU among these by name, alias or title, ignoring case; opens no file. An unknown
/// name is an error that lists the nearest known ones.
Result<std::size_t> find_gpu(std::string_view name, std::span<const Gpu> gpus);

}  // namespace perfmodel
