#include "traced_batch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ops/catalogue.hpp"
#include "ops/result_sizes.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "step/autograd_names.hpp"

namespace perfmodel {
namespace {

using Sizes = std::vector<std::int64_t>;

constexpr std::int64_t kLargestTracedSize = std::int64_t{1} << 40;

// The part of the step that a node is in.
enum class Zone : std::uint8_t {
  kForward,
  kBackward,    // in a function of the autograd engine
  kParameters,  // works on parameters and their gradients: AccumulateGrad, transposes of weights
  kOptimizer
};

struct TensorAt {
  std::size_t position = 0;  // index of the argument that it is or is listed in
  std::uint32_t tensor = 0;
};

Result<void> check_sizes_recorded(const ExecutionGraph& graph) {
  if (!lacks_sizes(graph)) return {};
  return fail(ErrorCode::kImpossible,
              "expected a trace with shapes (record_shapes=True) for "
              "another batch, found none",
              graph.source);
}

std::vector<TensorAt> tensors_of(const ExecutionGraph& graph, const Node& node) {
  std::vector<TensorAt> found;
  const auto inputs = graph.inputs(node);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for_each_tensor(graph, inputs.subspan(i, 1), [&](const Tensor& tensor) {
      found.push_back({i, static_cast<std::uint32_t>(&tensor - graph.tensors.data())});
    });
  }
  return found;
}

bool is_optimizer_label(std::string_view name) {
  return name.starts_with("Optimizer.") || name == "## optimizer ##";
}

bool is_about_parameters(std::string_view name) {
  if (name.starts_with(kEvaluate)) name.remove_prefix(kEvaluate.size());
  return name.starts_with(kAccumulate) || name.starts_with("TBackward");
}

std::vector<Zone> zones_of(const ExecutionGraph& graph) {
  std::vector<Zone> zones(graph.nodes.size(), Zone::kForward);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const std::string_view name = graph.name(node);
    if (node.parent >= 0) zones[i] = zones[node.parent];
    if (is_optimizer_label(name)) zones[i] = Zone::kOptimizer;
    if (zones[i] == Zone::kForward && node.scope == Scope::kBackward) zones[i] = Zone::kBackward;
    if (zones[i] != Zone::kOptimizer && is_about_parameters(name)) zones[i] = Zone::kParameters;
  }
  return zones;
}

// Ops of one family whose tensors of one dimension are indices and offsets, not parameters.
bool takes_indices(const Op* op) {
  return op && (op->kind == OpKind::kEmbedding || op->kind == OpKind::kIndex);
}

/// Collects the sizes of the graph as a whole.
class Knowledge {
 public:
  Knowledge(const ExecutionGraph& graph, std::span<const Zone> zones, std::int64_t batch)
      : graph_(graph), batch_(batch) {
    find_parameters(zones);
    find_batched(zones);
  }

  bool is_parameter(std::span<const std::int64_t> sizes) const {
    return parameters_.contains(Sizes(sizes.begin(), sizes.end()));
  }
  /// A size in front of a tensor that grows with the batch.
  bool is_batched(std::int64_t size) const { return batched_.contains(size); }
  bool is_lookups(std::int64_t size) const { return lookups_.contains(size); }
  std::int64_t batch() const { return batch_; }
  /// The batch of the step, or of all ranks of a group.
  bool is_batch(std::int64_t size) const { return batches_.contains(size); }

 private:
  std::span<const std::int64_t> shape(std::uint32_t tensor) const {
    return graph_.shape(graph_.tensors[tensor]);
  }
  void add_parameter(std::span<const std::int64_t> sizes) {
    if (sizes.empty()) return;
    parameters_.emplace(sizes.begin(), sizes.end());
    if (sizes.size() == 2) parameters_.insert({sizes[1], sizes[0]});
  }

