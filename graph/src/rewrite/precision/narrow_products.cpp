#include "narrow_products.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "builders/emit/graph_views.hpp"
#include "ops/catalogue.hpp"
#include "rewrite/graph_edit.hpp"
#include "step/tree_walk.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kWholeTensor = 0, kWholeRow = -1;

struct NarrowRecipe {
  const char* name;
  DType dtype, scale_dtype;
  std::int64_t scale_length;  ///< neighbours in a row that share a scale
  std::int64_t multiple;      ///< sizes of matrices are multiples of this
};
constexpr std::array kRecipes = {  // in the order of PrecisionOptions::Scaling
    NarrowRecipe{"delayed", DType::kFloat8, DType::kFloat32, kWholeTensor, 16},
    NarrowRecipe{"current", DType::kFloat8, DType::kFloat32, kWholeTensor, 16},
    NarrowRecipe{"token", DType::kFloat8, DType::kFloat32, kWholeRow, 16},
    NarrowRecipe{"block", DType::kFloat8, DType::kFloat32, 128, 128},
    NarrowRecipe{"mx", DType::kFloat8, DType::kFloat8, 32, 32},
    NarrowRecipe{"nv", DType::kFloat4, DType::kFloat8, 16, 32}};

bool is_wide_half(DType dtype) { return dtype == DType::kBFloat16 || dtype == DType::kFloat16; }

enum class Role { kInput, kWeight, kGradient };

/// A matrix as a program has it before transpositions and, if it is a parameter, its half copy.
struct Origin {
  std::uint32_t tensor = 0;  ///< into ExecutionGraph::tensors
  std::int32_t value = -1;
  bool turned = false;     ///< transposed an odd number of times
  std::int32_t cast = -1;  ///< the node that makes the half copy
};

struct Operand {
  const Tensor* mention;
  Origin origin;
  Role role;
  /// Products sum along rows: this one's are rows of the origin, else they are its columns.
  bool along_rows;
};

/// A product that becomes narrow, in the forward pass or as a gradient.
struct NarrowProduct {
  std::int32_t layer = -1;  ///< the product of the forward pass
  Operand left, right;
};

/// Facts about the copies of a matrix: [true] is quantised along its rows, [false] along its
/// columns and stored the other way round.
template <class Fact>
using ByAxis = std::array<Fact, 2>;

struct NarrowPlan {
  std::map<std::int32_t, NarrowProduct> products;  ///< by node
  std::map<std::int32_t, Origin> casts;  ///< nodes whose half copies only products here read
  /// Layers quantise inputs and gradients for themselves; weights that are shared, once.
  std::map<std::pair<Role, std::int32_t>, ByAxis<bool>> needs;  ///< by layer, of weights by value

  ByAxis<bool>& needs_of(const NarrowProduct& product, const Operand& operand) {
    const bool is_weight = operand.role == Role::kWeight;
    return needs[{operand.role, is_weight ? operand.origin.value : product.layer}];
  }
};

const Tensor* matrix_at(const ExecutionGraph& graph, std::span<const Argument> arguments,
                        std::size_t at) {
  if (at >= arguments.size() || arguments[at].kind != Argument::Kind::kTensor) return nullptr;
  return &graph.tensors[arguments[at].index];
}

bool is_grouped(const Op& product) { return size_rule(product) == "grouped_mm"; }

/// The op, if it is a product that has a narrow form.
const Op* product_op(std::string_view name) {
  const Op* op = find_op(name);
  return op && !op->narrow.empty() ? op : nullptr;
}

/// The last two axes the other way round.
bool turns(const ExecutionGraph& graph, const Node& node) {
  const std::string_view name = graph.name(node);
  if (name == "aten::t" || name == "aten::numpy_T" || name == "aten::mT") return true;
  if (name != "aten::transpose") return false;
  const auto inputs = graph.inputs(node);
  if (inputs.size() < 3 || inputs[0].kind != Argument::Kind::kTensor) return false;
  const std::int64_t rank = graph.tensors[inputs[0].index].rank;
  const auto axis = [&](std::int64_t d) { return d < 0 ? d + rank : d; };
  const std::int64_t a = axis(inputs[1].integer), b = axis(inputs[2].integer);
  return std::min(a, b) == rank - 2 && std::max(a, b) == rank - 1;
}

