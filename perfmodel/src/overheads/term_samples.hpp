#pragma once

#include <array>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "perfmodel/overheads.hpp"
#include "statistics.hpp"

namespace perfmodel {

/// Samples of one overhead term while they are collected.
class TermSamples {
 public:
  /// `contexts`: up to two keys, the most specific first. `tensors`: of the list that the op walks
  /// over; 0: none.
  void add(double us, std::string_view name, std::initializer_list<std::uint64_t> contexts = {},
           double tensors = 0) {
    Sample sample{.us = us, .tensors = tensors, .name = hash_text(name)};
    for (std::uint64_t context : contexts) sample.contexts[sample.context_count++] = context;
    names_.try_emplace(sample.name, name);
    samples_.push_back(sample);
  }

  void append(const TermSamples& other) {
    samples_.insert(samples_.end(), other.samples_.begin(), other.samples_.end());
    names_.insert(other.names_.begin(), other.names_.end());
  }

  /// Removes one-time costs (library set-up, first allocation): samples over 1 ms and 20 times the
  /// median of their context, or of all samples if `single_pass` and the context is seen less than
  /// three times. Returns how many.
  std::size_t drop_first_uses(bool single_pass) {
    std::unordered_map<std::uint64_t, std::vector<double>> by_context;
    std::vector<double> every;
    for (const Sample& sample : samples_) {
      by_context[sample.widest_context()].push_back(sample.us);
      every.push_back(sample.us);
    }
    const double overall = median_of(every);
    return std::erase_if(samples_, [&](const Sample& sample) {
      if (sample.us < kFirstUseUs) return false;
      const auto& peers = by_context[sample.widest_context()];
      if (peers.size() >= 3) return sample.us > kFirstUseFactor * median_of(peers);
      return single_pass && sample.us > kFirstUseFactor * overall;
    });
  }

  /// Tukey fences over all samples and within each name, as Lin et al. apply them.
  template <class Fence>
  OverheadTerm fenced_term(Fence&& fence) const {
    return make_term(fence);
  }

  OverheadTerm term() const {
    return make_term([](const std::vector<double>& samples) { return samples; });
  }

 private:
  static constexpr double kFirstUseUs = 1000, kFirstUseFactor = 20;

  struct Sample {
    double us = 0, tensors = 0;
    std::uint64_t name = 0;
    std::uint64_t contexts[2] = {};
    int context_count = 0;

    std::uint64_t widest_context() const {
      return context_count > 0 ? contexts[context_count - 1] : name;
    }
  };

  template <class Filter>
  OverheadTerm make_term(Filter&& filter) const {
    struct Group {
      std::vector<double> times, tensors;
    };
    Group every, lists;
    std::unordered_map<std::uint64_t, Group> by_name, by_context;
    OverheadTerm made;
    for (const Sample& sample : samples_) {
      const auto take = [&](Group& group) {
        group.times.push_back(sample.us);
        if (sample.tensors > 0) group.tensors.push_back(sample.tensors);
      };
      take(every);
      if (sample.tensors > 0) take(lists);
      take(by_name[sample.name]);
      for (int i = 0; i < sample.context_count; ++i) {
        take(by_context[sample.contexts[i]]);
        made.name_of_context[sample.contexts[i]] = sample.name;
      }
    }
    const auto stats = [&](const Group& group) {
      OverheadStats of_group = stats_of(filter(group.times));
      of_group.tensors = mean_of(group.tensors);
      return of_group;
    };
    made.all = stats(every);
    made.all.tensors = 0;
    for (const auto& [key, group] : by_name) made.by_name[key] = {names_.at(key), stats(group)};
    if (!lists.times.empty()) made.by_name[any_list_key()] = {std::string(kAnyList), stats(lists)};
    for (const auto& [key, group] : by_context) made.by_context[key] = stats(group);
    return made;
  }

  std::vector<Sample> samples_;
  std::unordered_map<std::uint64_t, std::string> names_;
};

/// Samples of every term of the host whose figures are not by call.
class HostSamples {
 public:
  TermSamples& operator[](Term term) { return terms_[static_cast<std::size_t>(term)]; }

  void append(const HostSamples& other) {
    for (std::size_t i = 0; i < terms_.size(); ++i) terms_[i].append(other.terms_[i]);
  }

  /// See `TermSamples`. Gaps lose none if several steps are recorded.
  std::size_t drop_first_uses(bool single_pass) {
    std::size_t dropped = 0;
    for (const HostTerm& host : kHostTerms) {
      if (!host.is_gap || single_pass) dropped += (*this)[host.term].drop_first_uses(single_pass);
    }
    return dropped;
  }

  /// `figures_of(samples)`: the figures of a term.
  template <class FiguresOf>
  void give(OverheadTable& table, FiguresOf figures_of) const {
    for (const HostTerm& host : kHostTerms) {
      if (!host.figures) continue;
      table.*host.figures = std::invoke(figures_of, terms_[static_cast<std::size_t>(host.term)]);
    }
  }

 private:
  std::array<TermSamples, std::size(kHostTerms)> terms_;
};

}  // namespace perfmodel