  void find_parameters(std::span<const Zone> zones) {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      const std::string_view name = graph_.name(node);
      const Op* op = find_op(name);
      const bool accumulates = zones[i] == Zone::kParameters && name == kAccumulate;
      if (!accumulates && (!op || op->weights.bits == 0)) continue;
      for (const auto [position, tensor] : tensors_of(graph_, node)) {
        if (accumulates || op->weights.has(position)) add_parameter(shape(tensor));
      }
    }
  }

  // Samples of the step, and of all ranks of a group together, as model-parallel embeddings see
  // them.
  void find_batches() {
    batches_.insert(batch_);
    for (const CommRecord& record : graph_.comm_records) {
      if (record.group_size > 1 && record.group_size <= kLargestTracedSize / batch_) {
        batches_.insert(batch_ * record.group_size);
      }
    }
    batched_.insert(batches_.begin(), batches_.end());
  }

  void find_batched(std::span<const Zone> zones) {
    find_batches();
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (zones[i] != Zone::kForward && zones[i] != Zone::kBackward) continue;
      const Op* op = find_op(graph_.name(graph_.nodes[i]));
      for (const auto [position, tensor] : tensors_of(graph_, graph_.nodes[i])) {
        if (op && op->weights.has(position)) continue;
        const auto sizes = shape(tensor);
        const Tensor& at = graph_.tensors[tensor];
        if (op && op->kind == OpKind::kEmbedding &&
            is_lookup_list(graph_.nodes[i], *op, position, at)) {
          lookups_.insert(sizes[0]);
        }
        if (!is_parameter(sizes)) add_products(sizes);
      }
    }
    batched_.erase(1);
    lookups_.erase(1);
    if (batch_ == 1) batched_.insert(1);
  }

  // Finds indices into tables. FBGEMM's calls list them with offsets and facts of their tables,
  // several of which have the same size.
  bool is_lookup_list(const Node& node, const Op& op, std::size_t position,
                      const Tensor& tensor) const {
    if (tensor.rank != 1 || tensor.numel <= 1 || is_floating_point(tensor.dtype)) return false;
    if (op.data.has(position)) return true;
    const bool offsets = (tensor.numel - 1) % batch_ == 0;  // T B + 1
    if (op.data.bits != 0 || tensor.numel <= batch_ || offsets) return false;
    std::size_t alike = 0;
    for_each_tensor(graph_, graph_.inputs(node), [&](const Tensor& other) {
      alike += other.rank == 1 && other.numel == tensor.numel && !is_floating_point(other.dtype);
    });
    return alike == 1;
  }

  // [B, S, H]: B, B S, B S H; [T, B, H], as recurrent layers have it: T B, T B H.
  void add_products(std::span<const std::int64_t> sizes) {
    if (sizes.size() < 2) return;
    const bool second = sizes[1] == batch_ ? sizes.size() > 2 : is_batch(sizes[1]);
    const std::size_t place = is_batch(sizes[0]) ? 0 : second ? 1 : 2;
    if (place > 1) return;
    double product = 1;
    std::int64_t size = 1;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      product *= static_cast<double>(sizes[d]);
      if (!(product <= static_cast<double>(kLargestTracedSize))) return;
      size *= sizes[d];
      if (d >= place && size > 0) batched_.insert(size);
    }
  }

  const ExecutionGraph& graph_;
  std::int64_t batch_;
  std::set<Sizes> parameters_;
  std::set<std::int64_t> batches_;
  std::unordered_set<std::int64_t> batched_, lookups_;
};

/// Which dimensions of the tensors of a node grow, and how.
class Growth {
 public:
  enum class How : std::uint8_t { kInProportion, kOffsets };  // offsets: T B + 1
  struct Dim {
    std::uint32_t tensor = 0;
    std::size_t at = 0;
    How how = How::kInProportion;
  };

  Growth(const ExecutionGraph& graph, std::span<const Zone> zones, const Knowledge& known)
      : graph_(graph), zones_(zones), known_(known), products_(graph.nodes.size()) {
    for (const Node& node : graph.nodes) {
      if (node.parent >= 0 && takes_two_matrices(node)) {
        ++products_[node.parent].in_all;
      }
    }
  }

