#include "values.hpp"

#include "by_id.hpp"

namespace perfmodel {

Values::Values(const ExecutionGraph& graph, std::int64_t Tensor::*id) : graph_(&graph) {
  ById<std::int32_t> by_id(graph.tensors.size(), -1);
  numbers_.reserve(graph.tensors.size());
  for (const Tensor& tensor : graph.tensors) {
    std::int32_t& number = by_id[tensor.*id];
    if (number < 0) number = static_cast<std::int32_t>(size_++);
    numbers_.push_back(number);
  }
}

Values::Uses Values::find_uses() const {
  constexpr std::int32_t kNotMentioned = -2;
  Uses found;
  found.makers.assign(size_, kNotMentioned);
  std::vector<std::size_t> counts(size_);
  std::vector<std::int32_t> last_reader(size_, -1);
  const auto count = static_cast<std::int32_t>(graph_->nodes.size());
  for (std::int32_t i = 0; i < count; ++i) {
    for_each_tensor(*graph_, graph_->inputs(i), [&](const Tensor& tensor) {
      const std::int32_t value = of(tensor);
      if (found.makers[value] == kNotMentioned) found.makers[value] = -1;
      if (last_reader[value] == i) return;
      last_reader[value] = i;
      ++counts[value];
    });
    for_each_tensor(*graph_, graph_->outputs(i), [&](const Tensor& tensor) {
      if (found.makers[of(tensor)] == kNotMentioned) found.makers[of(tensor)] = i;
    });
  }
  for (const std::size_t of_value : counts) found.ends.push_back(found.ends.back() + of_value);
  found.readers.resize(found.ends.back());
  std::vector<std::size_t> next(found.ends.begin(), found.ends.end() - 1);
  last_reader.assign(size_, -1);
  for (std::int32_t i = 0; i < count; ++i) {
    for_each_tensor(*graph_, graph_->inputs(i), [&](const Tensor& tensor) {
      const std::int32_t value = of(tensor);
      if (last_reader[value] == i) return;
      last_reader[value] = i;
      found.readers[next[value]++] = i;
    });
  }
  return found;
}

}  // namespace perfmodel
