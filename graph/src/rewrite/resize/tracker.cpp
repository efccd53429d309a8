#include "tracker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ops/catalogue.hpp"

namespace perfmodel::resize {
namespace {

constexpr int kMostPasses = 64;
constexpr double kMostElements = 0x1p60;
// Holes of inputs: number of the External, dimension.
constexpr std::uint64_t kExternalKey = std::uint64_t{1} << 60;
constexpr int kDimBits = 6;
constexpr std::uint64_t kDimMask = (1 << kDimBits) - 1;

// Ops that write into their inputs; others whose names end alike change no value.
bool writes_in_place(std::string_view name) {
  if (!name.ends_with('_') || name.ends_with("__")) return false;
  for (std::string_view other : {"detach_", "resize_", "as_strided_", "squeeze_", "unsqueeze_",
                                 "transpose_", "t_", "set_", "requires_grad_"}) {
    if (name.substr(name.find("::") == std::string_view::npos ? 0 : name.find("::") + 2) == other) {
      return false;
    }
  }
  return true;
}

// Whether an op may tell which dimension of its input is time.
bool may_tell_time(const ExecutionGraph& graph) {
  for (NameId name = 0; name < graph.names.size(); ++name) {
    const Op* op = find_op(graph.names.text(name));
    const std::string_view rule = op ? size_rule(*op) : std::string_view();
    if (rule.starts_with("recurrent") || rule == "unbind") return true;
  }
  return false;
}

std::vector<std::int32_t> last_below(const ExecutionGraph& graph) {
  std::vector<std::int32_t> last(graph.nodes.size());
  for (std::size_t i = 0; i < last.size(); ++i) last[i] = static_cast<std::int32_t>(i);
  for (std::size_t i = last.size(); i-- > 0;) {
    const std::int32_t parent = graph.nodes[i].parent;
    if (parent >= 0 && static_cast<std::size_t>(parent) < i) {
      auto& of_parent = last[parent];
      of_parent = std::max(of_parent, last[i]);
    }
  }
  return last;
}

}  // namespace

Tracker::Tracker(const ExecutionGraph& graph, ApplyRule apply_rule, Seeds seeds,
                 std::vector<External> externals, Tape* tape)
    : graph_(graph),
      apply_rule_(std::move(apply_rule)),
      seeds_(std::move(seeds)),
      tape_(tape),
      last_below_(last_below(graph)),
      partners_(forward_partners(graph)),
      externals_(std::move(externals)),
      entered_(graph.nodes.size()),
      only_externals_(seeds_.none() && !may_tell_time(graph)) {}

Number Tracker::now(const Dim& dim) const {
  if (!dim.scales() || seeds_.was == seeds_.now) return dim.size;
  const auto factor = static_cast<double>(dim.size - dim.offset);
  const double divisor = power_of(seeds_.was, dim.power);
  return {size_after(factor, power_of(seeds_.now, dim.power), divisor, dim.offset),
          tape_ ? tape_->size(factor, dim.power, divisor, dim.offset) : nullptr};
}

bool Tracker::fill(const Dim& dim, int power, std::int64_t offset) {
  if (dim.hole < 0 || power == 0) return false;
  Hole& hole = holes_[dim.hole];
  if (hole.filled) return false;
  hole.filled = true;
  hole.power = power;
  hole.offset = dim.size - dim.hole_add == hole.size ? offset - dim.hole_add : 0;
  filled_ = true;
  if (hole.like >= 0) {
    Dim other{.size = holes_[hole.like].size, .hole = hole.like};
    fill(other, power, 0);
  }
  return true;
}

void Tracker::unify(const Dim& a, const Dim& b, std::int32_t node) {
  if (a.same_form(b) || a.size != b.size) return;
  // If the dimension is batch times heads, a cut of the heads goes to the heads.
  if (seeds_.model_too && !a.factors.empty() &&
      std::ranges::equal(a.factors, b.factors, {}, &Dim::size, &Dim::size)) {
    for (std::size_t i = 0; i < a.factors.size(); ++i) unify(a.factors[i], b.factors[i], node);
    return;
  }
  if (!a.scales() && fill(a, b.power, b.offset)) return;
  if (!b.scales() && fill(b, a.power, a.offset)) return;
  if (filled_) return;  // another pass will tell
  contradicts_ |= !refused_;
  refuse(node, fmt::format("expected equal sizes, found two of {} of which one stays or changes "
                           "otherwise",
                           a.size));
}

Dim Tracker::open(std::uint64_t key, std::int64_t size, std::int32_t like) {
  const auto [at, inserted] = hole_keys_.try_emplace(key, static_cast<std::int32_t>(holes_.size()));
  if (inserted) holes_.push_back({.size = size, .like = like, .key = key});
  const Hole& hole = holes_[at->second];
  Dim dim{.size = size};
  if (hole.filled) {
    dim.power = hole.power;
    dim.offset = hole.offset;
  } else {
    dim.hole = at->second;
  }
  return dim;
}

Layout Tracker::contiguous(Dims dims) const {
  Layout layout{.dims = std::move(dims)};
  layout.strides.resize(layout.dims.size());
  Change stride = {1, 1};
  for (std::size_t i = layout.dims.size(); i-- > 0;) {
    layout.strides[i] = stride;
    stride.was *= std::max<std::int64_t>(layout.dims[i].size, 1);
    stride.now *= at_least_one(now(layout.dims[i]));
  }
  return layout;
}

bool Tracker::same_shape(const Tensor& tensor, const Layout& layout) const {
  const auto sizes = graph_.shape(tensor);
  return std::equal(sizes.begin(), sizes.end(), layout.dims.begin(), layout.dims.end(),
                    [](std::int64_t size, const Dim& dim) { return size == dim.size; });
}

Tracker::Version* Tracker::find(const Tensor& tensor) {
  Version* of_id = by_id_[tensor.id];
  if (of_id && !same_shape(tensor, of_id->layout)) of_id = nullptr;
  if (tensor.storage_id == 0 || (of_id && of_id->storage == tensor.storage_id)) return of_id;
  // A tensor that autograd kept comes back under another id with the same storage. That id may be
  // one that another tensor had.
  Version* same = by_storage_[tensor.storage_id];
  for (int left = same ? same->views : 0; left > 0; --left, same = same->before) {
    if (same->layout.offset.was == tensor.offset && same_shape(tensor, same->layout)) return same;
  }
  return of_id;
}

Tracker::Version& Tracker::define(const Tensor& tensor, Layout layout) {
  constexpr std::size_t kPiece = 64;
  if (versions_.empty() || versions_.back().size() == kPiece) {
    versions_.emplace_back().reserve(kPiece);
  }
  versions_.back().push_back(
      {.layout = std::move(layout), .storage = tensor.storage_id, .written = ++clock_});
  Version& made = versions_.back().back();
  if (made.layout.offset.was != tensor.offset) made.layout.offset = {tensor.offset, tensor.offset};
  by_id_[tensor.id] = &made;
  if (tensor.storage_id != 0) {
    constexpr int kKept = 64;  // a storage that lives long has views without end
    Version*& latest = by_storage_[tensor.storage_id];
    made.before = latest;
    made.views = 1 + (!latest ? 0 : latest->views >= kKept ? kKept / 2 : latest->views);
    latest = &made;
  }
  return made;
}

// Gradients and tensors that optimizers and collectives keep are no inputs.
bool Tracker::after_forward(std::int32_t node) const {
  const auto holds = [&](std::int32_t i) {
    const std::string_view name = graph_.name(i);
    return graph_.node(i).scope == Scope::kBackward || name.starts_with("autograd::engine") ||
           name.starts_with("Optimizer.") || name.starts_with("torch.distributed");
  };
  return graph_.find_around(node, holds) >= 0;
}

Tracker::Version& Tracker::make_external(std::uint32_t index, std::int32_t reader) {
  const Tensor& tensor = graph_.tensors[index];
  const std::size_t number = externals_met_++;
  if (number == externals_.size()) {
    externals_.push_back({.tensor = index, .state = after_forward(reader)});
  }
  const External& external = externals_[number];
  if (seeds_.dims_of && number == seeds_.dims.size()) {
    seeds_.dims.push_back(seeds_.dims_of(index));
  }
  Dims dims;
  const auto sizes = graph_.shape(tensor);
  const bool scouts = seeds_.none();
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    const bool of_model = external.state || external.weight;
    const bool stays = seeds_.model_too ? !is_floating_point(tensor.dtype) : of_model;
    if (!scouts && (number >= seeds_.dims.size() || stays)) {
      dims.push_back(constant(sizes[d]));
    } else if (!scouts && d < seeds_.dims[number].size() && seeds_.dims[number][d]) {
      dims.push_back({.size = sizes[d], .power = 1});
    } else {
      dims.push_back(open(kExternalKey + (number << kDimBits) + d, sizes[d]));
    }
  }
  Layout layout = contiguous(std::move(dims));
  layout.external = static_cast<std::int32_t>(number);
  return define(tensor, std::move(layout));
}