Origin origin_of(const StepView& step, const Tensor& matrix) {
  const ExecutionGraph& graph = step.graph();
  const Values& values = step.tensors();
  const auto with_tensor = [&](Origin origin, const Tensor& tensor) {
    origin.tensor = static_cast<std::uint32_t>(&tensor - graph.tensors.data());
    origin.value = values.of(tensor);
    return origin;
  };
  Origin origin = with_tensor({}, matrix), half = origin;
  std::int32_t maker = values.maker(origin.value);
  for (; maker >= 0; maker = values.maker(origin.value)) {
    const Node& node = graph.node(maker);
    const Tensor* from = matrix_at(graph, graph.inputs(node), 0);
    const Tensor* to = matrix_at(graph, graph.outputs(node), 0);
    if (!from || !to || values.of(*to) != origin.value) break;
    if (turns(graph, node)) {
      origin.turned = !origin.turned;
    } else if (is_conversion(graph.name(node)) && is_wide_half(to->dtype) &&
               from->dtype == DType::kFloat32) {
      half = origin;
      origin.cast = maker;
    } else {
      break;
    }
    origin = with_tensor(origin, *from);
  }
  return origin.cast >= 0 && maker >= 0 ? half : origin;  // only parameters have half copies
}

/// Finds the products of linear layers and the role of each operand.
class ProductFinder {
 public:
  ProductFinder(const StepView& step, const NarrowRecipe& recipe)
      : step_(step),
        graph_(step.graph()),
        recipe_(recipe),
        product_of_scores_(step.tensors(), -1) {}

