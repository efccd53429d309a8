#pragma once

#include <string>
#include <utility>
#include <vector>

#include "perfmodel/overheads.hpp"

namespace perfmodel {

/// The host time of calls that start device work. A program makes a handful of distinct ones:
/// looking them up by text once is enough.
class CallCosts {
 public:
  explicit CallCosts(const OverheadTable& table) : table_(table) {}

  OverheadTerm::Found find(const TemplateCall& call);

 private:
  const OverheadTable& table_;
  std::vector<std::pair<const TemplateCall*, OverheadTerm::Found>> known_;
};

/// A synchronising call without the wait.
struct SyncCost {
  double host_us = 0;     ///< whether it found something to wait for or not
  double latency_us = 0;  ///< on top if it did
};
SyncCost sync_cost(const OverheadTable& table, const std::string& call);

}  // namespace perfmodel
