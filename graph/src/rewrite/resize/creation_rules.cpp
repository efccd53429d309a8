#include <algorithm>

#include "call.hpp"
#include "ops/catalogue.hpp"

namespace perfmodel::resize {
namespace {

// The dimensions of one of an op's tensors, if their sizes are those.
std::optional<Dims> whole_shape(Tracker& tracker, std::span<const Argument> arguments,
                                std::span<const std::int64_t> sizes) {
  std::optional<Dims> found;
  for_each_tensor(tracker.graph(), arguments, [&](const Tensor& tensor) {
    const Layout* layout = tracker.layout_of(tensor);
    if (found || !layout || !layout->scales() || layout->dims.size() != sizes.size()) return;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      if (layout->dims[d].size != sizes[d]) return;
    }
    found = layout->dims;
  });
  return found;
}

// Finds a size or a number of elements in a sibling tensor; gives no answer if a constant one is
// the same.
struct Beside {
  std::int64_t size;
  Tracker& tracker;
  std::optional<Dim> found = {};
  bool stays = false;

  void look(std::span<const Argument> arguments) {
    for_each_tensor(tracker.graph(), arguments, [&](const Tensor& tensor) {
      const Layout* layout = tracker.layout_of(tensor);
      if (!layout) return;
      int power = 0;
      bool plain = true;
      std::int64_t numel = 1;
      for (const Dim& dim : layout->dims) {
        take(dim);
        power += dim.power;
        plain &= dim.offset == 0;
        numel *= dim.size;
      }
      if (plain && power != 0) take({.size = numel, .power = power});
    });
  }

