#include "call_costs.hpp"

#include <algorithm>
#include <string_view>

namespace perfmodel {
namespace {

double sync_us(const OverheadTable& table, const std::string& call, std::string_view state) {
  for (std::string_view key : {state, std::string_view("")}) {
    const auto at = table.t4.find(call + std::string(key));
    if (at != table.t4.end()) return at->second.mean_us;
  }
  return table.call_us(call).us;
}

}  // namespace

OverheadTerm::Found CallCosts::find(const TemplateCall& call) {
  for (const auto& [known, cost] : known_) {
    if (known == &call) return cost;
  }
  for (const auto& [known, cost] : known_) {
    if (known->kind == call.kind && known->copy == call.copy && known->blocking == call.blocking &&
        known->call == call.call) {
      return known_.emplace_back(&call, cost).second;
    }
  }
  return known_.emplace_back(&call, table_.call_us(call_key(call))).second;
}

SyncCost sync_cost(const OverheadTable& table, const std::string& call) {
  const double idle = sync_us(table, call, " idle");
  const double wake = sync_us(table, call, " wake");
  const double host = std::min(idle, wake);
  return {.host_us = host, .latency_us = wake - host};
}

}  // namespace perfmodel