  NarrowPlan find() {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      if (graph_.node(i).is_label || step_.backward().in_backward[i]) continue;
      const auto product = product_at(i);
      if (product && becomes_narrow(i, *product)) {
        plan_.products.emplace(i, *product);
        product_of_scores_[*matrix_at(graph_, graph_.outputs(i), 0)] = i;
      }
      follow_scores(i);
    }
    for (const auto& [index, product] : plan_.products) {
      const std::int32_t cast = product.right.origin.cast;
      if (cast < 0 || plan_.casts.contains(cast) || is_read_wide(cast)) continue;
      plan_.casts.emplace(cast, origin_of(step_, *matrix_at(graph_, graph_.inputs(cast), 0)));
    }
    find_gradients();
    for (const auto& [index, product] : plan_.products) {
      for (const Operand& operand : {product.left, product.right}) {
        plan_.needs_of(product, operand)[operand.along_rows] = true;
      }
    }
    return std::move(plan_);
  }

 private:
  // With the roles that it has in the forward pass.
  std::optional<NarrowProduct> product_at(std::int32_t index) const {
    const Op* op = product_op(graph_.name(index));
    if (!op) return std::nullopt;
    const auto inputs = graph_.inputs(index);
    const bool has_offsets = !is_grouped(*op) || matrix_at(graph_, inputs, 2);
    const bool has_addend = is_grouped(*op) || !op->has_addend || matrix_at(graph_, inputs, 0);
    const std::size_t first = op->has_addend ? 1 : 0;
    const Tensor* left = matrix_at(graph_, inputs, first);
    const Tensor* right = matrix_at(graph_, inputs, first + 1);
    const bool is_complete = left && right && has_offsets && has_addend;
    if (!is_complete || !matrix_at(graph_, graph_.outputs(index), 0)) return std::nullopt;
    const std::int64_t rank = right->rank;
    if (left->rank != 2 || (rank != 2 && !(is_grouped(*op) && rank == 3))) return std::nullopt;
    const Origin a = origin_of(step_, *left), b = origin_of(step_, *right);
    return NarrowProduct{.layer = index,
                         .left = {left, a, Role::kInput, !a.turned},
                         .right = {right, b, Role::kWeight, b.turned}};
  }

  bool becomes_narrow(std::int32_t index, const NarrowProduct& product) const {
    const Tensor &left = *product.left.mention, &right = *product.right.mention;
    const Origin& weight = product.right.origin;
    const bool is_parameter = weight.cast >= 0 || step_.tensors().maker(weight.value) < 0;
    return left.on_gpu() && is_wide_half(left.dtype) && is_wide_half(right.dtype) &&
           fits(left, right) && is_parameter && product.left.origin.value != weight.value &&
           !holds_product(index) && !is_under_optimizer(graph_, index);
  }

  bool fits(const Tensor& left, const Tensor& right) const {
    const auto a = graph_.shape(left), b = graph_.shape(right);
    return a[0] % recipe_.multiple == 0 && a[1] % recipe_.multiple == 0 &&
           b.back() % recipe_.multiple == 0;
  }

  // Autocast and dispatch write an op twice: the inner one computes.
  bool holds_product(std::int32_t index) const {
    return std::ranges::any_of(graph_.children(index), [&](std::int32_t child) {
      return product_op(graph_.name(child)) != nullptr;
    });
  }

  // Scores of classes (of the head, of a router) need more bits than an activation: their products
  // stay.
  void follow_scores(std::int32_t index) {
    const Tensor* from = matrix_at(graph_, graph_.inputs(index), 0);
    const std::string_view name = graph_.name(index);
    const Op* op = from && product_of_scores_[*from] >= 0 ? find_op(name) : nullptr;
    if (!op) return;
    const std::int32_t product = product_of_scores_[*from];
    if (op->kind == OpKind::kSoftmax || op->kind == OpKind::kLoss || op->kind == OpKind::kSort ||
        name.find("softmax") != name.npos || name.find("cross_entropy") != name.npos) {
      plan_.products.erase(product);
    } else if (op->kind == OpKind::kView || op->kind == OpKind::kCast ||
               op->kind == OpKind::kCopy || op->name == "aten::sigmoid") {
      for_each_tensor(graph_, graph_.outputs(index),
                      [&](const Tensor& made) { product_of_scores_[made] = product; });
    }
  }

  // Whether an op of the forward pass that stays wide reads the half copy. Gradients of wide
  // products are wide, too.
  bool is_read_wide(std::int32_t cast) const {
    const Values& values = step_.tensors();
    std::vector<std::int32_t> copies = {values.of(*matrix_at(graph_, graph_.outputs(cast), 0))};
    for (std::size_t i = 0; i < copies.size(); ++i) {
      for (const std::int32_t reader : values.readers(copies[i])) {
        const Node& node = graph_.node(reader);
        if (node.is_label || graph_.is_inside(reader, cast)) continue;
        if (turns(graph_, node) || graph_.name(node) == "aten::as_strided") {
          const Tensor* to = matrix_at(graph_, graph_.outputs(node), 0);
          if (to && values.maker(values.of(*to)) == reader) copies.push_back(values.of(*to));
          continue;
        }
        const bool computes = node.children_count == 0 || product_op(graph_.name(node));
        const bool stays_wide =
            !plan_.products.contains(reader) && !step_.backward().in_backward[reader];
        if (computes && stays_wide) return true;
      }
    }
    return false;
  }

  void find_gradients() {
    std::vector<std::int32_t> layer_of(graph_.nodes.size(), -1);  // by node of a backward function
    for (const BackwardFunction& function : step_.backward().functions) {
      if (plan_.products.contains(function.forward)) layer_of[function.function] = function.forward;
    }
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      if (!step_.backward().in_backward[i]) continue;
      const std::int32_t around = graph_.find_around(graph_.node(i).parent, [&](std::int32_t at) {
        return layer_of[at] >= 0 || plan_.products.contains(at);
      });
      if (around < 0 || layer_of[around] < 0) continue;
      auto product = product_at(i);
      if (!product) continue;
      product->layer = layer_of[around];
      const NarrowProduct& layer = plan_.products.at(product->layer);
      for (Operand* operand : {&product->left, &product->right}) {
        const std::int32_t value = operand->origin.value;
        operand->role = value == layer.right.origin.value  ? Role::kWeight
                        : value == layer.left.origin.value ? Role::kInput
                                                           : Role::kGradient;
      }
      const Role left = product->left.role, right = product->right.role;
      if ((left == Role::kGradient) != (right == Role::kGradient))
        plan_.products.emplace(i, *product);
    }
  }

  const StepView& step_;
  const ExecutionGraph& graph_;
  const NarrowRecipe& recipe_;
  NarrowPlan plan_;
  FactsOfValues<std::int32_t> product_of_scores_;  // -1: no scores
};

struct NarrowCopy {
  TensorRef numbers, scales;
};

