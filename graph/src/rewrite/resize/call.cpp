#include "call.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "ops/catalogue.hpp"

namespace perfmodel::resize {
namespace {

void collect(const ExecutionGraph& graph, std::span<const Argument> arguments,
             std::vector<std::uint32_t>& tensors) {
  for (const Argument& argument : arguments) {
    if (argument.kind == Argument::Kind::kTensor) tensors.push_back(argument.index);
    if (argument.kind == Argument::Kind::kList) {
      collect(graph, graph.elements(argument), tensors);
    }
  }
}

bool has_sizes(const Dims& dims, std::span<const std::int64_t> sizes) {
  return std::equal(dims.begin(), dims.end(), sizes.begin(), sizes.end(),
                    [](const Dim& dim, std::int64_t size) { return dim.size == size; });
}

}  // namespace

Call::Call(Tracker& tracker, std::int32_t index)
    : tracker_(tracker), index_(index), inputs_(graph().inputs(node())) {
  collect(graph(), graph().outputs(node()), outs_);
  given_.resize(outs_.size());
}

const Layout* Call::layout(const Argument& argument) {
  if (argument.kind != Argument::Kind::kTensor) return nullptr;
  return tracker_.layout_of(graph().tensors[argument.index]);
}

std::vector<const Layout*> Call::list(std::size_t at) {
  std::vector<const Layout*> found;
  if (at >= inputs_.size() || inputs_[at].kind != Argument::Kind::kList) return found;
  for (const Argument& element : graph().elements(inputs_[at])) found.push_back(layout(element));
  return found;
}

std::vector<const Layout*> Call::tensors() {
  std::vector<const Layout*> found;
  for (const Argument& argument : inputs_) {
    if (const Layout* tensor = layout(argument)) found.push_back(tensor);
  }
  return found;
}

std::optional<std::int64_t> Call::integer(std::size_t at) const {
  if (at >= inputs_.size() || inputs_[at].kind != Argument::Kind::kInt) return {};
  return inputs_[at].integer;
}

std::vector<std::int64_t> Call::integers(std::size_t at) const {
  std::vector<std::int64_t> found;
  if (const auto one = integer(at)) return {*one};
  if (at >= inputs_.size() || inputs_[at].kind != Argument::Kind::kList) return found;
  for (const Argument& element : graph().elements(inputs_[at])) {
    if (element.kind == Argument::Kind::kInt) found.push_back(element.integer);
  }
  return found;
}

bool Call::flag(std::size_t at) const { return at < inputs_.size() && inputs_[at].integer != 0; }

int Call::position(std::string_view name) const {
  const std::string_view schema = graph().names.text(node().op_schema);
  const std::size_t begin = schema.find('('), end = schema.find(") ->");
  if (begin == std::string_view::npos || end == std::string_view::npos) return -1;
  int at = 0;
  for (std::size_t from = begin + 1; from < end;) {
    std::size_t to = std::min(schema.find(", ", from), end);
    std::string_view one = schema.substr(from, to - from);
    if (one != "*") {
      one = one.substr(0, one.find('='));
      if (one.size() > name.size() && one.ends_with(name) &&
          one[one.size() - name.size() - 1] == ' ') {
        return at;
      }
      ++at;
    }
    from = to + 2;
  }
  return -1;
}

bool Call::give(std::size_t k, Layout layout) {
  if (k >= outs_.size() || !has_sizes(layout.dims, out_shape(k))) return false;
  given_[k] = std::move(layout);
  return true;
}

void Call::set_list(std::size_t at, const std::vector<Change>& values) {
  if (at >= inputs_.size() || inputs_[at].kind != Argument::Kind::kList) return;
  const auto elements = graph().elements(inputs_[at]);
  if (elements.size() != values.size()) return;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool is_size = elements[i].kind == Argument::Kind::kInt && elements[i].integer != -1;
    if (is_size && elements[i].integer == values[i].was) {
      tracker_.set_integer(elements[i], values[i].now);
    }
  }
}

void Call::set_sizes(std::size_t at, const Dims& dims) {
  std::vector<Change> sizes;
  for (const Dim& dim : dims) sizes.push_back({dim.size, now(dim)});
  set_list(at, sizes);
}

