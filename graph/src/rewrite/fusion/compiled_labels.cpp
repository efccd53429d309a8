#include "compiled_labels.hpp"

#include <algorithm>
#include <string_view>

namespace perfmodel {

std::int32_t place_of_region(const StepView& step, const std::vector<std::int32_t>& ops) {
  const ExecutionGraph& graph = step.graph();
  const std::vector<std::int32_t>& all = step.forward().ops();
  const auto first = std::ranges::lower_bound(all, ops.front());
  const std::int32_t before = first == all.begin() ? -1 : *(first - 1);
  std::int32_t place = ops.front();
  for (;;) {
    const std::int32_t above = graph.node(place).parent;
    const bool holds_more = above < 0 || graph.node(above).is_structural ||
                            graph.is_inside(ops.back(), above) || graph.is_inside(before, above) ||
                            graph.node(above).thread != graph.node(place).thread;
    if (holds_more) return place;
    place = above;
  }
}

void remove_empty_labels(GraphEdit& edit, const std::vector<bool>& in_region) {
  const ExecutionGraph& graph = edit.source();
  std::vector<bool> has_region(graph.nodes.size()), has_rest(graph.nodes.size());
  for (auto i = static_cast<std::int32_t>(graph.nodes.size()); i-- > 0;) {
    const Node& node = graph.node(i);
    const bool inside = graph.find_around(i, [&](std::int32_t at) { return in_region[at]; }) >= 0;
    has_region[i] = has_region[i] || inside;
    const std::string_view name = graph.name(i);
    const bool is_module = node.is_label && !node.is_structural && name.starts_with("nn.Module");
    const bool rests = !inside && (!is_module || has_rest[i] || !has_region[i]);
    if (is_module && has_region[i] && !has_rest[i]) edit.replace(i);
    if (node.parent < 0) continue;
    if (has_region[i]) has_region[node.parent] = true;
    if (rests) has_rest[node.parent] = true;
  }
}

}  // namespace perfmodel
