#include "flow_network.hpp"

#include <algorithm>
#include <deque>
#include <limits>

namespace perfmodel {

void FlowNetwork::add(std::int32_t from, std::int32_t to, double capacity) {
  edges_of_[from].push_back(static_cast<std::int32_t>(edges_.size()));
  edges_.push_back({to, capacity});
  edges_of_[to].push_back(static_cast<std::int32_t>(edges_.size()));
  edges_.push_back({from, 0});
}

std::vector<bool> FlowNetwork::reached_after_flow(std::int32_t source, std::int32_t sink) {
  for (;;) {
    const std::vector<std::int32_t> by = search(source);
    if (by[sink] < 0) {
      std::vector<bool> reached(edges_of_.size());
      for (std::size_t i = 0; i < reached.size(); ++i) reached[i] = by[i] >= 0;
      reached[source] = true;
      return reached;
    }
    double flow = std::numeric_limits<double>::infinity();
    for (std::int32_t at = sink; at != source; at = edges_[by[at] ^ 1].to) {
      flow = std::min(flow, edges_[by[at]].left);
    }
    for (std::int32_t at = sink; at != source; at = edges_[by[at] ^ 1].to) {
      edges_[by[at]].left -= flow;
      edges_[by[at] ^ 1].left += flow;
    }
  }
}

std::vector<std::int32_t> FlowNetwork::search(std::int32_t source) const {
  std::vector<std::int32_t> by(edges_of_.size(), -1);
  std::deque<std::int32_t> open = {source};
  while (!open.empty()) {
    const std::int32_t at = open.front();
    open.pop_front();
    for (const std::int32_t edge : edges_of_[at]) {
      const std::int32_t to = edges_[edge].to;
      if (to == source || by[to] >= 0 || edges_[edge].left <= 0) continue;
      by[to] = edge;
      open.push_back(to);
    }
  }
  return by;
}

}  // namespace perfmodel