  std::vector<Dim> run() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) visit(i);
    return std::move(grown_);
  }
  std::size_t ambiguous() const { return ambiguous_; }
  /// Arguments: the first number of a list of sizes that grows.
  const std::vector<std::uint32_t>& lists() const { return lists_; }

 private:
  struct Products {
    std::uint32_t in_all = 0, seen = 0;
  };

  std::span<const std::int64_t> shape(std::uint32_t tensor) const {
    return graph_.shape(graph_.tensors[tensor]);
  }
  void grow(std::uint32_t tensor, std::size_t at, How how = How::kInProportion) {
    grown_.push_back({tensor, at, how});
  }

  // Positions of the operands of a product of two matrices; nothing for other ops.
  std::optional<std::pair<std::size_t, std::size_t>> operands(const Node& node) const {
    const std::string_view name = graph_.name(node);
    if (!is_matrix_product(name)) return std::nullopt;
    const Op* op = find_op(name);
    const std::size_t first = op && op->has_addend ? 1 : 0;
    const auto inputs = graph_.inputs(node);
    if (inputs.size() < first + 2) return std::nullopt;
    for (std::size_t i = first; i < first + 2; ++i) {
      if (inputs[i].kind != Argument::Kind::kTensor || graph_.tensors[inputs[i].index].rank != 2) {
        return std::nullopt;
      }
    }
    return std::pair{first, first + 1};
  }
  bool takes_two_matrices(const Node& node) const { return operands(node).has_value(); }

  void visit(std::size_t index) {
    const Node& node = graph_.nodes[index];
    if (node.inputs_count == 0 || zones_[index] == Zone::kParameters) return;
    const Op* op = find_op(graph_.name(node));
    const auto both = zones_[index] == Zone::kOptimizer ? std::nullopt : operands(node);
    if (both) multiply(index, *both);
    if (joins_a_parameter(node, op)) return;
    const std::size_t before = grown_.size();
    for (const auto [position, tensor] : tensors_of(graph_, node)) {
      if (both && (position == both->first || position == both->second)) continue;
      if (op && op->weights.has(position)) continue;
      if (zones_[index] == Zone::kOptimizer) {
        update(tensor);
      } else {
        carry(tensor, op, node, zones_[index]);
      }
    }
    if (zones_[index] == Zone::kOptimizer && takes_indices(op)) add_indices(node, before);
    resize_lists(node, op);
  }

  // m x k times k x n.
  void multiply(std::size_t index, std::pair<std::size_t, std::size_t> positions) {
    const Node& node = graph_.nodes[index];
    const auto inputs = graph_.inputs(node);
    const std::uint32_t a = inputs[positions.first].index, b = inputs[positions.second].index;
    const std::int64_t m = shape(a)[0], k = shape(a)[1], n = shape(b)[1];
    const Sizes product{m, n};
    const bool by_weights = known_.is_parameter(shape(b)) && known_.is_batched(m);
    const bool of_weights = known_.is_parameter(shape(a)) && known_.is_batched(n);
    const bool gives_weights = known_.is_parameter(product) && known_.is_batched(k);
    const int readings = by_weights + of_weights + gives_weights;
    Products& siblings = products_[std::max(0, node.parent)];
    const bool last = ++siblings.seen == siblings.in_all;
    bool sums = gives_weights;
    if (readings > 1) {
      ++ambiguous_;
      sums = gives_weights && zones_[index] == Zone::kBackward && last;
    } else if (readings == 0) {
      sums = !known_.is_batched(m) && known_.is_batched(k);
    }
    if (sums) {
      grow(a, 1);
      grow(b, 0);
    } else if (by_weights || (readings == 0 && known_.is_batched(m))) {
      grow(a, 0);
    } else if (of_weights || known_.is_batched(n)) {
      grow(b, 1);
    }
  }

  bool has_matrix(const Node& node) const {
    bool any = false;
    for_each_tensor(graph_, graph_.inputs(node),
                    [&](const Tensor& tensor) { any |= tensor.rank > 1; });
    return any;
  }

  // Whether a tensor with the shape of a parameter can be data. Vectors are parameters, except as
  // indices, labels and losses or in functions of vectors. Tensors that autocast casts or that
  // convolutions take are parameters, too.
  bool may_be_data(const Tensor& tensor, std::span<const std::int64_t> sizes, const Op* op,
                   const Node& node) const {
    if (!op) return true;
    if (sizes.size() == 1) {
      const bool computes = op->kind == OpKind::kPointwise || op->kind == OpKind::kReduction;
      return takes_indices(op) || op->kind == OpKind::kLoss || !is_floating_point(tensor.dtype) ||
             (computes && !has_matrix(node));
    }
    const Op* parent = node.parent < 0 ? nullptr : find_op(graph_.name(node.parent));
    const bool casts = op->converts || (parent && parent->converts);
    return !casts && op->kind != OpKind::kView && op->kind != OpKind::kConvolution;
  }

  // Gradients of the parts of one parameter, put together.
  bool joins_a_parameter(const Node& node, const Op* op) const {
    if (!op || op->kind != OpKind::kConcat) return false;
    Sizes joined;
    for (const auto [position, tensor] : tensors_of(graph_, node)) {
      const auto sizes = shape(tensor);
      if (sizes.empty() || (!joined.empty() && joined.size() != sizes.size())) return false;
      if (joined.empty()) joined.assign(sizes.size(), 0);
      const std::int64_t rows = joined[0] + sizes[0];
      joined.assign(sizes.begin(), sizes.end());
      joined[0] = rows;
    }
    return known_.is_parameter(joined);
  }

  // A tensor of the forward or backward pass.
  void carry(std::uint32_t tensor, const Op* op, const Node& node, Zone zone) {
    const Tensor& at = graph_.tensors[tensor];
    const auto sizes = shape(tensor);
    if (sizes.empty()) return;
    if (known_.is_parameter(sizes)) {
      if (!may_be_data(at, sizes, op, node)) return;
      const std::size_t before = grown_.size();
      scale(tensor, sizes);
      ambiguous_ += grown_.size() > before;
      return;
    }
    const std::size_t before = grown_.size();
    scale(tensor, sizes);
    const bool array = sizes.size() == 1 && zone == Zone::kBackward && is_floating_point(at.dtype);
    const bool bytes = sizes.size() == 1 && at.dtype == DType::kUInt8;  // cuDNN's reserve
    if (grown_.size() == before && (array || bytes) && sizes[0] > 0 &&
        sizes[0] % known_.batch() == 0 && known_.batch() > 1) {
      grow(tensor, 0);
    }
  }

  void scale(std::uint32_t tensor, std::span<const std::int64_t> sizes) {
    if (known_.is_batched(sizes[0]) || known_.is_lookups(sizes[0])) return grow(tensor, 0);
    if (sizes.size() == 1) {
      if (sizes[0] > 1 && known_.is_batched(sizes[0] - 1) &&
          !is_floating_point(graph_.tensors[tensor].dtype)) {
        grow(tensor, 0, How::kOffsets);
      }
      return;
    }
    if (known_.batch() == 1 || (sizes.size() == 2 && sizes[0] <= 1)) return;
    // [T, B heads, d] of attention with the steps in front
    if (sizes.size() == 3 && sizes[0] > 1 && known_.is_batched(sizes[1]) &&
        sizes[0] <= kLargestTracedSize / sizes[1] && known_.is_batched(sizes[0] * sizes[1])) {
      return grow(tensor, 1);
    }
    for (std::size_t d = 1; d < std::min<std::size_t>(3, sizes.size()); ++d) {
      if (known_.is_batch(sizes[d]) || (d == 1 && known_.is_lookups(sizes[d]))) {
        return grow(tensor, d);
      }
    }
  }

  // In the optimizer: rows of a sparse gradient, their indices.
  void update(std::uint32_t tensor) {
    const auto sizes = shape(tensor);
    if (sizes.empty() || known_.is_parameter(sizes)) return;
    const bool rows =
        sizes.size() == 2 && (known_.is_lookups(sizes[0]) || known_.is_batched(sizes[0]));
    if (rows) return grow(tensor, 0);
    if (sizes.size() <= 2 && known_.is_lookups(sizes.back())) grow(tensor, sizes.size() - 1);
  }

  // As many indices as rows: `index_add_(table, 0, indices, rows)`.
  void add_indices(const Node& node, std::size_t from) {
    std::unordered_set<std::int64_t> rows;
    std::unordered_set<std::uint32_t> done;
    for (std::size_t i = from; i < grown_.size(); ++i) {
      rows.insert(shape(grown_[i].tensor)[grown_[i].at]);
      done.insert(grown_[i].tensor);
    }
    for (const auto [position, tensor] : tensors_of(graph_, node)) {
      const auto sizes = shape(tensor);
      const bool is_index = sizes.size() == 1 && !is_floating_point(graph_.tensors[tensor].dtype);
      if (is_index && rows.contains(sizes[0]) && !done.contains(tensor)) grow(tensor, 0);
    }
  }

  // Sizes that views, allocations and gradients of old convolutions get as numbers: those that a
  // tensor would have.
  void resize_lists(const Node& node, const Op* op) {
    if (!op) return;
    const bool asks_gradient =
        op->kind == OpKind::kConvolution && graph_.inputs(node)[0].kind == Argument::Kind::kList;
    if (op->kind != OpKind::kView && op->kind != OpKind::kAllocation && !asks_gradient) return;
    for (const Argument& argument : graph_.inputs(node)) {
      if (argument.kind != Argument::Kind::kList || argument.count == 0) continue;
      const Argument& first = graph_.arguments[argument.index];
      const Sizes sizes = numbers(argument);
      if (first.kind == Argument::Kind::kInt && known_.is_batched(first.integer) &&
          !known_.is_parameter(sizes)) {
        lists_.push_back(argument.index);
      }
      break;  // strides follow
    }
  }
  Sizes numbers(const Argument& list) const {
    Sizes sizes;
    for (const Argument& element : graph_.elements(list)) sizes.push_back(element.integer);
    return sizes;
  }

  const ExecutionGraph& graph_;
  std::span<const Zone> zones_;
  const Knowledge& known_;
  std::vector<Products> products_;  // per node: of matrices, right below it
  std::vector<Dim> grown_;
  std::vector<std::uint32_t> lists_;
  std::size_t ambiguous_ = 0;
};

