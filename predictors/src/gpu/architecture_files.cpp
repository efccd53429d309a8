#include "architecture_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "choice.hpp"
#include "core/edit_distance.hpp"
#include "files/json_file.hpp"
#include "files/lower_case.hpp"

namespace perfmodel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kVendors[] = {"nvidia", "amd"};
constexpr std::size_t kMostTiles = 64;

double number_in(ObjectReader& reader, const char* key, double least, double most,
                 const char* wanted) {
  const double number = reader.positive(key);
  if (number < least || number > most) reader.reject(key, wanted);
  return number;
}

double share_in(ObjectReader& reader, const char* key) {
  return number_in(reader, key, 1e-3, 1, "a share from 0.001 to 1");
}

int log2_side(ObjectReader& reader, const char* key) {
  const auto side = static_cast<unsigned>(reader.positive_integer(key));
  if (side < 8 || side > 1024 || !std::has_single_bit(side)) {
    reader.reject(key, "a power of two from 8 to 1024");
    return 0;
  }
  return std::countr_zero(side);
}

std::vector<GemmTile> tiles_in(const Json& list, const std::string& pointer,
                               std::optional<Error>& error) {
  std::vector<GemmTile> tiles;
  for (std::size_t i = 0; i < list.size() && !error; ++i) {
    ObjectReader reader(list[i], pointer + "/" + std::to_string(i), error);
    GemmTile tile;
    tile.log2_m = log2_side(reader, "m");
    tile.log2_n = log2_side(reader, "n");
    tile.efficiency = share_in(reader, "efficiency");
    tile.alone = share_in(reader, "alone");
    reader.finish();
    tiles.push_back(tile);
  }
  return tiles;
}

/// One figure of the files: how its `value` is read, and how it comes from another architecture.
struct Fact {
  const char* key;
  void (*read)(ObjectReader& fact, Architecture& made, std::optional<Error>& error);
  void (*copy)(const Architecture& from, Architecture& to);
};

constexpr const char* kValue = "value";

template <auto kMember>
constexpr Fact share(const char* key) {
  return {key,
          [](ObjectReader& fact, Architecture& made, std::optional<Error>&) {
            made.*kMember = share_in(fact, kValue);
          },
          [](const Architecture& from, Architecture& to) { to.*kMember = from.*kMember; }};
}

template <auto kMember>
constexpr Fact number(const char* key) {
  return {key,
          [](ObjectReader& fact, Architecture& made, std::optional<Error>&) {
            made.*kMember = number_in(fact, kValue, 1e-3, 1e6, "a number from 0.001 to 1e6");
          },
          [](const Architecture& from, Architecture& to) { to.*kMember = from.*kMember; }};
}

/// `null` where nothing was measured, 0 in memory.
template <auto kMember>
constexpr Fact number_or_none(const char* key) {
  return {key,
          [](ObjectReader& fact, Architecture& made, std::optional<Error>&) {
            made.*kMember = fact.optional_positive(kValue).value_or(0);
          },
          [](const Architecture& from, Architecture& to) { to.*kMember = from.*kMember; }};
}

template <auto kMember>
constexpr Fact bytes(const char* key) {
  return {key,
          [](ObjectReader& fact, Architecture& made, std::optional<Error>&) {
            made.*kMember = fact.whole_number(kValue, 0);
          },
          [](const Architecture& from, Architecture& to) { to.*kMember = from.*kMember; }};
}

template <auto kMember>
constexpr Fact flag(const char* key) {
  return {key,
          [](ObjectReader& fact, Architecture& made, std::optional<Error>&) {
            made.*kMember = fact.boolean(kValue);
          },
          [](const Architecture& from, Architecture& to) { to.*kMember = from.*kMember; }};
}

