#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rewrite_moves.hpp"

/// From chosen moves to the rewrites of a command, in the order of their stages.
namespace perfmodel::advice {

/// The rewrites of a state in the order of their stages, data-parallel ranks included.
std::vector<NamedRewrite> rewrites_of(const std::vector<Axis>& axes, const State& state,
                                      const Job& job);

/// The choice of an axis as the command line says it, next to the other choices of the state.
std::string choice_text(const std::vector<Axis>& axes, const State& state, std::size_t axis,
                        const Job& job);

/// GPUs that a state runs on.
std::int64_t ranks_of(const std::vector<Axis>& axes, const State& state, const Job& job);

}  // namespace perfmodel::advice
