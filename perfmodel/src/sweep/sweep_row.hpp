#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "perfmodel/explanation.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::sweep {

/// Names of the columns behind those that say what is asked.
inline constexpr std::string_view kResultColumns =
    "e2e_us,gpu_active_us,cpu_us,exposed_communication_us,samples_per_step,samples_per_s,bound,"
    "bound_share,modelled_time_fraction,unmodelled_ops,kernels_out_of_range,error";

/// The cells of an answer. Numbers have the digits that give the same double again, and no more.
/// `batch`: samples per step of one rank, if known; `ranks`: how many take such a batch each.
std::string result_cells(const Prediction& prediction, const Explanation& explanation,
                         std::optional<std::int64_t> batch, std::int64_t ranks);

/// Those of a refusal: all empty but the last. What depends on the machine, such as the folder of a
/// file, is left out.
std::string refusal_cells(const Error& error);

}  // namespace perfmodel::sweep