class NarrowWriter {
 public:
  NarrowWriter(const StepView& step, NarrowPlan plan, const NarrowRecipe& recipe)
      : step_(step),
        source_(step.graph()),
        plan_(std::move(plan)),
        recipe_(recipe),
        edit_(source_),
        builder_(edit_.builder()) {}

  ExecutionGraph write() {
    retype_half_copies();
    for (const GraphIteration& step : iterations(source_)) {
      edit_.follow(step.begin, [this] { copies_.clear(); });  // weights change
    }
    for (const auto& [cast, origin] : plan_.casts) {
      edit_.replace(cast, [this, cast = cast] { write_weight_copy(cast); });
    }
    for (const auto& [node, product] : plan_.products) {
      edit_.replace(node, [this, node = node] { write_product(node, plan_.products.at(node)); });
      const std::int32_t around = source_.node(node).parent;  // autocast's, of the same name
      const bool is_forward = product.layer == node;
      if (is_forward && around >= 0 && product_op(source_.name(around))) edit_.unwrap(around);
    }
    return edit_.write();
  }

 private:
  ExecutionGraph& made() { return edit_.made(); }

  // Every mention of half copies that become narrow, and of their views. In 4 bits the axis is half
  // as long that a parameter has last.
  void retype_half_copies() {
    FactsOfValues<bool> is_narrow(step_.storages());
    for (const auto& [cast, origin] : plan_.casts) {
      const Tensor& half = *matrix_at(source_, source_.outputs(cast), 0);
      is_narrow[half] = half.storage_id != 0;
    }
    for (std::size_t i = 0; i < source_.tensors.size(); ++i) {
      const Tensor& mention = source_.tensors[i];
      if (!is_narrow[mention] || !is_wide_half(mention.dtype)) continue;
      make_narrow(made().tensors[i], origin_of(step_, mention).turned);
    }
  }

  void make_narrow(Tensor& tensor, bool is_turned) {
    tensor.dtype = recipe_.dtype;
    tensor.item_size = size_in_bytes(recipe_.dtype);
    if (recipe_.dtype != DType::kFloat4 || tensor.rank < 2) return;
    const auto sizes = made().shape(tensor);
    Shape shape(sizes.begin(), sizes.end());
    shape[shape.size() - (is_turned ? 2 : 1)] /= 2;
    tensor.numel /= 2;
    tensor.shape_begin = static_cast<std::uint32_t>(made().shape_pool.size());
    made().shape_pool.insert(made().shape_pool.end(), shape.begin(), shape.end());
  }

  // A conversion to half becomes one to the narrow type: its number in autograd stays.
  void write_weight_copy(std::int32_t cast) {
    edit_.copy().close_beside(cast);
    const Origin& origin = plan_.casts.at(cast);
    std::int64_t sequence = -1;
    const auto read_sequence = [&](std::int32_t i) {
      sequence = std::max(sequence, source_.node(i).seq_id);
      return true;
    };
    walk_tree(source_, cast, read_sequence, [] {});
    // The half copy has the parameter's layout in memory, whichever way round its axes are.
    Tensor half = *matrix_at(source_, source_.outputs(cast), 0);
    half.shape_begin = source_.tensors[origin.tensor].shape_begin;
    make_narrow(half, false);
    made().tensors.push_back(half);
    ByAxis<bool> needs = plan_.needs[{Role::kWeight, origin.value}];
    needs[true] = true;  // the axis that other ops know as the half copy
    copies_[{Role::kWeight, origin.value, -1}] =
        quantize(origin, Role::kWeight, needs, sequence,
                 reference(static_cast<std::uint32_t>(made().tensors.size() - 1)));
  }

  void write_product(std::int32_t index, const NarrowProduct& product) {
    edit_.copy().close_beside(index);
    const Node& node = source_.node(index);
    const auto inputs = source_.inputs(node), outputs = source_.outputs(node);
    const auto [a, a_scales] = operand_copy(product, product.left);
    const auto [b, b_scales] = operand_copy(product, product.right);
    const Op& op = *product_op(source_.name(node));
    const bool grouped = is_grouped(op);
    const TensorRef b_turned = grouped ? transpose(builder_, b, -2, -1) : t(builder_, b);
    std::vector<Value> arguments = {a, b_turned, a_scales, b_scales};
    if (grouped) arguments.push_back(reference(inputs[2].index));
    arguments.push_back(op.has_addend ? Value(reference(inputs[0].index)) : Value(kNone));
    const bool is_forward = product.layer == index;
    const DType dtype = source_.tensors[outputs[0].index].dtype;
    arguments.insert(arguments.end(), {kNone, scalar_type_code(dtype), is_forward});
    builder_.leaf_op(op.narrow, std::move(arguments), {reference(outputs[0].index)}, node.seq_id);
    Node& written = made().nodes.back();
    written.kernel_time_us = node.kernel_time_us;
    written.kernel_time_scale = node.kernel_time_scale;
  }

