#include "architecture_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/each_name.hpp"
#include "choice.hpp"
#include "core/edit_distance.hpp"
#include "files/json_file.hpp"
#include "files/lower_case.hpp"

namespace perfmodel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kVendors[] = {"nvidia", "amd"};
constexpr std::size_t kMostTiles = 64;

using MaybeError = std::optional<Error>;

double number_in(ObjectReader& reader, const char* key, double least, double most,
                 const char* wanted) {
  const double number = reader.positive(key);
  if (number < least || number > most) reader.reject(key, wanted);
  return number;
}
double share_in(ObjectReader& reader, const char* key) {
  return number_in(reader, key, 1e-3, 1, "a share from 0.001 to 1");
}
double figure_in(ObjectReader& reader, const char* key) {
  return number_in(reader, key, 1e-3, 1e3, "a number from 0.001 to 1000");
}
double rate_in(ObjectReader& reader, const char* key) {
  return number_in(reader, key, 1e-3, 1e6, "a number from 0.001 to 1e6");
}
/// `null` where nothing was measured, 0 in memory.
double number_or_none_in(ObjectReader& reader, const char* key) {
  return reader.optional_positive(key).value_or(0);
}
int small_integer_in(ObjectReader& reader, const char* key) {
  const int number = reader.positive_integer(key);
  if (number > 1024) reader.reject(key, "an integer from 1 to 1024");
  return number;
}
int log2_side_in(ObjectReader& reader, const char* key) {
  const auto side = static_cast<unsigned>(reader.positive_integer(key));
  if (side < 8 || side > 1024 || !std::has_single_bit(side)) {
    reader.reject(key, "a power of two from 8 to 1024");
    return 0;
  }
  return std::countr_zero(side);
}
template <class Enum>
Enum choice_in(ObjectReader& reader, const char* key, const auto& names) {
  return static_cast<Enum>(choice(reader, key, names));
}

/// The type that `read` makes of an object of the file.
template <class Read>
using Made = std::invoke_result_t<Read, ObjectReader&, MaybeError&>;

template <class Read>
Made<Read> object_in(const Json& object, const std::string& pointer, MaybeError& error, Read read) {
  ObjectReader reader(object, pointer, error);
  auto made = read(reader, error);
  reader.finish();
  return made;
}

enum class Null : bool { kRefused, kAllowed };

/// An object under a key; made from nothing if the file says null.
template <class Read>
Made<Read> set_in(ObjectReader& reader, const char* key, MaybeError& error, Read read,
                  Null null = Null::kRefused) {
  const Json* object = reader.object(key, null == Null::kAllowed);
  return object ? object_in(*object, reader.pointer(key), error, read) : Made<Read>{};
}

template <class Read>
std::vector<Made<Read>> list_in(ObjectReader& reader, const char* key, MaybeError& error, Read read,
                                Null null = Null::kRefused) {
  std::vector<Made<Read>> made;
  const Json* list = reader.array(key, null == Null::kAllowed);
  for (std::size_t i = 0; list && i < list->size() && !error; ++i) {
    made.push_back(
        object_in((*list)[i], reader.pointer(key) + "/" + std::to_string(i), error, read));
  }
  return made;
}

/// At least one, unless the file says null.
template <class Read>
std::vector<Made<Read>> tiles_in(ObjectReader& reader, const char* key, MaybeError& error,
                                 Read read, Null null = Null::kRefused) {
  const Json* list = reader.array(key, null == Null::kAllowed);
  if (list && (list->empty() || list->size() > kMostTiles)) {
    reader.reject(key, fmt::format("1 to {} tiles", kMostTiles));
  }
  return list_in(reader, key, error, read, null);
}

GemmTile library_tile(ObjectReader& reader, MaybeError&) {
  return {.log2_m = log2_side_in(reader, "m"),
          .log2_n = log2_side_in(reader, "n"),
          .efficiency = share_in(reader, "efficiency")};
}
GemmTile vector_tile(ObjectReader& reader, MaybeError& error) {
  GemmTile tile = library_tile(reader, error);
  tile.alone = share_in(reader, "alone");
  return tile;
}

