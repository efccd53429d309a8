#include "search_watch.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "cli/shared/interrupt_guard.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

using sharding::SearchProgress;

// Takes Ctrl-C until the search ends.
std::shared_ptr<void> begin_search() {
  return {new InterruptGuard, [](const InterruptGuard* guard) {
            clear_progress();
            delete guard;
          }};
}

}  // namespace

void clear_progress() {
  if (progress_shown()) fmt::print(stderr, "\r{:79}\r", "");
}

sharding::SearchWatch terminal_watch() {
  sharding::SearchWatch watch{.begin_search = begin_search,
                              .is_stopped = InterruptGuard::interrupted};
  if (!progress_shown()) return watch;
  watch.progress = [](const SearchProgress& progress) {
    fmt::print(stderr, "\rsearch: best {:.4g}, bound {:.4g}, {:.1f} s, {} moves   ", progress.best,
               progress.lower_bound, progress.seconds, progress.moves);
    std::fflush(stderr);
  };
  watch.begin_question = [](const std::string& name) {
    fmt::print(stderr, "\r{:<78.78}", "study: " + name);
  };
  return watch;
}

}  // namespace perfmodel::cli