  void take(const Dim& dim) {
    if (!dim.scales()) {
      stays |= dim.size == size;
    } else if (dim.size == size) {
      found = dim;
    } else if (dim.size + 1 == size && !found) {
      found = plus(dim, 1);
    }
  }
};

std::optional<Dim> beside(Call& call, std::int64_t size) {
  if (size <= 1) return {};
  const ExecutionGraph& graph = call.graph();
  Beside search{.size = size, .tracker = call.tracker()};
  std::int32_t at = call.node().parent;
  for (int level = 0; level < 3 && at >= 0; ++level) {
    const Node& parent = graph.node(at);
    if (parent.is_label) break;
    search.look(graph.inputs(parent));
    for (std::int32_t child : graph.children(parent)) {
      if (child >= call.index()) break;
      const Node& sibling = graph.node(child);
      search.look(graph.inputs(sibling));
      search.look(graph.outputs(sibling));
    }
    if (search.found) break;
    at = parent.parent;
  }
  return search.stays ? std::nullopt : search.found;
}

void created(Call& call, std::size_t sizes_at) {
  if (call.out_count() == 0) return;
  Dims dims = dims_of_sizes(call, call.out_shape(0));
  call.set_sizes(sizes_at, dims);
  call.give(0, std::move(dims));
}

// cuDNN's workspace and the memory that it keeps for its backward pass: so many bytes per sample
// and step.
bool recurrent_memory(Call& call) {
  const ExecutionGraph& graph = call.graph();
  if (call.node().parent < 0 || call.out_count() != 1 || call.out_shape(0).size() != 1)
    return false;
  const Node& op = graph.node(call.node().parent);
  const auto inputs = graph.inputs(op);
  if (!graph.name(op).starts_with("aten::_cudnn_rnn") || inputs.empty() ||
      inputs[0].kind != Argument::Kind::kTensor || call.out(0).dtype != DType::kUInt8) {
    return false;
  }
  const Layout* x = call.tracker().layout_of(graph.tensors[inputs[0].index]);
  if (!x || x->dims.size() != 3) return false;
  const Dims dims = {{.size = call.out(0).numel, .power = x->dims[0].power + x->dims[1].power}};
  call.set_sizes(0, dims);
  call.give(0, Dims(dims));
  return true;
}

// cuBLASLt gets as much memory for any product.
bool product_workspace(Call& call) {
  const ExecutionGraph& graph = call.graph();
  if (call.node().parent < 0 || call.out_count() != 1 || call.out(0).dtype != DType::kUInt8) {
    return false;
  }
  const Node& op = graph.node(call.node().parent);
  const Op* product = find_op(graph.name(op));
  if (!product || !product->has_addend) return false;
  call.give(0, Dims{constant(call.out(0).numel)});
  return true;
}

void create(Call& call) {
  if (!recurrent_memory(call) && !product_workspace(call)) created(call, 0);
}
void create_new(Call& call) { created(call, 1); }

void create_strided(Call& call) {
  if (call.out_count() == 0) return;
  const std::size_t sizes_at = call.in(0) ? 1 : 0;  // new_empty_strided has a tensor in front
  Layout made = call.tracker().contiguous(dims_of_sizes(call, call.out_shape(0)));
  const auto recorded = call.integers(sizes_at + 1);
  if (auto strides = dense_strides(call.tracker(), made.dims, recorded)) {
    made.strides = std::move(*strides);
  }
  call.set_sizes(sizes_at, made.dims);
  call.set_strides(sizes_at + 1, made.strides);
  call.give(0, std::move(made));
}

void resize(Call& call) {
  if (call.out_count() == 0) return;
  Dims dims = dims_of_sizes(call, call.out_shape(0));
  call.set_sizes(1, dims);
  call.give(0, std::move(dims));
}

void set(Call& call) {  // set_(x, storage, offset, size, stride)
  if (call.out_count() == 0) return;
  Layout made = call.tracker().contiguous(dims_of_sizes(call, call.out_shape(0)));
  call.set_sizes(3, made.dims);
  call.set_strides(4, made.strides);
  call.give(0, std::move(made));
}

void arange(Call& call) {
  if (call.out_count() == 0 || call.out_shape(0).size() != 1) return;
  const Dims dims = dims_of_sizes(call, call.out_shape(0));
  for (std::size_t at : {std::size_t{0}, std::size_t{1}}) {  // end; start, end
    const auto end = call.integer(at);
    const bool numbered = end && *end == dims[0].size && (at == 0 || call.integer(0) == 0);
    if (numbered) {
      call.set(at, call.now(dims[0]));
      break;
    }
  }
  call.give(0, dims);
}

}  // namespace

Dims dims_of_sizes(Call& call, std::span<const std::int64_t> sizes) {
  Tracker& tracker = call.tracker();
  if (call.out_count() == 1) {
    if (const auto promise = tracker.promised(call.out(0))) {
      if (promise->dims.size() == sizes.size()) return promise->dims;
    }
  }
  if (const auto promise = tracker.promised_shape(sizes)) return *promise;
  const ExecutionGraph& graph = tracker.graph();
  if (const std::int32_t forward = tracker.forward_op(call.index()); forward >= 0) {
    const Node& op = graph.node(forward);
    if (auto dims = whole_shape(tracker, graph.inputs(op), sizes)) return *dims;
    if (auto dims = whole_shape(tracker, graph.outputs(op), sizes)) return *dims;
  }
  // If the tensor is empty, a size that equals the batch is a coincidence.
  const bool is_empty = std::ranges::find(sizes, 0) != sizes.end();
  Dims dims;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    Dim dim = call.open(0, d, sizes[d]);
    if (!dim.scales() && !is_empty) {
      if (const auto known = beside(call, sizes[d])) dim = *known;
    }
    dims.push_back(dim);
  }
  return dims;
}

std::span<const NamedRule> creation_rules() {
  static constexpr NamedRule kRules[] = {
      {"create", create},
      {"create_new", create_new},
      {"create_strided", create_strided},
      {"resize", resize},
      {"set", set},
      {"arange", arange},
  };
  return kRules;
}

}  // namespace perfmodel::resize