// In proportion, rounded: numbers of lookups need not be whole multiples of the batch.
std::optional<std::int64_t> in_proportion(std::int64_t size, std::int64_t was, std::int64_t now) {
  const double grown =
      static_cast<double>(size) * static_cast<double>(now) / static_cast<double>(was);
  if (!(grown <= static_cast<double>(kLargestTracedSize))) return std::nullopt;
  if (size % was == 0) return size / was * now;
  return std::max<std::int64_t>(1, std::llround(grown));
}

Unexpected too_large(std::int64_t size) {
  return fail(ErrorCode::kImpossible,
              fmt::format("expected sizes of at most 2^40, found more where {} grows", size));
}

// `recurrent`: asked of recurrent layers, whose input may have the steps in front, else of the
// others.
std::optional<std::int64_t> batch_shown_by(const ExecutionGraph& graph, const Node& node,
                                           bool recurrent) {
  const std::string_view name = graph.name(node);
  const Op* op = find_op(name);
  if (!op || (size_rule(*op) == "recurrent_layers") != recurrent) return std::nullopt;
  const auto tensors = tensors_of(graph, node);
  const auto dimension = [&](std::size_t position, std::size_t rank,
                             std::size_t d) -> std::optional<std::int64_t> {
    for (const TensorAt& at : tensors) {
      const auto sizes = graph.shape(graph.tensors[at.tensor]);
      if (at.position == position && sizes.size() >= rank) return sizes[d];
    }
    return std::nullopt;
  };
  if (recurrent) return dimension(1, 3, 1);  // h [layers, B, hidden]
  if (is_row_lookup(name)) {
    const auto batch = dimension(1, 2, 0);
    return batch == 1 ? std::nullopt : batch;  // [1, S]: positions
  }
  if (op->kind == OpKind::kEmbedding && op->data.has(2)) return dimension(2, 1, 0);  // offsets
  if (op->kind == OpKind::kConvolution) return dimension(0, 3, 0);
  if (op->weights.has(1) && op->data.has(0)) return dimension(0, 2, 0);  // linear
  return std::nullopt;
}

}  // namespace