  // Made at its first use.
  NarrowCopy operand_copy(const NarrowProduct& product, const Operand& operand) {
    const auto& [mention, origin, role, along_rows] = operand;
    const std::int32_t layer = role == Role::kWeight ? -1 : product.layer;
    const auto [at, is_new] = copies_.try_emplace({role, origin.value, layer});
    if (is_new) at->second = quantize(origin, role, plan_.needs_of(product, operand));
    return at->second[along_rows];
  }

  TensorRef reference(std::uint32_t tensor) { return builder_.tensor_of_source(tensor); }

  TensorRef new_numbers(Shape shape) {
    if (recipe_.dtype == DType::kFloat4) shape.back() /= 2;
    return builder_.new_tensor(recipe_.dtype, std::move(shape));
  }

  // Makes the scales of numbers that are summed along the last axis.
  TensorRef new_scales(Shape shape, Role role) {
    const std::int64_t length = recipe_.scale_length;
    if (length == kWholeTensor) {
      shape = {1};
    } else {
      shape.back() = length == kWholeRow ? 1 : shape.back() / length;
    }
    const bool are_squares = length == 128 && role == Role::kWeight;
    if (are_squares) shape[shape.size() - 2] /= length;
    return builder_.new_tensor(recipe_.scale_dtype, std::move(shape));
  }

  // `half`: the copy along rows, if ops know it already.
  ByAxis<NarrowCopy> quantize(const Origin& origin, Role role, ByAxis<bool> needs,
                              std::int64_t sequence = -1, TensorRef half = {}) {
    const TensorRef x = reference(origin.tensor);
    const Shape shape = builder_.shape(x);
    Shape turned = shape;
    std::swap(turned[turned.size() - 1], turned[turned.size() - 2]);
    if (std::string_view(recipe_.name) == "current") {
      builder_.leaf_op("transformer_engine::compute_amax", {x},
                       {builder_.new_tensor(DType::kFloat32, {1})});
    }
    ByAxis<NarrowCopy> copies;
    const bool share_scale = needs[true] && recipe_.scale_length == kWholeTensor;
    if (needs[true]) {
      copies[true] = {half.exists() ? half : new_numbers(shape), new_scales(shape, role)};
    }
    if (needs[false]) {
      copies[false] = {new_numbers(turned),
                       share_scale ? copies[true].scales : new_scales(turned, role)};
    }
    const auto given = [&](TensorRef tensor) {
      return tensor.exists() ? tensor : builder_.undefined();
    };
    builder_.leaf_op(
        "transformer_engine::quantize",
        {x, scalar_type_code(recipe_.dtype), recipe_.name, needs[true], needs[false]},
        {given(copies[true].numbers), given(copies[false].numbers), given(copies[true].scales),
         given(share_scale ? TensorRef{} : copies[false].scales)},
        sequence);
    return copies;
  }

  const StepView& step_;
  const ExecutionGraph& source_;
  NarrowPlan plan_;
  const NarrowRecipe& recipe_;
  GraphEdit edit_;
  GraphBuilder& builder_;
  std::map<std::tuple<Role, std::int32_t, std::int32_t>, ByAxis<NarrowCopy>>
      copies_;  // role, value, layer
};

}  // namespace

std::optional<ExecutionGraph> narrow_products(const StepView& step,
                                              PrecisionOptions::Scaling scaling) {
  const NarrowRecipe& recipe = kRecipes[static_cast<std::size_t>(scaling)];
  NarrowPlan plan = ProductFinder(step, recipe).find();
  if (plan.products.empty()) return std::nullopt;
  return NarrowWriter(step, std::move(plan), recipe).write();
}

}  // namespace perfmodel
