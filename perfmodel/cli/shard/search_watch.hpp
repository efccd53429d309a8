#pragma once

#include "sharding/study/priced_plans.hpp"

namespace perfmodel::cli {

/// Shows progress if stderr is a terminal; Ctrl-C ends a search with its best plans so far.
sharding::SearchWatch terminal_watch();

/// Clears the line of progress.
void clear_progress();

}  // namespace perfmodel::cli
