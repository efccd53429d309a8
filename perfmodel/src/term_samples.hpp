#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "perfmodel/overheads.hpp"
#include "statistics.hpp"

namespace perfmodel {

/// Samples of one overhead term while they are collected.
struct TermSamples {
  std::vector<double> all;
  std::unordered_map<std::uint64_t, std::pair<std::string, std::vector<double>>> by_name;
  std::unordered_map<std::uint64_t, std::vector<double>> by_context;

  void add(double us, std::string_view name, std::initializer_list<std::uint64_t> contexts = {}) {
    all.push_back(us);
    auto& named = by_name[hash_text(name)];
    if (named.first.empty()) named.first = name;
    named.second.push_back(us);
    for (std::uint64_t context : contexts) by_context[context].push_back(us);
  }

  OverheadTerm term() const {
    OverheadTerm made;
    made.all = stats_of(all);
    for (const auto& [key, named] : by_name) {
      made.by_name[key] = {named.first, stats_of(named.second)};
    }
    for (const auto& [key, samples] : by_context) made.by_context[key] = stats_of(samples);
    return made;
  }
};

}  // namespace perfmodel