template <auto kMember, bool kMayBeNone>
constexpr Fact tiles(const char* key) {
  return {key,
          [](ObjectReader& fact, Architecture& made, std::optional<Error>& error) {
            const Json* list = fact.array(kValue, kMayBeNone);
            (made.*kMember).clear();
            if (!list) return;
            if (list->empty() || list->size() > kMostTiles) {
              fact.reject(kValue, fmt::format("1 to {} tiles", kMostTiles));
            }
            made.*kMember = tiles_in(*list, fact.pointer(kValue), error);
          },
          [](const Architecture& from, Architecture& to) { to.*kMember = from.*kMember; }};
}

GemmTile turned(GemmTile tile) {
  std::swap(tile.log2_m, tile.log2_n);
  return tile;
}

std::vector<GemmTile> both_ways(ObjectReader& set, std::optional<Error>& error) {
  std::vector<GemmTile> tiles;
  const Json* list = set.array("tiles");
  if (!list) return tiles;
  if (list->empty() || list->size() > kMostTiles) {
    set.reject("tiles", fmt::format("1 to {} tiles", kMostTiles));
  }
  for (std::size_t i = 0; i < list->size() && !error; ++i) {
    ObjectReader reader((*list)[i], set.pointer("tiles") + "/" + std::to_string(i), error);
    const GemmTile tile{.log2_m = log2_side(reader, "m"),
                        .log2_n = log2_side(reader, "n"),
                        .efficiency = share_in(reader, "efficiency")};
    reader.finish();
    tiles.push_back(tile);
    if (tile.log2_m != tile.log2_n) tiles.push_back(turned(tile));
  }
  return tiles;
}

MatrixGemm matrix_gemm_in(const Json& object, const std::string& pointer,
                          std::optional<Error>& error) {
  constexpr double kLeast = 1e-3, kMost = 1e6;
  const char* wanted = "a number from 0.001 to 1e6";
  ObjectReader set(object, pointer, error);
  MatrixGemm made;
  made.tiles = both_ways(set, error);
  made.l2_bytes_per_clock_per_sm =
      number_in(set, "l2_bytes_per_clock_per_sm", kLeast, kMost, wanted);
  made.store_bytes_per_clock_per_sm =
      number_in(set, "store_bytes_per_clock_per_sm", kLeast, kMost, wanted);
  made.latency_us = number_in(set, "latency_us", kLeast, kMost, wanted);
  made.dram_share = share_in(set, "dram_share");
  made.picojoule_per_flop = number_in(set, "picojoule_per_flop", kLeast, kMost, wanted);
  made.reuse_distance = set.optional_positive("reuse_distance").value_or(0);
  made.splits_k = set.boolean("splits_k");
  made.always_hot = set.boolean("always_hot");
  set.finish();
  return made;
}

template <auto kMember>
constexpr Fact matrix_gemm(const char* key) {
  return {key,
          [](ObjectReader& fact, Architecture& made, std::optional<Error>& error) {
            const Json* set = fact.object(kValue, true);
            if (!set) return;
            made.*kMember = matrix_gemm_in(*set, fact.pointer(kValue), error);
          },
          [](const Architecture& from, Architecture& to) { to.*kMember = from.*kMember; }};
}

std::optional<QuantizeKernel> quantize_kernel_in(ObjectReader& set, const char* key,
                                                 std::optional<Error>& error) {
  constexpr double kLeast = 1e-3, kMost = 1e3;
  const char* wanted = "a number from 0.001 to 1000";
  const Json* object = set.object(key, true);
  if (!object) return std::nullopt;
  ObjectReader reader(*object, set.pointer(key), error);
  const QuantizeKernel made{.latency_us = number_in(reader, "latency_us", kLeast, kMost, wanted),
                            .elements_per_clock_per_sm = number_in(
                                reader, "elements_per_clock_per_sm", kLeast, kMost, wanted),
                            .dram_share = share_in(reader, "dram_share")};
  reader.finish();
  return made;
}

void read_tf32_shares(ObjectReader& fact, Architecture& made, std::optional<Error>& error) {
  const Json* object = fact.object(kValue, true);
  if (!object) return;
  ObjectReader set(*object, fact.pointer(kValue), error);
  made.tf32_gemm_shares = {.across = share_in(set, "across"),
                           .unaligned = share_in(set, "unaligned"),
                           .unaligned_sums = share_in(set, "unaligned_sums")};
  set.finish();
}