Result<std::int64_t> traced_batch_size(const ExecutionGraph& graph) {
  if (auto good = check_sizes_recorded(graph); !good) return Unexpected{good.error()};
  for (const bool recurrent : {true, false}) {
    for (const Node& node : graph.nodes) {
      if (const auto batch = batch_shown_by(graph, node, recurrent); batch && *batch > 0) {
        return *batch;
      }
    }
  }
  return fail(ErrorCode::kImpossible,
              "expected a convolution, a linear layer or an embedding that shows the batch, found "
              "none; name its size: --batch OLD=NEW");
}

Result<ExecutionGraph> set_traced_batch_size(const ExecutionGraph& graph, std::int64_t current,
                                             std::int64_t wanted) {
  if (auto good = check_sizes_recorded(graph); !good) return Unexpected{good.error()};
  if (current == 0) {
    PERFMODEL_TRY(found, traced_batch_size(graph));
    current = *found;
  }
  if (current == wanted) return graph;
  const std::vector<Zone> zones = zones_of(graph);
  const Knowledge known(graph, zones, current);
  Growth growth(graph, zones, known);
  const auto grown = growth.run();
  if (grown.empty()) {
    return fail(ErrorCode::kImpossible,
                fmt::format("expected tensors of batch {}, found none", current));
  }
  ExecutionGraph copy = graph;
  for (const Growth::Dim& dim : grown) {
    const Tensor& tensor = graph.tensors[dim.tensor];
    const std::size_t place = tensor.shape_begin + dim.at;
    const std::int64_t one = dim.how == Growth::How::kOffsets ? 1 : 0;
    const auto size = in_proportion(graph.shape_pool[place] - one, current, wanted);
    if (!size) return too_large(graph.shape_pool[place]);
    copy.shape_pool[place] = *size + one;
    double elements = 1;
    for (const std::int64_t extent : copy.shape(tensor)) elements *= static_cast<double>(extent);
    if (!(elements <= 0x1p60)) return too_large(graph.shape_pool[place]);
    copy.tensors[dim.tensor].numel = static_cast<std::int64_t>(elements);
  }
  for (const std::uint32_t place : growth.lists()) {
    const auto size = in_proportion(graph.arguments[place].integer, current, wanted);
    if (!size) return too_large(graph.arguments[place].integer);
    copy.arguments[place].integer = *size;
    copy.arguments[place].real = static_cast<double>(*size);
  }
  update_results(copy);
  std::string warning = fmt::format(
      "a trace does not record which tensors are the same: batch {} was made {} by places and "
      "values of sizes",
      current, wanted);
  if (growth.ambiguous() > 0) {
    warning += fmt::format("; {} tensors could be parameters or data and count as data",
                           growth.ambiguous());
  }
  copy.warnings.push_back(std::move(warning));
  return copy;
}

}  // namespace perfmodel
