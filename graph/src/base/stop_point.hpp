#pragma once

#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <stop_token>
#include <system_error>
#include <thread>
#include <vector>

namespace perfmodel {

/// Thrown by `stop_point`. It unwinds like `bad_alloc`, and whoever made the StopScope catches it.
/// It is no std::exception, so that no handler takes it for a failure.
struct Stopped {};

/// Who may end the work of a thread.
struct StopRules {
  std::stop_token token = {};
  std::optional<std::chrono::steady_clock::time_point> deadline = {};

  bool stopped() const noexcept {
    return token.stop_requested() || (deadline && std::chrono::steady_clock::now() >= *deadline);
  }
};

/// While it lives, `stop_point` of this thread ends the work by these rules. Without one it never
/// ends the work and costs almost nothing.
class StopScope {
 public:
  explicit StopScope(const StopRules* rules) noexcept;  ///< nullptr: nothing ends the work
  ~StopScope();
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

 private:
  const StopRules* const outer_;
};

/// Returns the rules of this thread; nullptr: none.
const StopRules* stop_rules() noexcept;

/// True if the work of this thread shall end.
bool stop_asked() noexcept;

/// Ends the work of this thread if it shall end. Call it in long loops, every few milliseconds of
/// work: it costs some 30 ns under a StopScope, else 1 ns.
void stop_point();

/// Runs `work` in this thread and `threads - 1` others, all under the rules of this one, and
/// returns when all have ended. The first exception of any is thrown on. If the system has fewer
/// threads to give, fewer work.
template <class Work>
void work_in_threads(std::size_t threads, Work&& work) {
  std::exception_ptr thrown;
  std::mutex mutex;
  const auto guarded = [&, rules = stop_rules()] {
    const StopScope scope(rules);
    try {
      work();
    } catch (...) {  // no memory, or stopped: out of the thread with it
      const std::lock_guard lock(mutex);
      if (!thrown) thrown = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      while (others.size() + 1 < threads) others.emplace_back(guarded);
    } catch (const std::system_error&) {
    }
    guarded();
  }
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace perfmodel