void read_quantize(ObjectReader& fact, Architecture& made, std::optional<Error>& error) {
  const Json* object = fact.object(kValue, true);
  if (!object) return;
  ObjectReader set(*object, fact.pointer(kValue), error);
  QuantizeKernels& to = made.quantize;
  to.fp8_tensor = quantize_kernel_in(set, "fp8_tensor", error);
  to.fp8_token = quantize_kernel_in(set, "fp8_token", error);
  to.fp8_block = quantize_kernel_in(set, "fp8_block", error);
  to.fp4 = quantize_kernel_in(set, "fp4", error);
  set.finish();
}

AttentionGeneration generation_in(ObjectReader& reader, const char* key) {
  return static_cast<AttentionGeneration>(choice(reader, key, kAttentionGenerationNames));
}

double tile_side(ObjectReader& reader, const char* key) {
  const int side = reader.positive_integer(key);
  if (side > 1024) reader.reject(key, "an integer from 1 to 1024");
  return side;
}

std::vector<AttentionTile> attention_tiles_in(ObjectReader& kernel, std::optional<Error>& error) {
  std::vector<AttentionTile> tiles;
  const Json* list = kernel.array("tiles");
  if (!list) return tiles;
  if (list->empty() || list->size() > kMostTiles) {
    kernel.reject("tiles", fmt::format("1 to {} tiles", kMostTiles));
  }
  for (std::size_t i = 0; i < list->size() && !error; ++i) {
    ObjectReader reader((*list)[i], kernel.pointer("tiles") + "/" + std::to_string(i), error);
    const AttentionTile tile{.head_dim = tile_side(reader, "head_dim"),
                             .q = tile_side(reader, "q"),
                             .k = tile_side(reader, "k"),
                             .share = share_in(reader, "share")};
    if (!tiles.empty() && tile.head_dim <= tiles.back().head_dim) {
      reader.reject("head_dim", "a larger head size than that of the tile before");
    }
    reader.finish();
    tiles.push_back(tile);
  }
  return tiles;
}

AttentionKernel attention_kernel_in(const Json& object, const std::string& pointer,
                                    std::optional<Error>& error) {
  constexpr double kLeast = 1e-3, kMost = 1e3;
  const char* wanted = "a number from 0.001 to 1000";
  ObjectReader reader(object, pointer, error);
  AttentionKernel made;
  made.name = generation_in(reader, "name");
  if (reader.has("backward")) made.backward = reader.boolean("backward");
  made.paged = reader.boolean("paged");
  if (reader.has("without_mask")) made.without_mask = reader.boolean("without_mask");
  made.measured = reader.boolean("measured");
  made.launch_us = number_in(reader, "launch_us", kLeast, kMost, wanted);
  made.block_us = number_in(reader, "block_us", kLeast, kMost, wanted);
  made.exposed = number_in(reader, "exposed", kLeast, kMost, wanted);
  made.alone = share_in(reader, "alone");
  made.split_us = reader.optional_positive("split_us").value_or(0);
  made.pack_gqa = reader.boolean("pack_gqa");
  if (made.backward) made.q_sums = number_in(reader, "q_sums", kLeast, kMost, wanted);
  made.tiles = attention_tiles_in(reader, error);
  reader.finish();
  return made;
}

void read_attention(ObjectReader& fact, Architecture& made, std::optional<Error>& error) {
  const Json* object = fact.object(kValue, true);
  if (!object) return;
  ObjectReader set(*object, fact.pointer(kValue), error);
  AttentionKernels& kernels = made.attention_kernels;
  kernels.framework = generation_in(set, "framework");
  const Json* list = set.array("kernels");
  for (std::size_t i = 0; list && i < list->size() && !error; ++i) {
    kernels.list.push_back(
        attention_kernel_in((*list)[i], set.pointer("kernels") + "/" + std::to_string(i), error));
  }
  const auto is_framework = [&](const AttentionKernel& kernel) {
    return kernel.name == kernels.framework && !kernel.backward;
  };
  if (!error && std::ranges::none_of(kernels.list, is_framework)) {
    set.reject("framework", "the name of one of the kernels, forward");
  }
  set.finish();
}

