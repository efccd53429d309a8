#pragma once

#include "perfmodel/sweep/detail/team.hpp"

/// Names that the program and its MPI module share. The same compiler builds both.
namespace perfmodel::mpi {

inline constexpr const char* kModuleFile = "libperfpredict_mpi.so";
inline constexpr const char* kOpenTeamSymbol = "perfpredict_open_team_1";

/// Starts MPI. To be called once, by the thread that will be the team's; null where MPI does not
/// let threads take turns. The caller deletes the team, which ends MPI.
using OpenTeamFunction = sweep::Team*();

}  // namespace perfmodel::mpi