MatrixGemm matrix_gemm_of(ObjectReader& set, MaybeError& error) {
  MatrixGemm made;
  for (const GemmTile& tile : tiles_in(set, "tiles", error, library_tile)) {
    made.tiles.push_back(tile);
    if (tile.log2_m == tile.log2_n) continue;
    GemmTile turned = tile;
    std::swap(turned.log2_m, turned.log2_n);
    made.tiles.push_back(turned);
  }
  made.l2_bytes_per_clock_per_sm = rate_in(set, "l2_bytes_per_clock_per_sm");
  made.store_bytes_per_clock_per_sm = rate_in(set, "store_bytes_per_clock_per_sm");
  made.latency_us = rate_in(set, "latency_us");
  made.dram_share = share_in(set, "dram_share");
  made.picojoule_per_flop = rate_in(set, "picojoule_per_flop");
  made.reuse_distance = number_or_none_in(set, "reuse_distance");
  PERFMODEL_READ(made, set.boolean, splits_k, always_hot);
  return made;
}

Tf32Shares tf32_shares(ObjectReader& set, MaybeError&) {
  return {.across = share_in(set, "across"),
          .unaligned = share_in(set, "unaligned"),
          .unaligned_sums = share_in(set, "unaligned_sums")};
}

std::optional<QuantizeKernel> quantize_kernel(ObjectReader& set, MaybeError&) {
  return QuantizeKernel{.latency_us = figure_in(set, "latency_us"),
                        .elements_per_clock_per_sm = figure_in(set, "elements_per_clock_per_sm"),
                        .dram_share = share_in(set, "dram_share")};
}
QuantizeKernels quantize_kernels(ObjectReader& set, MaybeError& error) {
  const auto kernel = [&](const char* key) {
    return set_in(set, key, error, quantize_kernel, Null::kAllowed);
  };
  return {.fp8_tensor = kernel("fp8_tensor"),
          .fp8_token = kernel("fp8_token"),
          .fp8_block = kernel("fp8_block"),
          .fp4 = kernel("fp4")};
}

AttentionKernel attention_kernel(ObjectReader& reader, MaybeError& error) {
  AttentionKernel made;
  made.name = choice_in<AttentionGeneration>(reader, "name", kAttentionGenerationNames);
  if (reader.has("backward")) made.backward = reader.boolean("backward");
  made.paged = reader.boolean("paged");
  if (reader.has("without_mask")) made.without_mask = reader.boolean("without_mask");
  made.measured = reader.boolean("measured");
  made.launch_us = figure_in(reader, "launch_us");
  made.block_us = figure_in(reader, "block_us");
  made.exposed = figure_in(reader, "exposed");
  made.alone = share_in(reader, "alone");
  made.split_us = number_or_none_in(reader, "split_us");
  made.pack_gqa = reader.boolean("pack_gqa");
  if (made.backward) made.q_sums = figure_in(reader, "q_sums");
  double largest = 0;
  made.tiles = tiles_in(reader, "tiles", error, [&](ObjectReader& tile, MaybeError&) {
    const AttentionTile read{.head_dim = 1.0 * small_integer_in(tile, "head_dim"),
                             .q = 1.0 * small_integer_in(tile, "q"),
                             .k = 1.0 * small_integer_in(tile, "k"),
                             .share = share_in(tile, "share")};
    if (read.head_dim <= largest) {
      tile.reject("head_dim", "a larger head size than the tile before");
    }
    largest = read.head_dim;
    return read;
  });
  return made;
}

AttentionKernels attention_kernels(ObjectReader& set, MaybeError& error) {
  AttentionKernels made;
  made.framework = choice_in<AttentionGeneration>(set, "framework", kAttentionGenerationNames);
  made.list = list_in(set, "kernels", error, attention_kernel);
  const auto is_framework = [&](const AttentionKernel& kernel) {
    return kernel.name == made.framework && !kernel.backward;
  };
  if (!error && std::ranges::none_of(made.list, is_framework)) {
    set.reject("framework", "the name of one of the kernels, forward");
  }
  return made;
}