/// Another architecture's kernels were not measured on this one.
void copy_attention(const Architecture& from, Architecture& to) {
  to.attention_kernels = from.attention_kernels;
  for (AttentionKernel& kernel : to.attention_kernels.list) kernel.measured = false;
}

std::vector<GemmTile> experts_tiles_in(ObjectReader& kernel, std::optional<Error>& error) {
  std::vector<GemmTile> tiles;
  const Json* list = kernel.array("tiles");
  if (!list) return tiles;
  if (list->empty() || list->size() > kMostTiles) {
    kernel.reject("tiles", fmt::format("1 to {} tiles", kMostTiles));
  }
  for (std::size_t i = 0; i < list->size() && !error; ++i) {
    ObjectReader reader((*list)[i], kernel.pointer("tiles") + "/" + std::to_string(i), error);
    tiles.push_back({.log2_m = log2_side(reader, "m"),
                     .log2_n = log2_side(reader, "n"),
                     .efficiency = share_in(reader, "efficiency")});
    reader.finish();
  }
  return tiles;
}

ExpertsKernel experts_kernel_in(const Json& object, const std::string& pointer,
                                std::optional<Error>& error) {
  constexpr double kLeast = 1e-3, kMost = 1e3;
  const char* wanted = "a number from 0.001 to 1000";
  ObjectReader reader(object, pointer, error);
  ExpertsKernel made;
  made.name = static_cast<ExpertsLibrary>(choice(reader, "name", kExpertsLibraryNames));
  made.measured = reader.boolean("measured");
  made.launch_us = number_in(reader, "launch_us", kLeast, kMost, wanted);
  made.expert_us = number_in(reader, "expert_us", kLeast, kMost, wanted);
  made.dram_share = share_in(reader, "dram_share");
  made.l2_bytes_per_clock_per_sm =
      number_in(reader, "l2_bytes_per_clock_per_sm", kLeast, kMost, wanted);
  made.vector_share = share_in(reader, "vector_share");
  made.reuse_distance = reader.optional_positive("reuse_distance").value_or(0);
  made.permutes = reader.boolean("permutes");
  made.tile_by_tokens = reader.boolean("tile_by_tokens");
  made.tiles = experts_tiles_in(reader, error);
  reader.finish();
  return made;
}

void read_experts(ObjectReader& fact, Architecture& made, std::optional<Error>& error) {
  const Json* list = fact.array(kValue, true);
  for (std::size_t i = 0; list && i < list->size() && !error; ++i) {
    made.experts_kernels.push_back(
        experts_kernel_in((*list)[i], fact.pointer(kValue) + "/" + std::to_string(i), error));
  }
}

/// Another architecture's kernels were not measured on this one.
void copy_experts(const Architecture& from, Architecture& to) {
  to.experts_kernels = from.experts_kernels;
  for (ExpertsKernel& kernel : to.experts_kernels) kernel.measured = false;
}

void read_linear_attention(ObjectReader& fact, Architecture& made, std::optional<Error>& error) {
  constexpr double kLeast = 1e-3, kMost = 1e3;
  const char* wanted = "a number from 0.001 to 1000";
  const Json* set = fact.object(kValue, true);
  if (!set) return;
  ObjectReader rates(*set, fact.pointer(kValue), error);
  const auto number = [&](const char* key) { return number_in(rates, key, kLeast, kMost, wanted); };
  made.linear_attention = {
      .measured = rates.boolean("measured"),
      .convolution_launch_us = number("convolution_launch_us"),
      .convolution_elements_per_clock_per_sm = number("convolution_elements_per_clock_per_sm"),
      .convolution_dram_share = share_in(rates, "convolution_dram_share"),
      .launch_us = number("launch_us"),
      .first_chunk_us = number("first_chunk_us"),
      .chunk_us = number("chunk_us"),
      .states_per_sm = number("states_per_sm"),
      .unit_us = number("unit_us"),
      .dram_share = share_in(rates, "dram_share")};
  rates.finish();
}