Tracker::Version& Tracker::read(std::uint32_t index, std::int32_t reader) {
  const Tensor& tensor = graph_.tensors[index];
  Version* known = find(tensor);
  // An op above allocates its result unseen, and ops below it write it.
  for (auto promise = promises_.rbegin(); promise != promises_.rend(); ++promise) {
    if (promise->id != tensor.id || promise->storage != tensor.storage_id ||
        !same_shape(tensor, promise->layout)) {
      continue;
    }
    if (!known || known->written <= promise->clock) known = &define(tensor, promise->layout);
    break;
  }
  Version& version = known ? *known : make_external(index, reader);
  of_tensor_[index] = &version;
  return version;
}

const Layout* Tracker::layout_of(const Tensor& tensor) {
  const auto index = static_cast<std::size_t>(&tensor - graph_.tensors.data());
  return of_tensor_[index] ? &of_tensor_[index]->layout : nullptr;
}

std::optional<Layout> Tracker::promised(const Tensor& tensor) const {
  for (auto promise = promises_.rbegin(); promise != promises_.rend(); ++promise) {
    if (promise->id == tensor.id && promise->storage == tensor.storage_id &&
        same_shape(tensor, promise->layout)) {
      return promise->layout;
    }
  }
  return {};
}

std::optional<Dims> Tracker::promised_shape(std::span<const std::int64_t> sizes) const {
  for (auto promise = promises_.rbegin(); promise != promises_.rend(); ++promise) {
    const Dims& dims = promise->layout.dims;
    if (promise->layout.scales() &&
        std::equal(dims.begin(), dims.end(), sizes.begin(), sizes.end(),
                   [](const Dim& dim, std::int64_t size) { return dim.size == size; })) {
      return dims;
    }
  }
  return {};
}

