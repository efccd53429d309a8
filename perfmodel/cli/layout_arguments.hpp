#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "layout/layout_fields.hpp"
#include "perfmodel/layout.hpp"
#include "perfmodel/result.hpp"
#include "terminal/cli11.hpp"

namespace perfmodel::cli {

/// What all commands of `layout` take. Parts of a layout stand in `lists`, one value or several.
struct LayoutArguments : LayoutAsk {
  LayoutArguments() {
    reads_files = true;
    precision = "bf16";
    attention = "flash";
    optimizer = "adamw";
    grad_dtype = "fp32";
  }

  LayoutLists lists;
  std::string gpu, topology;
  double host_scale = 1;
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
