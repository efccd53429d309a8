#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layout_names.hpp"
#include "perfmodel/layout.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

/// Questions about layouts in words and numbers, as command lines, tables, servers and C have them.
namespace perfmodel {

namespace layout_field_types {
using Count = std::optional<std::int64_t>;
using Choice = std::optional<bool>;
using Amount = std::optional<double>;
using Share = double;
using Text = std::string;
using CountList = std::vector<std::int64_t>;
using TextList = std::vector<std::string>;
}  // namespace layout_field_types

/// A model, what one step of it computes, and one layout of it. Empty or none: the model's, else
/// the default; of a layout 1 or none, `dp` what is left of the world, sequence parallelism on
/// where tp > 1. layout_fields.def says what each member is.
struct LayoutAsk {
  std::string model = {};    ///< a known name; empty: the sizes are given
  bool reads_files = false;  ///< `model` may be a config.json or the folder that holds one
#define LAYOUT_FIELD(type, name, ...) layout_field_types::type name = {};
#define LAYOUT_LIST LAYOUT_FIELD
#include "layout_fields.def"
#undef LAYOUT_FIELD
#undef LAYOUT_LIST
};

/// Values that a search may take for parts of a layout; empty: all.
struct LayoutLists {
#define LAYOUT_FIELD(...)
#define LAYOUT_LIST(type, name, ...) layout_field_types::type##List name = {};
#include "layout_fields.def"
#undef LAYOUT_FIELD
#undef LAYOUT_LIST
};

/// Writes a request's experts and heads over the model's. Errors: experts' sizes for a model
/// without experts.
Result<void> change_experts(const LayoutAsk& request, DecoderModel& model);

/// Sets the share of attention that is left by the documents in its file of lengths. Errors: as
/// `packed_share`; a request that may not name files.
Result<void> pack_sequences(const LayoutAsk& request, LayoutJob& job);

/// Writes its adapters and the experts' load into the job. Errors: unknown names.
Result<void> change_training(const LayoutAsk& request, LayoutJob& job);

struct LayoutQuestion {
  LayoutJob job;
  std::vector<std::string> notes;  ///< parts of the model that are left out
};

/// Errors: no model, unknown names, sizes that are missing, no batch.
Result<LayoutQuestion> layout_question(const LayoutAsk& request);

/// Errors: unknown names, numbers below 1, a world that the parts do not make up.
Result<ParallelLayout> layout_of(const LayoutAsk& parts);

/// The program of data/frameworks/ that suits, of those that were fitted to measured runs.
/// Compiled layers: torchtitan. Models with experts, fp4: nemo. Data parallelism alone, sharded or
/// not: fsdp (PyTorch's own). With pipelines or tensor parallelism fp16, and half types on Ampere:
/// megatron-deepspeed, as fitted to vTrain's rows; else nemo, Megatron Core as fitted to NeMo's.
std::string_view suitable_software(const Gpu& gpu, const LayoutJob& job,
                                   const ParallelLayout& layout);

/// For a run whose program is not said: the program whose measured runs are nearest. Dense models
/// on Hopper on up to the 512 GPUs that were measured: nanotron, unless parameters are gathered or
/// products are in fp8; else as `suitable_software` has it.
std::string_view nearest_software(const Gpu& gpu, const LayoutJob& job,
                                  const ParallelLayout& layout);

/// "no layout of 8 GPUs fits: the least memory found is ...": of a search that found none.
std::string nothing_fits(const LayoutRanking& ranking, std::int64_t gpus);

/// "dp 8 tp 4 pp 2 ..." without what is 1 or none.
std::string layout_words(const ParallelLayout& layout);

}  // namespace perfmodel