/// Another architecture's kernels were not measured on this one.
void copy_linear_attention(const Architecture& from, Architecture& to) {
  to.linear_attention = from.linear_attention;
  if (to.linear_attention) to.linear_attention->measured = false;
}

RecurrentStepCycles step_cycles_in(ObjectReader& set, const char* key,
                                   std::optional<Error>& error) {
  constexpr double kMost = 1e7;
  const Json* object = set.object(key);
  if (!object) return {};
  ObjectReader cycles(*object, set.pointer(key), error);
  const RecurrentStepCycles made{
      .cell = number_in(cycles, "cell", 0, kMost, "a number from 0 to 1e7"),
      .depth = number_in(cycles, "depth", 0, kMost, "a number from 0 to 1e7")};
  cycles.finish();
  return made;
}

void read_recurrent_cycles(ObjectReader& fact, Architecture& made, std::optional<Error>& error) {
  const Json* set = fact.object(kValue, true);
  if (!set) return;
  ObjectReader steps(*set, fact.pointer(kValue), error);
  RecurrentCycles cycles{.measured = steps.boolean("measured")};
  cycles.forward = step_cycles_in(steps, "forward", error);
  cycles.backward_data = step_cycles_in(steps, "backward_data", error);
  made.recurrent_cycles = cycles;
  steps.finish();
}

/// Another architecture's steps were not measured on this one.
void copy_recurrent_cycles(const Architecture& from, Architecture& to) {
  to.recurrent_cycles = from.recurrent_cycles;
  if (to.recurrent_cycles) to.recurrent_cycles->measured = false;
}

void read_elementwise(ObjectReader& fact, Architecture& made, std::optional<Error>& error) {
  constexpr double kLeast = 1e-3, kMost = 1e3;
  const char* wanted = "a number from 0.001 to 1000";
  const Json* set = fact.object(kValue);
  if (!set) return;
  ObjectReader rates(*set, fact.pointer(kValue), error);
  ElementwiseRates& to = made.elementwise_rates;
  to.contiguous_bf16 = rates.optional_positive("contiguous_bf16").value_or(0);
  to.broadcast = number_in(rates, "broadcast", kLeast, kMost, wanted);
  to.strided = number_in(rates, "strided", kLeast, kMost, wanted);
  to.mixed_types = number_in(rates, "mixed_types", kLeast, kMost, wanted);
  to.upsample_3d = rates.optional_positive("upsample_3d").value_or(0);
  rates.finish();
}

void read_index_rates(ObjectReader& fact, Architecture& made, std::optional<Error>& error) {
  constexpr double kLeast = 1e-3, kMost = 1e6;
  const char* wanted = "a number from 0.001 to 1e6";
  const Json* set = fact.object(kValue);
  if (!set) return;
  ObjectReader rates(*set, fact.pointer(kValue), error);
  IndexRates& to = made.index_rates;
  to.adds = number_in(rates, "adds", kLeast, kMost, wanted);
  to.half_adds = number_in(rates, "half_adds", kLeast, kMost, wanted);
  to.hot_row = number_in(rates, "hot_row", kLeast, kMost, wanted);
  to.sorted_warp = number_in(rates, "sorted_warp", kLeast, kMost, wanted);
  to.block = rates.optional_positive("block").value_or(0);
  rates.finish();
}

int blocks_in(ObjectReader& reader, const char* key) {
  const int blocks = reader.positive_integer(key);
  if (blocks > 1024) reader.reject(key, "an integer from 1 to 1024");
  return blocks;
}

/// Chips of one generation can differ in it (8.0 and 8.6 of Ampere): `of_targets` has those that
/// do.
void read_blocks(ObjectReader& fact, Architecture& made, std::optional<Error>& error) {
  made.max_blocks_per_sm = blocks_in(fact, kValue);
  const Json* others = fact.has("of_targets") ? fact.object("of_targets") : nullptr;
  if (!others) return;
  ObjectReader of_targets(*others, fact.pointer("of_targets"), error);
  for (const std::string& target : made.targets) {
    if (!of_targets.has(target.c_str())) continue;
    made.max_blocks_of_targets[target] = blocks_in(of_targets, target.c_str());
  }
  of_targets.finish();
}