ExpertsKernel experts_kernel(ObjectReader& reader, MaybeError& error) {
  ExpertsKernel made;
  made.name = choice_in<ExpertsLibrary>(reader, "name", kExpertsLibraryNames);
  made.measured = reader.boolean("measured");
  made.launch_us = figure_in(reader, "launch_us");
  made.expert_us = figure_in(reader, "expert_us");
  made.dram_share = share_in(reader, "dram_share");
  made.l2_bytes_per_clock_per_sm = figure_in(reader, "l2_bytes_per_clock_per_sm");
  made.vector_share = share_in(reader, "vector_share");
  made.reuse_distance = number_or_none_in(reader, "reuse_distance");
  PERFMODEL_READ(made, reader.boolean, permutes, tile_by_tokens);
  made.tiles = tiles_in(reader, "tiles", error, library_tile);
  return made;
}

std::optional<LinearAttentionRates> linear_attention(ObjectReader& rates, MaybeError&) {
  return LinearAttentionRates{.measured = rates.boolean("measured"),
                              .convolution_launch_us = figure_in(rates, "convolution_launch_us"),
                              .convolution_elements_per_clock_per_sm =
                                  figure_in(rates, "convolution_elements_per_clock_per_sm"),
                              .convolution_dram_share = share_in(rates, "convolution_dram_share"),
                              .launch_us = figure_in(rates, "launch_us"),
                              .first_chunk_us = figure_in(rates, "first_chunk_us"),
                              .chunk_us = figure_in(rates, "chunk_us"),
                              .states_per_sm = figure_in(rates, "states_per_sm"),
                              .unit_us = figure_in(rates, "unit_us"),
                              .dram_share = share_in(rates, "dram_share")};
}

RecurrentStepCycles step_cycles(ObjectReader& cycles, MaybeError&) {
  const auto number = [&](const char* key) {
    return number_in(cycles, key, 0, 1e7, "a number from 0 to 1e7");
  };
  return {.cell = number("cell"), .depth = number("depth")};
}
std::optional<RecurrentCycles> recurrent_cycles(ObjectReader& steps, MaybeError& error) {
  return RecurrentCycles{.measured = steps.boolean("measured"),
                         .forward = set_in(steps, "forward", error, step_cycles),
                         .backward_data = set_in(steps, "backward_data", error, step_cycles)};
}

ElementwiseRates elementwise_rates(ObjectReader& rates, MaybeError&) {
  return {.contiguous_bf16 = number_or_none_in(rates, "contiguous_bf16"),
          .broadcast = figure_in(rates, "broadcast"),
          .strided = figure_in(rates, "strided"),
          .mixed_types = figure_in(rates, "mixed_types"),
          .upsample_3d = number_or_none_in(rates, "upsample_3d")};
}

IndexRates index_rates(ObjectReader& rates, MaybeError&) {
  return {.adds = rate_in(rates, "adds"),
          .half_adds = rate_in(rates, "half_adds"),
          .hot_row = rate_in(rates, "hot_row"),
          .sorted_warp = rate_in(rates, "sorted_warp"),
          .block = number_or_none_in(rates, "block")};
}

std::optional<WarmInputs> warm_inputs(ObjectReader& set, MaybeError&) {
  WarmInputs made{.all_held = share_in(set, "all_held"),
                  .none_held = figure_in(set, "none_held"),
                  .elementwise = share_in(set, "elementwise"),
                  .softmax = share_in(set, "softmax"),
                  .norm = share_in(set, "norm")};
  if (made.none_held <= made.all_held) set.reject("none_held", "a number above all_held");
  return made;
}

MeasuredKernels measured_kernels(ObjectReader& item, MaybeError& error) {
  MeasuredKernels measured{.kernels = item.plain_name("kernels"), .gpus = item.strings("gpus")};
  if (!error && measured.gpus.empty()) item.reject("gpus", "at least one GPU");
  return measured;
}

using A = Architecture;

/// One figure of the files: how its `value` is read, and how it comes from another architecture.
struct Fact {
  const char* key;
  void (*read)(ObjectReader& fact, A& made, MaybeError& error);
  void (*copy)(const A& from, A& to);
};

constexpr const char* kValue = "value";

template <auto kMember>
constexpr void copy(const A& from, A& to) {
  to.*kMember = from.*kMember;
}
/// Kernels of another architecture were not measured on this one.
template <auto kMember>
void copy_unmeasured(const A& from, A& to) {
  to.*kMember = from.*kMember;
  if (to.*kMember) (to.*kMember)->measured = false;
}