void Tracker::set_integer(const Argument& argument, const Number& value) {
  if (!value.step() && value.value() == argument.integer) return;
  integers_.push_back({static_cast<std::uint32_t>(&argument - graph_.arguments.data()), value});
}

void Tracker::set_list(const Argument& argument, const Number& length, std::vector<Number> values) {
  lists_.push_back(
      {static_cast<std::uint32_t>(&argument - graph_.arguments.data()), length, std::move(values)});
}

void Tracker::set_real(const Argument& argument, const Real& value) {
  reals_.push_back({static_cast<std::uint32_t>(&argument - graph_.arguments.data()), value});
}

void Tracker::refuse(std::int32_t node, std::string why) {
  if (refused_) return;
  const Node& at = graph_.node(node);
  refused_ = Error{.code = ErrorCode::kImpossible,
                   .message = fmt::format("{} (node {}): {}", graph_.name(at), at.id, why)};
}

void Tracker::note_time_first(const Dim& steps, int most_rank) {
  if (steps.hole < 0) return;
  const std::uint64_t key = holes_[steps.hole].key;
  const bool first_of_input = key >= kExternalKey && ((key - kExternalKey) & kDimMask) == 0;
  if (!first_of_input) return;
  External& input = externals_[(key - kExternalKey) >> kDimBits];
  if (graph_.tensors[input.tensor].rank <= most_rank) input.time_first = true;
}

std::int32_t Tracker::forward_op(std::int32_t node) const {
  const std::int32_t function = graph_.find_around(
      node, [&](std::int32_t i) { return graph_.node(i).scope == Scope::kBackward; });
  return function < 0 ? -1 : partners_[function];
}

