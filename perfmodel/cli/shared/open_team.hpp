#pragma once

#include <memory>

#include "perfmodel/result.hpp"
#include "perfmodel/sweep/detail/team.hpp"

namespace perfmodel::cli {

/// The ranks that `mpirun` started this process with; null if it was started alone. MPI is in a
/// module next to the program, only loaded here: no other command pays for it.
///
/// Errors: several ranks, but this build has no module, or MPI cannot be started.
Result<std::shared_ptr<sweep::Team>> open_team();

}  // namespace perfmodel::cli