/// A single value.
template <auto kMember, auto kRead>
constexpr Fact value(const char* key) {
  return {key,
          [](ObjectReader& fact, A& made, MaybeError&) { made.*kMember = kRead(fact, kValue); },
          copy<kMember>};
}
template <auto kMember>
constexpr Fact share(const char* key) {
  return value<kMember, share_in>(key);
}
template <auto kMember>
constexpr Fact number(const char* key) {
  return value<kMember, rate_in>(key);
}
template <auto kMember>
constexpr Fact number_or_none(const char* key) {
  return value<kMember, number_or_none_in>(key);
}
template <auto kMember>
constexpr Fact bytes(const char* key) {
  return value<kMember,
               [](ObjectReader& fact, const char* of) { return fact.whole_number(of, 0); }>(key);
}
template <auto kMember>
constexpr Fact flag(const char* key) {
  return value<kMember, [](ObjectReader& fact, const char* of) { return fact.boolean(of); }>(key);
}

/// Several values, in an object.
template <auto kMember, auto kRead, Null kNull>
constexpr Fact set(const char* key) {
  return {key,
          [](ObjectReader& fact, A& made, MaybeError& error) {
            made.*kMember = set_in(fact, kValue, error, kRead, kNull);
          },
          copy<kMember>};
}
template <auto kMember, auto kRead>
constexpr Fact measured_set(const char* key) {
  Fact fact = set<kMember, kRead, Null::kAllowed>(key);
  fact.copy = copy_unmeasured<kMember>;
  return fact;
}
template <auto kMember>
constexpr Fact matrix_gemm(const char* key) {
  return set<kMember,
             [](ObjectReader& fact, MaybeError& error) {
               return std::optional(matrix_gemm_of(fact, error));
             },
             Null::kAllowed>(key);
}
template <auto kMember, Null kNull>
constexpr Fact tiles(const char* key) {
  return {key,
          [](ObjectReader& fact, A& made, MaybeError& error) {
            made.*kMember = tiles_in(fact, kValue, error, vector_tile, kNull);
          },
          copy<kMember>};
}

