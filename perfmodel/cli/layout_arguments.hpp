#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layout/layout_request.hpp"
#include "perfmodel/layout.hpp"
#include "perfmodel/result.hpp"
#include "terminal/cli11.hpp"

namespace perfmodel::cli {

/// What all commands of `layout` take.
struct LayoutArguments : LayoutRequest {
  LayoutArguments() {
    reads_files = true;
    precision = "bf16";
    attention = "flash";
    optimizer = "adamw";
    grad_dtype = "fp32";
  }

  std::string gpu, topology;
  std::optional<std::int64_t> world;
  double host_scale = 1;

  // A layout, or what a search may take; empty: all.
  std::vector<std::int64_t> dp, tp, pp, vp, cp, ep, micro_batch;
  std::optional<std::int64_t> etp;
  std::string context;
  std::optional<bool> context_balanced, overlap_experts;
  std::vector<std::string> zero, recompute;
  std::optional<bool> sequence_parallel;
  std::vector<std::string> schedule;  // empty: 1f1b
  bool searched_stages = false;

  std::string collectives;      // file of a network that ASTRA-sim's rules price
  std::string measured;         // steps that calibrate: a table, a trace, a machine's file or name
  std::string measured_layout;  // of a trace

  bool json = false;
};

/// Adds the flags of the model, the machine, the job and the layout. `with_model`: the argument
/// MODEL too.
void add_layout_options(CLI::App& app, LayoutArguments& arguments);

/// Errors: unknown names of sharding or recomputation.
Result<LayoutSpace> layout_space(const LayoutArguments& arguments);

/// The one layout that the flags name; what they leave out is 1 or none. Errors: several values of
/// one flag, a world that the parts do not divide.
Result<ParallelLayout> named_layout(const LayoutArguments& arguments);

/// "tp=8,pp=4,micro_batch=2,zero=1" on so many GPUs, if they are given.
Result<ParallelLayout> parse_layout(std::string_view text, std::optional<std::int64_t> world);

}  // namespace perfmodel::cli
