#include "values.hpp"

#include <unordered_map>

namespace perfmodel {

Values::Values(const ExecutionGraph& graph, std::int64_t Tensor::*id) : graph_(&graph) {
  constexpr std::int32_t kNotMentioned = -2;
  std::unordered_map<std::int64_t, std::int32_t> by_id;
  numbers_.reserve(graph.tensors.size());
  for (const Tensor& tensor : graph.tensors) {
    const auto next = static_cast<std::int32_t>(by_id.size());
    numbers_.push_back(by_id.try_emplace(tensor.*id, next).first->second);
  }
  makers_.assign(by_id.size(), kNotMentioned);
  std::vector<std::size_t> counts(by_id.size());
  std::vector<std::int32_t> last_reader(by_id.size(), -1);
  const auto count = static_cast<std::int32_t>(graph.nodes.size());
  for (std::int32_t i = 0; i < count; ++i) {
    for_each_tensor(graph, graph.inputs(i), [&](const Tensor& tensor) {
      const std::int32_t value = of(tensor);
      if (makers_[value] == kNotMentioned) makers_[value] = -1;
      if (last_reader[value] == i) return;
      last_reader[value] = i;
      ++counts[value];
    });
    for_each_tensor(graph, graph.outputs(i), [&](const Tensor& tensor) {
      if (makers_[of(tensor)] == kNotMentioned) makers_[of(tensor)] = i;
    });
  }
  for (const std::size_t of_value : counts) ends_.push_back(ends_.back() + of_value);
  readers_.resize(ends_.back());
  std::vector<std::size_t> next(ends_.begin(), ends_.end() - 1);
  last_reader.assign(by_id.size(), -1);
  for (std::int32_t i = 0; i < count; ++i) {
    for_each_tensor(graph, graph.inputs(i), [&](const Tensor& tensor) {
      const std::int32_t value = of(tensor);
      if (last_reader[value] == i) return;
      last_reader[value] = i;
      readers_[next[value]++] = i;
    });
  }
}

}  // namespace perfmodel