template <class Visit>
void Tracker::each_tensor(std::span<const Argument> arguments, Visit&& visit) const {
  for (const Argument& argument : arguments) {
    if (argument.kind == Argument::Kind::kTensor) visit(argument.index);
    if (argument.kind == Argument::Kind::kList) each_tensor(graph_.elements(argument), visit);
  }
}

void Tracker::note_state(const Node& node) {
  const auto inputs = graph_.inputs(node);
  const std::string_view name = graph_.name(node);
  const auto external_of = [&](std::uint32_t tensor) -> External* {
    const std::int32_t external = of_tensor_[tensor]->layout.external;
    return external < 0 ? nullptr : &externals_[external];
  };
  if (writes_in_place(name) && !inputs.empty()) {
    each_tensor(inputs.first(1), [&](std::uint32_t tensor) {
      if (External* external = external_of(tensor)) external->state = true;
    });
  }
  const Op* op = find_op(name);
  for (std::size_t position = 0; op && position < inputs.size(); ++position) {
    if (!op->weights.has(position)) continue;
    each_tensor(inputs.subspan(position, 1), [&](std::uint32_t tensor) {
      if (External* external = external_of(tensor)) external->weight = true;
    });
  }
  if (name == "aten::pin_memory" && !inputs.empty() && inputs[0].kind == Argument::Kind::kTensor) {
    if (External* external = external_of(inputs[0].index)) external->from_host = true;
  }
  if (is_copy(name) && inputs.size() > 1 && inputs[1].kind == Argument::Kind::kTensor &&
      inputs[0].kind == Argument::Kind::kTensor && graph_.tensors[inputs[0].index].on_gpu() &&
      graph_.tensors[inputs[1].index].on_cpu()) {
    if (External* external = external_of(inputs[1].index)) external->from_host = true;
  }
}

void Tracker::enter(std::int32_t index) {
  const Node& node = graph_.node(index);
  bool reads_external = false;
  each_tensor(graph_.inputs(node), [&](std::uint32_t tensor) {
    const Layout& layout = read(tensor, index).layout;
    reads_external |= layout.external >= 0;
    if (layout.squeezed && !gives_strides(graph_.name(node))) {
      refuse(index, "it reads what a squeeze makes, whose rank would change");
    }
  });
  entered_[index] = clock_;
  if (node.is_label) return;
  if (seeds_.none() && reads_external) note_state(node);
  if (node.inputs_count == 0 && node.outputs_count == 0) return;
  // Views of an external are the same external, and ops above others promise their results.
  std::vector<std::optional<Layout>> given;
  if (!only_externals_ || reads_external || node.children_count > 0) {
    given = apply_rule_(*this, index);
  }
  if (node.children_count > 0) {
    const std::size_t promises = promises_.size();
    std::vector<std::pair<std::int64_t, std::int64_t>> inputs;  // id and storage
    for_each_tensor(graph_, graph_.inputs(node), [&](const Tensor& tensor) {
      inputs.emplace_back(tensor.id, tensor.storage_id);
    });
    std::sort(inputs.begin(), inputs.end());
    std::size_t k = 0;
    each_tensor(graph_.outputs(node), [&](std::uint32_t tensor) {
      const Tensor& out = graph_.tensors[tensor];
      const std::optional<Layout>* layout = k < given.size() ? &given[k] : nullptr;
      ++k;
      if (!layout || !*layout) return;
      const bool input =
          std::binary_search(inputs.begin(), inputs.end(), std::pair(out.id, out.storage_id));
      if (!input) promises_.push_back({out.id, out.storage_id, **layout, clock_});
    });
    open_.push_back({index, promises, std::move(given)});
  } else {
    leave(index, std::move(given));
  }
}