void read_generation(ObjectReader& fact, Architecture& made, std::optional<Error>&) {
  made.nccl_generation = static_cast<NcclGeneration>(choice(fact, kValue, kNcclGenerationNames));
}

void read_persistent(ObjectReader& fact, Architecture& made, std::optional<Error>&) {
  made.persistent_recurrent =
      static_cast<PersistentRecurrent>(choice(fact, kValue, kPersistentRecurrentNames));
}

void read_measured(ObjectReader& fact, Architecture& made, std::optional<Error>& error) {
  const Json* list = fact.array(kValue);
  for (std::size_t i = 0; list && i < list->size() && !error; ++i) {
    ObjectReader item((*list)[i], fact.pointer(kValue) + "/" + std::to_string(i), error);
    MeasuredKernels measured{.kernels = item.plain_name("kernels"), .gpus = item.strings("gpus")};
    if (!error && measured.gpus.empty()) item.reject("gpus", "at least one GPU");
    item.finish();
    made.measured_kernels.push_back(std::move(measured));
  }
}

using A = Architecture;
constexpr Fact kFacts[] = {
    share<&A::hbm_share>("hbm_share"),
    share<&A::gddr_share>("gddr_share"),
    share<&A::unchecked_gddr_share>("unchecked_gddr_share"),
    number<&A::l2_bytes_per_clock_per_sm>("l2_bytes_per_clock_per_sm"),
    number_or_none<&A::last_level_bytes_per_clock_per_sm>("last_level_bytes_per_clock_per_sm"),
    number<&A::fp32_picojoule_per_flop>("fp32_picojoule_per_flop"),
    number<&A::dram_picojoule_per_byte>("dram_picojoule_per_byte"),
    share<&A::idle_power_share>("idle_power_share"),
    bytes<&A::context_bytes>("context_bytes"),
    bytes<&A::blas_workspace_bytes>("blas_workspace_bytes"),
    bytes<&A::convolution_workspace_bytes>("convolution_workspace_bytes"),
    bytes<&A::collective_buffer_bytes>("collective_buffer_bytes"),
    share<&A::usable_memory_share>("usable_memory_share"),
    {"max_blocks_per_sm", read_blocks,
     [](const A& from, A& to) { to.max_blocks_per_sm = from.max_blocks_per_sm; }},
    tiles<&A::gemm_tiles, false>("gemm_tiles"),
    tiles<&A::batched_gemm_tiles, true>("batched_gemm_tiles"),
    tiles<&A::matrix_gemm_tiles, false>("matrix_gemm_tiles"),
    matrix_gemm<&A::matrix_gemm>("matrix_gemm"),
    matrix_gemm<&A::matrix_gemm_fp8>("matrix_gemm_fp8"),
    matrix_gemm<&A::matrix_gemm_fp8_token>("matrix_gemm_fp8_token"),
    matrix_gemm<&A::matrix_gemm_fp8_block>("matrix_gemm_fp8_block"),
    matrix_gemm<&A::matrix_gemm_fp4>("matrix_gemm_fp4"),
    number_or_none<&A::unaligned_half_gemm_flop_per_clock_per_sm>(
        "unaligned_half_gemm_flop_per_clock_per_sm"),
    {"tf32_gemm_shares", read_tf32_shares,
     [](const A& from, A& to) { to.tf32_gemm_shares = from.tf32_gemm_shares; }},
    {"quantize", read_quantize, [](const A& from, A& to) { to.quantize = from.quantize; }},
    {"elementwise_rates", read_elementwise,
     [](const A& from, A& to) { to.elementwise_rates = from.elementwise_rates; }},
    {"index_rates", read_index_rates,
     [](const A& from, A& to) { to.index_rates = from.index_rates; }},
    number_or_none<&A::norm_row_clocks>("norm_row_clocks"),
    number_or_none<&A::half_norm_row_clocks>("half_norm_row_clocks"),
    number_or_none<&A::channel_element_clocks>("channel_element_clocks"),
    number_or_none<&A::convolution_layout_rate>("convolution_layout_rate"),
    share<&A::attention_share>("attention_share"),
    {"attention_kernels", read_attention, copy_attention},
    {"experts_kernels", read_experts, copy_experts},
    {"linear_attention", read_linear_attention, copy_linear_attention},
    {"recurrent_cycles", read_recurrent_cycles, copy_recurrent_cycles},
    {"persistent_recurrent", read_persistent,
     [](const A& from, A& to) { to.persistent_recurrent = from.persistent_recurrent; }},
    flag<&A::recurrent_measured>("recurrent_measured"),
    flag<&A::slow_recurrent_batches>("slow_recurrent_batches"),
    {"nccl_generation", read_generation,
     [](const A& from, A& to) { to.nccl_generation = from.nccl_generation; }},
    // Kernels measured on another architecture were not measured on this one.
    {"measured_kernels", read_measured, [](const A&, A&) {}},
};

}  // namespace