void Call::set_strides(std::size_t at, const std::vector<Change>& strides) {
  set_list(at, strides);
}

Dim Call::open(std::size_t k, std::size_t d, std::int64_t size, std::int32_t like) {
  const std::uint64_t key = (static_cast<std::uint64_t>(index_) << 16) + (k << 6) + d;
  return tracker_.open(key, size, like);
}

Rule find_rule(std::string_view name) {
  static const auto kRules = [] {
    std::unordered_map<std::string_view, Rule> all;
    for (const auto table :
         {view_rules(), creation_rules(), compute_rules(), lookup_rules(), expert_rules()}) {
      for (const NamedRule& named : table) all.emplace(named.name, named.rule);
    }
    return all;
  }();
  const Op* op = find_op(name);
  const std::string_view named = op ? size_rule(*op) : std::string_view();
  if (named.empty()) return nullptr;
  const auto rule = kRules.find(named);
  PERFMODEL_CHECK(rule != kRules.end());  // a row names a rule that no table has
  return rule->second;
}

ApplyRule rules_of(const ExecutionGraph& graph) {
  return [&graph, rules = std::vector<std::optional<Rule>>(graph.names.size())](
             Tracker& tracker, std::int32_t index) mutable {
    const Node& node = graph.node(index);
    std::optional<Rule>& rule = rules[node.name];
    if (!rule) rule = find_rule(graph.name(node));
    std::vector<std::optional<Layout>> given;
    if (*rule) {
      Call call(tracker, index);
      (*rule)(call);
      given = call.take();
    }
    return given;
  };
}

Dim plus(Dim dim, std::int64_t number) {
  dim.size += number;
  if (dim.scales()) dim.offset += number;
  dim.hole_add += number;
  if (number != 0) dim.factors.clear();
  return dim;
}

std::int64_t axis(std::int64_t dim, std::size_t rank) {
  return dim < 0 ? dim + static_cast<std::int64_t>(rank) : dim;
}

Dim merged(Call& call, const Dims& dims) {
  if (dims.size() == 1) return dims.front();
  Dim made;
  std::int64_t offset_times = 0;
  const std::int64_t was = call.tracker().was();
  bool taken = false;
  for (const Dim& dim : dims) {
    made.size *= dim.size;
    made.power += dim.power;
    // A change of the whole dimension goes to the part that can take it.
    const bool can = was > 1 && dim.size % was == 0;
    if (dim.hole >= 0 && (made.hole < 0 || (can && !taken))) {
      made.hole = dim.hole;
      taken = can;
    }
    if (dim.factors.empty()) {
      made.factors.push_back(dim);
    } else {
      made.factors.insert(made.factors.end(), dim.factors.begin(), dim.factors.end());
    }
    offset_times += dim.offset != 0;
  }
  if (offset_times > 0) {
    // (a X + b) * c is still of that form; products of two that change are not.
    const bool one_scales =
        std::count_if(dims.begin(), dims.end(), [](const Dim& dim) { return dim.scales(); }) == 1;
    if (!one_scales) {
      call.refuse("a product of sizes that is no multiple of a power of the one that changes");
      return made;
    }
    for (const Dim& dim : dims) {
      if (dim.offset != 0)
        made.offset = dim.offset * (made.size / std::max<std::int64_t>(dim.size, 1));
    }
  }
  return made;
}

std::optional<std::vector<Change>> dense_strides(const Tracker& tracker, const Dims& dims,
                                                 const std::vector<std::int64_t>& recorded) {
  if (dims.size() != recorded.size()) return {};
  std::vector<std::size_t> order(dims.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return recorded[a] > recorded[b]; });
  std::vector<Change> strides(dims.size());
  Change stride = {1, 1};
  for (std::size_t i = order.size(); i-- > 0;) {
    const Dim& dim = dims[order[i]];
    if (recorded[order[i]] != stride.was && dim.size != 1) return {};
    // One element may have any stride.
    const bool any = recorded[order[i]] != stride.was && tracker.now(dim) == 1;
    strides[order[i]] = {recorded[order[i]], any ? Number(recorded[order[i]]) : stride.now};
    stride.was *= std::max<std::int64_t>(dim.size, 1);
    stride.now *= at_least_one(tracker.now(dim));
  }
  return strides;
}

}  // namespace perfmodel::resize
