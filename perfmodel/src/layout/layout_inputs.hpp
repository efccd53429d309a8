#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "layout_fields.hpp"
#include "perfmodel/layout.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A question about layouts on one machine.
struct LayoutInputs : LayoutAsk {
  LayoutInputs() {
    precision = "bf16";
    attention = "flash";
    optimizer = "adamw";
    grad_dtype = "fp32";
  }

  LayoutLists lists;
  LayoutMachine machine;
  bool searched_stages = false;
  std::string measured;  ///< steps that calibrate: a table, a trace, a machine's file or name
  std::string measured_layout;  ///< the layout of that trace
};

/// A search among the values of `lists`, or one that keeps to the parts that are named. Errors:
/// unknown names.
Result<LayoutSpace> layout_space(const LayoutInputs& inputs);
Result<LayoutSpace> layout_space(const LayoutAsk& parts);

/// The one layout that the inputs name; what they leave out is 1 or none. Errors: several values of
/// one part, a world that the parts do not divide.
Result<ParallelLayout> named_layout(LayoutInputs inputs);

/// "tp=8,pp=4,micro_batch=2,zero=1" on so many GPUs, if they are given.
Result<ParallelLayout> parse_layout(std::string_view text, std::optional<std::int64_t> world);

}  // namespace perfmodel