struct ArchitectureFiles::Parsed {
  struct Borrowed {
    const Fact* fact;
    std::string from;
  };
  Architecture own;
  std::vector<Borrowed> borrowed;  // taken from these files
};

namespace {

using Parsed = ArchitectureFiles::Parsed;

Parsed parse_architecture(const Json& document, std::optional<Error>& error,
                          const ArchitectureFiles& files) {
  Parsed parsed;
  ObjectReader root(document, "", error);
  root.expect_schema(schemas::kArchitecture);
  parsed.own.name = root.plain_name("name");
  parsed.own.vendor = kVendors[choice(root, "vendor", kVendors)];
  parsed.own.targets = root.strings("targets");
  const Json* facts = root.object("facts");
  if (facts) {
    ObjectReader all(*facts, "/facts", error);
    for (const Fact& fact : kFacts) {
      const Json* json = all.object(fact.key);
      if (!json) continue;
      ObjectReader reader(*json, all.pointer(fact.key), error);
      if (reader.string("source").empty()) reader.reject("source", "where the figure is from");
      if (reader.has("as")) {
        std::string from = reader.plain_name("as");
        if (!error && !files.has(from)) {
          reader.fail_at(reader.pointer("as"), "a known architecture",
                         found(Json(from)) + files.nearest(from));
        }
        parsed.borrowed.push_back({&fact, std::move(from)});
      } else {
        fact.read(reader, parsed.own, error);
      }
      reader.finish();
    }
    all.finish();
  }
  root.finish();
  return parsed;
}

Result<Parsed> parse_file(const fs::path& file, const ArchitectureFiles& files) {
  return read_json_file(file, "architecture file",
                        [&](const Json& document, std::optional<Error>& error) {
                          return parse_architecture(document, error, files);
                        });
}

Result<Architecture> complete(Parsed parsed, const fs::path& file, const ArchitectureFiles& files) {
  for (const auto& [fact, from] : parsed.borrowed) {
    const auto other = files.parsed(from);
    if (!other) return Unexpected{other.error()};
    const auto& lent = (*other)->borrowed;
    if (std::ranges::find(lent, fact, &Parsed::Borrowed::fact) != lent.end()) {
      return Unexpected{Error{.code = ErrorCode::kFormat,
                              .message = "expected an architecture with a value of its own, found "
                                         "\"" +
                                         from + "\", which takes that of another",
                              .file = file,
                              .json_pointer = std::string("/facts/") + fact->key + "/as"}};
    }
    fact->copy((*other)->own, parsed.own);
  }
  return std::move(parsed.own);
}

Result<Architecture> read_file(const fs::path& file, const ArchitectureFiles& files) {
  auto parsed = parse_file(file, files);
  if (!parsed) return Unexpected{parsed.error()};
  return complete(std::move(*parsed), file, files);
}

}  // namespace

