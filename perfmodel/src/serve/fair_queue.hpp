#pragma once

#include <cstddef>
#include <deque>
#include <list>
#include <optional>
#include <utility>

namespace perfmodel::serve {

/// Jobs of several owners: owners take turns, each job of one in the order of its request, so that
/// no owner waits for the many jobs of another. Not thread-safe.
template <class Owner, class Job>
class FairQueue {
 public:
  void push(const Owner& owner, Job job) {
    for (Line& line : lines_) {
      if (line.owner != owner) continue;
      line.jobs.push_back(std::move(job));
      ++size_;
      return;
    }
    lines_.push_back({.owner = owner, .jobs = {}, .at_work = 0});
    lines_.back().jobs.push_back(std::move(job));
    ++size_;
  }

  /// Whether `pop` has a job.
  bool ready(std::size_t most_at_work) const {
    for (const Line& line : lines_) {
      if (line.may_go(most_at_work)) return true;
    }
    return false;
  }

  /// The next job of an owner that has fewer than so many at work, until it has `finished`.
  std::optional<Job> pop(std::size_t most_at_work) {
    for (auto line = lines_.begin(); line != lines_.end(); ++line) {
      if (!line->may_go(most_at_work)) continue;
      Job job = std::move(line->jobs.front());
      line->jobs.pop_front();
      ++line->at_work;
      --size_;
      lines_.splice(lines_.end(), lines_, line);  // the others come first
      return job;
    }
    return std::nullopt;
  }

  void finished(const Owner& owner) {
    for (auto line = lines_.begin(); line != lines_.end(); ++line) {
      if (line->owner != owner) continue;
      if (--line->at_work == 0 && line->jobs.empty()) lines_.erase(line);
      return;
    }
  }

  std::size_t size() const { return size_; }
  void clear() { lines_.clear(), size_ = 0; }

 private:
  struct Line {
    Owner owner;
    std::deque<Job> jobs;
    std::size_t at_work = 0;
    bool may_go(std::size_t most) const { return !jobs.empty() && at_work < most; }
  };
  std::list<Line> lines_;
  std::size_t size_ = 0;
};

}  // namespace perfmodel::serve