void Tracker::leave(std::int32_t index, std::vector<std::optional<Layout>> given) {
  const Node& node = graph_.node(index);
  if (node.outputs_count == 0) return;
  const auto any_input = [&](auto&& holds) {
    bool any = false;
    each_tensor(graph_.inputs(node), [&](std::uint32_t tensor) { any = any || holds(tensor); });
    return any;
  };
  const bool scales =
      any_input([&](std::uint32_t tensor) { return of_tensor_[tensor]->layout.scales(); });
  std::size_t k = 0;
  each_tensor(graph_.outputs(node), [&](std::uint32_t tensor) {
    const Tensor& out = graph_.tensors[tensor];
    Layout* layout = k < given.size() && given[k] ? &*given[k] : nullptr;
    ++k;
    Version* version = by_id_[out.id];
    const auto is_out = [&](std::uint32_t one) { return graph_.tensors[one].id == out.id; };
    const bool kept = version && (version->written > entered_[index] || any_input(is_out));
    if (kept && same_shape(out, version->layout)) {
      if (layout && layout->non_zeros) version->layout.non_zeros = layout->non_zeros;
    } else if (layout) {
      version = &define(out, std::move(*layout));
    } else {
      Version* stored = out.storage_id != 0 && node.children_count > 0 ? find(out) : nullptr;
      if (stored && stored->written > entered_[index]) {
        version = &define(out, stored->layout);
      } else {
        Dims dims;
        for (std::int64_t size : graph_.shape(out)) dims.push_back(constant(size));
        if (scales && !dims.empty() && out.numel > 0) {
          refuse(index, "no rule says how its output changes with its inputs");
        }
        version = &define(out, contiguous(std::move(dims)));
      }
    }
    of_tensor_[tensor] = version;
  });
}

void Tracker::pass() {
  versions_.clear();
  by_id_ = by_storage_ = ById<Version*>(graph_.tensors.size());
  promises_.clear();
  open_.clear();
  integers_.clear();
  reals_.clear();
  lists_.clear();
  of_tensor_.assign(graph_.tensors.size(), nullptr);
  externals_met_ = 0;
  clock_ = 0;
  filled_ = false;
  refused_.reset();
  contradicts_ = false;
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    enter(static_cast<std::int32_t>(i));
    while (!open_.empty()) {
      // Threads interleave: what ends here need not be the innermost.
      const auto done = std::find_if(open_.rbegin(), open_.rend(), [&](const Open& open) {
        return last_below_[open.node] <= static_cast<std::int32_t>(i);
      });
      if (done == open_.rend()) break;
      Open ended = std::move(*done);
      leave(ended.node, std::move(ended.given));
      if (done == open_.rbegin()) promises_.resize(ended.promises);
      open_.erase(std::next(done).base());
    }
  }
}

Result<void> Tracker::run() {
  if (seeds_.none()) {  // a run that only learns the tensors from outside
    pass();
    return {};
  }
  for (int i = 0; i < kMostPasses; ++i) {
    pass();
    if (!filled_) break;
  }
  if (refused_) return Unexpected{*refused_};
  return {};
}

Result<Edits> Tracker::edits() const {
  Edits made;
  made.integers = integers_;
  made.reals = reals_;
  made.lists = lists_;
  made.sizes.reserve(graph_.shape_pool.size());
  for (std::uint32_t t = 0; t < graph_.tensors.size(); ++t) {
    const Version* version = of_tensor_[t];
    if (!version) continue;
    const Tensor& tensor = graph_.tensors[t];
    const Layout& layout = version->layout;
    if (layout.squeezed) {
      Edits::Shape& shape = made.shapes.emplace_back();
      shape.tensor = t;
      for (const Left& left : *layout.squeezed) shape.sizes.push_back(left.size);
      continue;
    }
    Real elements = 1;
    std::int64_t was = 1;
    Number numel = 1;
    for (std::size_t d = 0; d < layout.dims.size(); ++d) {
      const Number size = now(layout.dims[d]);
      elements *= Real(size);
      if (!(magnitude(elements) < kMostElements)) {
        return fail(ErrorCode::kImpossible,
                    fmt::format("expected tensors of less than 2^60 elements, found {:.3g}",
                                elements.value()));
      }
      was *= layout.dims[d].size;
      numel *= size;
      made.sizes.push_back({tensor.shape_begin + static_cast<std::uint32_t>(d), size});
    }
    if (tensor.numel == was) made.numels.push_back({t, numel});
    if (tensor.offset == layout.offset.was) made.offsets.push_back({t, layout.offset.now});
  }
  return made;
}

}  // namespace perfmodel::resize