fs::path architectures_beside(const fs::path& gpu_folder) {
  const char* name = "architectures";
  const fs::path as_written = (gpu_folder / ".." / name).lexically_normal();
  const fs::path followed = gpu_folder / ".." / name;  // for a link: next to its target
  std::error_code ignored;
  return !fs::is_directory(as_written, ignored) && fs::is_directory(followed, ignored) ? followed
                                                                                       : as_written;
}

fs::path architectures_for(const fs::path& gpu_file, const fs::path& otherwise) {
  const fs::path folder = gpu_file.parent_path();
  return folder.filename() == "gpus" || otherwise.empty() ? architectures_beside(folder)
                                                          : otherwise;
}

fs::path ArchitectureFiles::file_of(std::string_view name) const {
  return folder_ / (std::string(name) + ".json");
}

bool ArchitectureFiles::has(std::string_view name) const {
  std::error_code ignored;
  return is_plain_name(name) && fs::is_regular_file(file_of(name), ignored);
}

std::string ArchitectureFiles::nearest(std::string_view name) const {
  const auto files = json_files(folder_, "architecture files");
  if (!files || files->empty()) {
    std::error_code ignored;
    const bool is_missing = !fs::exists(folder_, ignored);
    return "; none is known in " + folder_.string() +
           (is_missing ? " (data of version 0.1.0 has no such folder: take that of this version)"
                       : "");
  }
  const std::string wanted = lower_case(name);
  std::vector<std::pair<std::size_t, std::string>> scored;
  for (const fs::path& file : *files) {
    std::string known = file.stem().string();
    const std::size_t distance = known.starts_with(wanted) ? 0 : edit_distance(wanted, known);
    if (distance <= wanted.size() / 2) scored.emplace_back(distance, std::move(known));
  }
  if (scored.empty()) return fmt::format("; none of the {} known ones is like it", files->size());
  return "; the nearest known are " + nearest_three(std::move(scored));
}

Result<std::shared_ptr<const Parsed>> ArchitectureFiles::parsed(const std::string& name) const {
  auto known = parsed_.find(name);
  if (known == parsed_.end()) {
    auto file = parse_file(file_of(name), *this);
    if (!file) return Unexpected{file.error()};
    known = parsed_.emplace(name, std::make_shared<const Parsed>(std::move(*file))).first;
  }
  return known->second;
}

Result<Architecture> ArchitectureFiles::read(const std::string& name) {
  auto known = read_.find(name);
  if (known == read_.end()) {
    const fs::path file = file_of(name);
    const auto own = parsed(name);
    if (!own) return Unexpected{own.error()};
    auto architecture = complete(**own, file, *this);
    if (!architecture) return architecture;
    if (architecture->name != name) {
      return Unexpected{Error{.message = "expected the name of the file, \"" + name +
                                         "\", found \"" + architecture->name + "\"",
                              .file = file,
                              .json_pointer = "/name"}};
    }
    known = read_.emplace(name, std::move(*architecture)).first;
  }
  return known->second;
}

Result<Architecture> read_architecture(const fs::path& file, const fs::path& others) {
  return read_file(file, ArchitectureFiles(others.empty() ? file.parent_path() : others));
}

Result<Architecture> find_architecture(std::string_view name, const fs::path& folder) {
  ArchitectureFiles files(folder);
  if (files.has(name)) return files.read(std::string(name));
  return fail(ErrorCode::kUnknownName,
              fmt::format("expected the name of a known architecture, found \"{}\"{}", name,
                          files.nearest(name)));
}

Result<std::vector<Architecture>> read_architectures(const fs::path& folder) {
  const auto found = json_files(folder, "architecture files");
  if (!found) return Unexpected{found.error()};
  ArchitectureFiles files(folder);
  std::vector<Architecture> architectures;
  for (const fs::path& file : *found) {
    auto read = files.read(file.stem().string());
    if (!read) return Unexpected{read.error()};
    architectures.push_back(std::move(*read));
  }
  std::ranges::sort(architectures, {}, &Architecture::name);
  return architectures;
}

}  // namespace perfmodel
