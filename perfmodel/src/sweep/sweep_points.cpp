#include "sweep_points.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "csv_text.hpp"

namespace perfmodel::sweep {
namespace {

std::string strategy_key(const StrategyChoice& choice) {
  std::string text =
      fmt::format("strategy={}", choice.strategy ? to_string(*choice.strategy) : "none");
  if (choice.world > 0) text += fmt::format(";world={}", choice.world);
  return text;
}

std::string with_identity(const std::string& name, const std::string& identity) {
  return identity.empty() ? key_text(name) : key_text(name) + "@" + identity;
}

// Takes the next "name=value" from the front of a key.
bool take(std::string_view& rest, std::string_view name, std::string_view& value) {
  if (!rest.starts_with(name) || rest.substr(name.size(), 1) != "=") return false;
  const std::size_t end = std::min(rest.find(';'), rest.size());
  value = rest.substr(name.size() + 1, end - name.size() - 1);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return true;
}

template <class Map>
std::optional<std::size_t> position(const Map& map, std::string_view text) {
  const auto found = map.find(text);
  return found == map.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

SweepPoints::SweepPoints(const SweepSpec& spec) : spec_(spec) {
  for (const GraphSource& graph : spec.graphs) {
    graphs_.push_back(with_identity(graph.name, graph.identity));
  }
  for (const GpuChoice& gpu : spec.gpus) gpus_.push_back(with_identity(gpu.name, gpu.identity));
  for (const std::string& topology : spec.topologies) topologies_.push_back(key_text(topology));
  for (const StrategyChoice& choice : spec.strategies) strategies_.push_back(strategy_key(choice));
  groups_ = spec.graphs.size();
  for (const RewriteAxis& axis : spec.axes) {
    std::vector<std::string> texts;
    for (const RewriteAxis::Value& value : axis.values) {
      texts.push_back(value.rewrite ? key_text(value.text) : "");
    }
    values_.push_back(std::move(texts));
    groups_ *= axis.values.size();
  }
  per_group_ = gpus_.size() * topologies_.size() * strategies_.size();
  const auto index = [](const std::vector<std::string>& texts) {
    Positions made;
    for (std::size_t i = 0; i < texts.size(); ++i) made.emplace(texts[i], i);
    return made;
  };
  graph_at_ = index(graphs_);
  gpu_at_ = index(gpus_);
  topology_at_ = index(topologies_);
  strategy_at_ = index(strategies_);
  for (const auto& texts : values_) value_at_.push_back(index(texts));
}

SweepPoints::Point SweepPoints::at(std::uint64_t index) const {
  const auto digit = [&index](std::size_t size) {
    const auto value = static_cast<std::size_t>(index % size);
    index /= size;
    return value;
  };
  Point point;
  point.strategy = digit(strategies_.size());
  point.topology = digit(topologies_.size());
  point.gpu = digit(gpus_.size());
  point.values.resize(values_.size());
  for (std::size_t axis = values_.size(); axis-- > 0;) {
    point.values[axis] = digit(values_[axis].size());
  }
  point.graph = static_cast<std::size_t>(index);
  return point;
}

std::string SweepPoints::key(std::uint64_t index) const {
  const Point point = at(index);
  std::string text = "graph=" + graphs_[point.graph];
  for (const std::size_t axis : spec_.applied) {
    const std::string& value = values_[axis][point.values[axis]];
    if (!value.empty()) text += ";" + spec_.axes[axis].name + "=" + value;
  }
  return text + ";gpu=" + gpus_[point.gpu] + ";topology=" + topologies_[point.topology] + ";" +
         strategies_[point.strategy];
}

std::optional<std::uint64_t> SweepPoints::index_of(std::string_view key) const {
  std::string_view value;
  if (!take(key, "graph", value)) return std::nullopt;
  const auto graph = position(graph_at_, value);
  if (!graph) return std::nullopt;
  std::vector<std::size_t> values(values_.size());
  for (const std::size_t axis : spec_.applied) {
    value = {};
    take(key, spec_.axes[axis].name, value);  // left out: "same"
    const auto found = position(value_at_[axis], value);
    if (!found) return std::nullopt;
    values[axis] = *found;
  }
  if (!take(key, "gpu", value)) return std::nullopt;
  const auto gpu = position(gpu_at_, value);
  if (!gpu || !take(key, "topology", value)) return std::nullopt;
  const auto topology = position(topology_at_, value);
  const auto strategy = position(strategy_at_, key);
  if (!topology || !strategy) return std::nullopt;
  std::uint64_t index = *graph;
  for (std::size_t axis = 0; axis < values.size(); ++axis) {
    index = index * values_[axis].size() + values[axis];
  }
  index = index * gpus_.size() + *gpu;
  index = index * topologies_.size() + *topology;
  return index * strategies_.size() + *strategy;
}

std::string SweepPoints::text() const {
  std::string text = fmt::format("{}\n", fmt::join(graphs_, "\n"));
  for (std::size_t axis = 0; axis < values_.size(); ++axis) {
    text += fmt::format("{}: {}\n", spec_.axes[axis].name, fmt::join(values_[axis], ";"));
  }
  return text + fmt::format("{}\n{}\n{}\n", fmt::join(gpus_, ";"), fmt::join(topologies_, ";"),
                            fmt::join(strategies_, "|"));
}

std::string SweepPoints::columns() const {
  std::string text = "key,graph";
  for (const RewriteAxis& axis : spec_.axes) text.append(",").append(csv_cell(axis.name));
  return text + ",gpu,topology,strategy,world";
}

std::string SweepPoints::cells(std::uint64_t index) const {
  const Point point = at(index);
  std::string text = key(index) + "," + csv_cell(spec_.graphs[point.graph].name);
  for (std::size_t axis = 0; axis < values_.size(); ++axis) {
    const RewriteAxis::Value& value = spec_.axes[axis].values[point.values[axis]];
    text += ',';
    if (value.rewrite) text += csv_cell(value.text);
  }
  const StrategyChoice& choice = spec_.strategies[point.strategy];
  text.append(",").append(csv_cell(spec_.gpus[point.gpu].name));
  text.append(",").append(csv_cell(spec_.topologies[point.topology]));
  text += fmt::format(",{},", choice.strategy ? to_string(*choice.strategy) : "none");
  if (choice.world > 0) text += std::to_string(choice.world);
  return text;
}

}  // namespace perfmodel::sweep