/// Chips of one generation can differ in it (8.0 and 8.6 of Ampere): `of_targets` has those that
/// do.
void read_blocks(ObjectReader& fact, A& made, MaybeError& error) {
  made.max_blocks_per_sm = small_integer_in(fact, kValue);
  const Json* others = fact.has("of_targets") ? fact.object("of_targets") : nullptr;
  if (!others) return;
  ObjectReader of_targets(*others, fact.pointer("of_targets"), error);
  for (const std::string& target : made.targets) {
    if (!of_targets.has(target.c_str())) continue;
    made.max_blocks_of_targets[target] = small_integer_in(of_targets, target.c_str());
  }
  of_targets.finish();
}

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
    {"max_blocks_per_sm", read_blocks, copy<&A::max_blocks_per_sm>},
    tiles<&A::gemm_tiles, Null::kRefused>("gemm_tiles"),
    tiles<&A::batched_gemm_tiles, Null::kAllowed>("batched_gemm_tiles"),
    tiles<&A::matrix_gemm_tiles, Null::kRefused>("matrix_gemm_tiles"),
    matrix_gemm<&A::matrix_gemm>("matrix_gemm"),
    matrix_gemm<&A::matrix_gemm_fp8>("matrix_gemm_fp8"),
    matrix_gemm<&A::matrix_gemm_fp8_token>("matrix_gemm_fp8_token"),
    matrix_gemm<&A::matrix_gemm_fp8_block>("matrix_gemm_fp8_block"),
    matrix_gemm<&A::matrix_gemm_fp4>("matrix_gemm_fp4"),
    number_or_none<&A::unaligned_half_gemm_flop_per_clock_per_sm>(
        "unaligned_half_gemm_flop_per_clock_per_sm"),
    set<&A::tf32_gemm_shares, tf32_shares, Null::kAllowed>("tf32_gemm_shares"),
    set<&A::quantize, quantize_kernels, Null::kAllowed>("quantize"),
    set<&A::elementwise_rates, elementwise_rates, Null::kRefused>("elementwise_rates"),
    set<&A::index_rates, index_rates, Null::kRefused>("index_rates"),
    set<&A::warm_inputs, warm_inputs, Null::kAllowed>("warm_inputs"),
    number_or_none<&A::norm_row_clocks>("norm_row_clocks"),
    number_or_none<&A::half_norm_row_clocks>("half_norm_row_clocks"),
    number_or_none<&A::channel_element_clocks>("channel_element_clocks"),
    number_or_none<&A::convolution_layout_rate>("convolution_layout_rate"),
    share<&A::attention_share>("attention_share"),
    {"attention_kernels",
     [](ObjectReader& fact, A& made, MaybeError& error) {
       made.attention_kernels = set_in(fact, kValue, error, attention_kernels, Null::kAllowed);
     },
     [](const A& from, A& to) {
       to.attention_kernels = from.attention_kernels;
       for (AttentionKernel& kernel : to.attention_kernels.list) kernel.measured = false;
     }},
    {"experts_kernels",
     [](ObjectReader& fact, A& made, MaybeError& error) {
       made.experts_kernels = list_in(fact, kValue, error, experts_kernel, Null::kAllowed);
     },
     [](const A& from, A& to) {
       to.experts_kernels = from.experts_kernels;
       for (ExpertsKernel& kernel : to.experts_kernels) kernel.measured = false;
     }},
    measured_set<&A::linear_attention, linear_attention>("linear_attention"),
    measured_set<&A::recurrent_cycles, recurrent_cycles>("recurrent_cycles"),
    value<&A::persistent_recurrent,
          [](ObjectReader& fact, const char* key) {
            return choice_in<PersistentRecurrent>(fact, key, kPersistentRecurrentNames);
          }>("persistent_recurrent"),
    flag<&A::recurrent_measured>("recurrent_measured"),
    flag<&A::slow_recurrent_batches>("slow_recurrent_batches"),
    value<&A::nccl_generation,
          [](ObjectReader& fact, const char* key) {
            return choice_in<NcclGeneration>(fact, key, kNcclGenerationNames);
          }>("nccl_generation"),
    // Kernels measured on another architecture were not measured on this one.
    {"measured_kernels",
     [](ObjectReader& fact, A& made, MaybeError& error) {
       made.measured_kernels = list_in(fact, kValue, error, measured_kernels);
     },
     [](const A&, A&) {}},
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
    PERFMODEL_TRY(other, files.parsed(from));
    const auto& lent = (*other)->borrowed;
    if (std::ranges::find(lent, fact, &Parsed::Borrowed::fact) != lent.end()) {
      return fail(ErrorCode::kFormat,
                  "expected an architecture with a value of its own, found "
                  "\"" +
                      from + "\", which takes another's value",
                  file, std::string("/facts/") + fact->key + "/as");
    }
    fact->copy((*other)->own, parsed.own);
  }
  return std::move(parsed.own);
}

Result<Architecture> read_file(const fs::path& file, const ArchitectureFiles& files) {
  PERFMODEL_TRY(parsed, parse_file(file, files));
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
           (is_missing ? " (data of version 0.1.0 has no such folder: take this version's)" : "");
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
    PERFMODEL_TRY(file, parse_file(file_of(name), *this));
    known = parsed_.emplace(name, std::make_shared<const Parsed>(std::move(*file))).first;
  }
  return known->second;
}

Result<Architecture> ArchitectureFiles::read(const std::string& name) {
  auto known = read_.find(name);
  if (known == read_.end()) {
    const fs::path file = file_of(name);
    PERFMODEL_TRY(own, parsed(name));
    PERFMODEL_TRY(architecture, complete(**own, file, *this));
    if (architecture->name != name) {
      return fail(
          ErrorCode::kFormat,
          "expected the name of the file, \"" + name + "\", found \"" + architecture->name + "\"",
          file, "/name");
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
  PERFMODEL_TRY(found, json_files(folder, "architecture files"));
  ArchitectureFiles files(folder);
  std::vector<Architecture> architectures;
  for (const fs::path& file : *found) {
    PERFMODEL_TRY(read, files.read(file.stem().string()));
    architectures.push_back(std::move(*read));
  }
  std::ranges::sort(architectures, {}, &Architecture::name);
  return architectures;
}

}  // namespace perfmodel
