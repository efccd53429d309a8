#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perfmodel/decoder_models.hpp"
#include "perfmodel/layout.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::cli {

/// What all commands of `layout` take.
struct LayoutArguments {
  std::string model;  ///< name or config.json; empty: the sizes are given
  std::optional<std::int64_t> layers, hidden, heads, kv_heads, feed_forward, vocabulary, positions;
  std::optional<bool> gated, tied;

  std::string gpu, topology, software;
  std::optional<std::int64_t> world, sequence, global_batch;
  std::string precision = "bf16", attention = "flash", optimizer = "adamw", grad_dtype = "fp32";
  double dropout = 0, host_scale = 1;

  // A layout, or what a search may take; empty: all.
  std::vector<std::int64_t> tp, pp, vp, micro_batch;
  std::vector<std::string> zero, recompute;
  std::optional<bool> sequence_parallel;
  std::string schedule = "1f1b";

  bool json = false;
};

/// Adds the flags of the model, the machine, the job and the layout. `with_model`: the argument
/// MODEL too.
void add_layout_options(CLI::App& app, LayoutArguments& arguments);

/// The job with what the model is said not to have.
struct LayoutQuestion {
  LayoutJob job;
  std::vector<std::string> notes;
};

/// Errors: no model, unknown names, sizes that are missing, no batch.
Result<LayoutQuestion> layout_question(const LayoutArguments& arguments);

/// Errors: unknown names of sharding or recomputation.
Result<LayoutSpace> layout_space(const LayoutArguments& arguments);

/// The one layout that the flags name; what they leave out is 1 or none. Errors: several values of
/// one flag, a world that the parts do not divide.
Result<ParallelLayout> named_layout(const LayoutArguments& arguments);

/// "tp=8,pp=4,micro_batch=2,zero=1" on so many GPUs, if they are given.
Result<ParallelLayout> parse_layout(std::string_view text, std::optional<std::int64_t> world);

// Names as flags, tables and JSON have them.
Result<Sharding> parse_sharding(std::string_view text);
Result<LayoutRecompute> parse_recompute(std::string_view text);
Result<LayoutJob::Precision> parse_layout_precision(std::string_view text);

/// "dp 8 tp 4 pp 2 ..." without what is 1 or none.
std::string layout_words(const ParallelLayout& layout);

}  // namespace perfmodel::cli
