#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>

namespace perfmodel::serve {

/// Asks requests to stop when their time is over. One thread for all, which sleeps until the next.
class Deadlines {
 public:
  using Clock = std::chrono::steady_clock;

  Deadlines() : thread_([this](const std::stop_token& stop) { run(stop); }) {}

  /// While it lives, `source` is stopped at its time.
  class Guard {
   public:
    Guard(Deadlines& owner, Clock::time_point time, const std::stop_source& source)
        : owner_(owner) {
      const std::lock_guard lock(owner_.mutex_);
      entry_ = owner_.entries_.emplace(time, source);
      if (owner_.earliest() == time) owner_.changed_.notify_one();
    }
    ~Guard() {
      const std::lock_guard lock(owner_.mutex_);
      owner_.entries_.erase(entry_);
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Deadlines& owner_;
    std::multimap<Clock::time_point, std::stop_source>::iterator entry_;
  };

 private:
  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      for (auto& [time, source] : entries_) {
        if (time > Clock::now()) break;
        source.request_stop();  // its guard takes it out
      }
      const Clock::time_point next = earliest();
      const auto is_earlier = [&] { return earliest() < next; };
      if (next == Clock::time_point::max()) {
        changed_.wait(lock, stop, is_earlier);
      } else {
        changed_.wait_until(lock, stop, next, is_earlier);
      }
    }
  }

  // Earliest deadline that was not stopped yet; max: there is none.
  Clock::time_point earliest() const {
    for (const auto& [time, source] : entries_) {
      if (!source.stop_requested()) return time;
    }
    return Clock::time_point::max();
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::multimap<Clock::time_point, std::stop_source> entries_;
  std::jthread thread_;
};

}  // namespace perfmodel::serve
