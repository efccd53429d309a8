#pragma once

#include <string>
#include <string_view>

#include "perfmodel/detail/explanation.hpp"
#include "perfmodel/prediction.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::sweep {

/// Names of the columns after the question's columns.
inline constexpr std::string_view kResultColumns =
    "e2e_us,gpu_active_us,cpu_us,exposed_communication_us,samples_per_step,samples_per_s,bound,"
    "bound_share,modelled_time_fraction,unmodelled_ops,kernels_out_of_range,"
    "samples_per_s_per_gpu,static_bytes,device_bytes,e2e_low_us,e2e_high_us,energy_j,needed_bytes,"
    "error";

/// The cells of an answer. Numbers have the digits that give the same double again, and no more.
std::string result_cells(const Prediction& prediction, const Explanation& explanation);

/// The cells of a refusal: all empty except the last. Parts that depend on the machine, such as the
/// folder of a file, are left out.
std::string refusal_cells(const Error& error);

}  // namespace perfmodel::sweep
