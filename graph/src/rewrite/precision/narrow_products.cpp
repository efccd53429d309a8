#include "narrow_products.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "builders/emit/graph_views.hpp"
#include "ops/catalogue.hpp"
#include "rewrite/change_tensors.hpp"
#include "rewrite/graph_copy.hpp"

namespace perfmodel {
namespace {

using Scaling = PrecisionOptions::Scaling;

bool is_wide_half(DType dtype) { return dtype == DType::kBFloat16 || dtype == DType::kFloat16; }

/// A matrix through transpositions: what was turned, and whether an odd number of times.
struct Origin {
  std::uint32_t tensor = 0;  ///< into ExecutionGraph::tensors
  std::int64_t id = 0;
  bool turned = false;
  std::int32_t cast = -1;  ///< the conversion between a parameter and its half copy
};

enum class Role { kInput, kWeight, kGradient };

/// Copies of one matrix that products need: quantised along its rows, or along its columns and
/// stored the other way round.
struct Needs {
  bool rows = false, columns = false;
};

/// A linear layer's product in the forward pass.
struct Product {
  std::int32_t node = -1;
  Origin input, weight;
  std::array<Needs, 3> needs = {};  ///< by role
  Needs& of(Role role) { return needs[static_cast<std::size_t>(role)]; }
};

/// Operands of a product op: positions among its arguments.
struct OperandPlaces {
  std::size_t left = 0, right = 1;
};

bool is_grouped(const Op& product) { return size_rule(product) == "grouped_mm"; }

// Of a product that has a narrow form.
std::optional<OperandPlaces> operands_of(std::string_view name) {
  const Op* op = find_op(name);
  if (!op || op->narrow.empty()) return std::nullopt;
  return op->has_addend ? OperandPlaces{1, 2} : OperandPlaces{0, 1};
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

/// Finds the products of linear layers and what each operand is.
class ProductFinder {
 public:
  ProductFinder(const ExecutionGraph& graph, const BackwardPass& pass, const NarrowRecipe& recipe)
      : graph_(graph), pass_(pass), recipe_(recipe) {}

  void find() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) visit(static_cast<std::int32_t>(i));
    for (auto at = products_.begin(); at != products_.end();) {
      at = at->second.node < 0 ? products_.erase(at) : std::next(at);
    }
    keep_wide_casts();
    find_backward();
    share_needs_of_weights();
  }

  bool empty() const { return products_.empty(); }

  /// The forward product that a node is, null: none.
  Product* product_at(std::int32_t node) {
    const auto at = products_.find(node);
    return at == products_.end() ? nullptr : &at->second;
  }
  /// The product op of autocast around one that becomes narrow.
  bool is_around_product(std::int32_t index) {
    return operands_of(graph_.name(index)) &&
           std::ranges::any_of(graph_.children(index),
                               [&](std::int32_t child) { return product_at(child) != nullptr; });
  }
  /// The forward product whose gradient a node of the backward pass computes; null: none.
  Product* gradient_of(std::int32_t node) {
    const auto at = gradients_.find(node);
    return at == gradients_.end() ? nullptr : product_at(at->second.product);
  }
  const Origin& left_of(std::int32_t node) const { return gradients_.at(node).left; }
  const Origin& right_of(std::int32_t node) const { return gradients_.at(node).right; }
  static Role role_of(const Product& product, const Origin& operand) {
    if (operand.id == product.weight.id) return Role::kWeight;
    return operand.id == product.input.id ? Role::kInput : Role::kGradient;
  }
  /// Of the half copy of a weight that a conversion makes.
  const Origin& origin_of_cast(std::int32_t cast) const { return origins_of_casts_.at(cast); }
  /// The product for whose weight alone this node makes a half copy; -1: it stays.
  std::int32_t product_of_cast(std::int32_t node) const {
    const auto at = casts_.find(node);
    return at == casts_.end() ? -1 : at->second;
  }

 private:
  struct Gradient {
    std::int32_t product = -1;
    Origin left, right;
  };

  const Tensor* tensor(std::span<const Argument> arguments, std::size_t at) const {
    if (at >= arguments.size() || arguments[at].kind != Argument::Kind::kTensor) return nullptr;
    return &graph_.tensors[arguments[at].index];
  }
  std::uint32_t entry(const Tensor& tensor) const {
    return static_cast<std::uint32_t>(&tensor - graph_.tensors.data());
  }

  Origin origin(const Tensor& tensor) const {
    const auto at = turned_.find(tensor.id);
    return at == turned_.end() ? Origin{.tensor = entry(tensor), .id = tensor.id} : at->second;
  }

  void visit(std::int32_t index) {
    const Node& n = graph_.node(index);
    if (n.is_label) return;
    const std::string_view name = graph_.name(n);
    const auto inputs = graph_.inputs(n), outputs = graph_.outputs(n);
    if (const auto places = operands_of(name)) {
      const Tensor *left = tensor(inputs, places->left), *right = tensor(inputs, places->right);
      if (left && right && is_written_as_usual(n)) {
        if (pass_.in_backward[index]) {
          backward_.push_back({index, {-1, origin(*left), origin(*right)}});
        } else {
          forward_product(index, *left, *right);
        }
      }
    }
    note_results(index, name, inputs, outputs);
  }

  // What comes out is a turned one, a half copy of a parameter, or something new.
  void note_results(std::int32_t index, std::string_view name, std::span<const Argument> inputs,
                    std::span<const Argument> outputs) {
    const Tensor *from = tensor(inputs, 0), *to = tensor(outputs, 0);
    follow_probabilities(index, name, from, outputs);
    for_each_tensor(graph_, outputs, [&](const Tensor& made) {
      bool handed_on = false;
      for_each_tensor(graph_, inputs, [&](const Tensor& one) { handed_on |= one.id == made.id; });
      if (handed_on || is_told_above(index, made.id)) return;
      made_.insert_or_assign(made.id, index);
      turned_.erase(made.id);
    });
    if (!from || !to || from->id == to->id || is_told_above(index, to->id)) return;
    Origin made = origin(*from);
    if (turns(graph_, graph_.node(index))) {
      made.turned = !made.turned;
      turned_[to->id] = made;
    } else if (is_conversion(name) && is_wide_half(to->dtype) && made.cast < 0 &&
               from->dtype == DType::kFloat32 && !made_.contains(made.id)) {
      made.cast = index;
      turned_[to->id] = made;
      origins_of_casts_[index] = made;
    }
  }

  // What an op above gives was noted there.
  bool is_told_above(std::int32_t index, std::int64_t id) const {
    for (std::int32_t i = graph_.node(index).parent; i >= 0 && !graph_.node(i).is_label;
         i = graph_.node(i).parent) {
      bool gives = false;
      for_each_tensor(graph_, graph_.outputs(i),
                      [&](const Tensor& made) { gives |= made.id == id; });
      if (gives) return true;
    }
    return false;
  }

  // Scores of classes (of the head, of a router) need more bits than an activation.
  void follow_probabilities(std::int32_t index, std::string_view name, const Tensor* from,
                            std::span<const Argument> outputs) {
    if (!from || pass_.in_backward[index]) return;
    const auto at = scores_.find(from->id);
    if (at == scores_.end()) return;
    const Op* op = find_op(name);
    if (!op) return;
    if (op->kind == OpKind::kSoftmax || op->kind == OpKind::kLoss || op->kind == OpKind::kSort ||
        name.find("softmax") != name.npos || name.find("cross_entropy") != name.npos) {
      if (const auto product = products_.find(at->second); product != products_.end()) {
        product->second.node = -1;
      }
      return;
    }
    const bool passes = op->kind == OpKind::kView || op->kind == OpKind::kCast ||
                        op->kind == OpKind::kCopy || op->name == "aten::sigmoid";
    if (!passes) return;
    const std::int32_t product = at->second;
    for_each_tensor(graph_, outputs,
                    [&](const Tensor& made) { scores_.insert_or_assign(made.id, product); });
  }

  // What the narrow op takes besides its operands is there.
  bool is_written_as_usual(const Node& n) const {
    const Op& op = *find_op(graph_.name(n));
    const auto inputs = graph_.inputs(n);
    if (!tensor(graph_.outputs(n), 0)) return false;
    if (is_grouped(op)) return tensor(inputs, 2) != nullptr;
    return !op.has_addend || tensor(inputs, 0) != nullptr;
  }

  // Matrices, or those of all groups on the right of a grouped product.
  bool are_matrices(const Node& n, const Origin& left, const Origin& right) const {
    const auto rank = [&](const Origin& one) { return graph_.tensors[one.tensor].rank; };
    const bool grouped = is_grouped(*find_op(graph_.name(n)));
    return rank(left) == 2 && (rank(right) == 2 || (grouped && rank(right) == 3));
  }

  void forward_product(std::int32_t index, const Tensor& left, const Tensor& right) {
    const Node& n = graph_.node(index);
    const Tensor* out = tensor(graph_.outputs(n), 0);
    if (!left.on_gpu() || !is_wide_half(left.dtype) || !is_wide_half(right.dtype)) return;
    if (under_optimizer(n) || left.rank != 2 || right.rank < 2 || !fits(left, right)) return;
    Product made{.node = index, .input = origin(left), .weight = origin(right)};
    if (!are_matrices(n, made.input, made.weight)) return;
    const bool parameter = made.weight.cast >= 0 || !made_.contains(made.weight.id);
    if (!parameter || made.input.id == made.weight.id || hands_on(n)) return;
    made.of(Role::kInput).rows |= !made.input.turned;
    made.of(Role::kInput).columns |= made.input.turned;
    made.of(Role::kWeight).rows |= made.weight.turned;
    made.of(Role::kWeight).columns |= !made.weight.turned;
    scores_.insert_or_assign(out->id, index);
    products_.emplace(index, made);
  }

  // Narrow products ask for multiples of 16 numbers on each side, of whole blocks where scales are
  // those of blocks.
  bool fits(const Tensor& left, const Tensor& right) const {
    const auto a = graph_.shape(left), b = graph_.shape(right);
    const std::int64_t least = recipe_.scaling == Scaling::kBlock128 ? 128
                               : recipe_.scaling == Scaling::kMx || recipe_.dtype == DType::kFloat4
                                   ? 32
                                   : 16;
    return a[0] % least == 0 && a[1] % least == 0 && b[b.size() - 1] % least == 0;
  }

  // Autocast and dispatch write an op twice: the inner one computes.
  bool hands_on(const Node& n) const {
    return std::ranges::any_of(graph_.children(n), [&](std::int32_t child) {
      return operands_of(graph_.name(child)).has_value();
    });
  }

  bool under_optimizer(const Node& n) const {
    const auto holds = [&](std::int32_t i) { return graph_.name(i).starts_with("Optimizer."); };
    return graph_.find_around(n.parent, holds) >= 0;
  }

  // A half copy that others read stays as it is.
  void keep_wide_casts() {
    for (auto& [index, product] : products_) {
      if (product.weight.cast >= 0) casts_.emplace(product.weight.cast, index);
    }
    std::unordered_map<std::int64_t, std::int32_t> copies;  // id of a half copy -> its cast
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const auto index = static_cast<std::int32_t>(i);
      const Node& n = graph_.node(index);
      if (n.is_label) continue;
      const auto inputs = graph_.inputs(n);
      if (casts_.contains(index)) {
        if (const Tensor* to = tensor(graph_.outputs(n), 0)) copies[to->id] = index;
        continue;
      }
      const auto places = operands_of(graph_.name(n));
      const bool leaf = n.children_count == 0;
      const bool narrow = product_at(index) != nullptr ||
                          pass_.in_backward[i];  // gradients of wide products are wide, too
      for_each_tensor(graph_, inputs, [&](const Tensor& one) {
        const auto at = copies.find(one.id);
        if (at == copies.end()) return;
        if (turns(graph_, n) || graph_.name(n) == "aten::as_strided") {
          if (const Tensor* to = tensor(graph_.outputs(n), 0)) copies.emplace(to->id, at->second);
        } else if (!narrow && (places || leaf) && !is_inside_cast(index, at->second)) {
          casts_.erase(at->second);
        }
      });
    }
  }

  bool is_inside_cast(std::int32_t index, std::int32_t cast) const {
    return graph_.find_around(index, [&](std::int32_t i) { return i == cast; }) >= 0;
  }

  void find_backward() {
    std::unordered_map<std::int32_t, std::int32_t> product_of;  // function's node -> product
    for (const BackwardFunction& function : pass_.functions) {
      if (product_at(function.forward)) product_of[function.function] = function.forward;
    }
    for (auto& [index, gradient] : backward_) {
      const std::int32_t around = graph_.find_around(
          graph_.node(index).parent, [&](std::int32_t i) { return product_of.contains(i); });
      if (around < 0) continue;
      Product& product = *product_at(product_of.at(around));
      gradient.product = product.node;
      const Role left = role_of(product, gradient.left), right = role_of(product, gradient.right);
      if (left == right || !are_matrices(graph_.node(index), gradient.left, gradient.right))
        continue;
      if (left != Role::kGradient && right != Role::kGradient) continue;
      Needs& of_left = product.of(left);
      (gradient.left.turned ? of_left.columns : of_left.rows) = true;
      Needs& of_right = product.of(right);
      (gradient.right.turned ? of_right.rows : of_right.columns) = true;
      gradients_.emplace(index, gradient);
    }
  }

  // A weight is quantised once for all layers that share it.
  void share_needs_of_weights() {
    std::unordered_map<std::int64_t, Needs> of_weight;
    for (auto& [index, product] : products_) {
      const Needs& own = product.of(Role::kWeight);
      Needs& all = of_weight[product.weight.id];
      all.rows |= own.rows;
      all.columns |= own.columns;
    }
    for (auto& [index, product] : products_)
      product.of(Role::kWeight) = of_weight[product.weight.id];
  }

  const ExecutionGraph& graph_;
  const BackwardPass& pass_;
  const NarrowRecipe recipe_;
  std::map<std::int32_t, Product> products_;                   // by node of the forward pass
  std::vector<std::pair<std::int32_t, Gradient>> backward_;    // products of the backward pass
  std::unordered_map<std::int32_t, Gradient> gradients_;       // those that become narrow
  std::unordered_map<std::int32_t, std::int32_t> casts_;       // replaced cast -> a product
  std::unordered_map<std::int64_t, Origin> turned_;            // by tensor id
  std::unordered_map<std::int32_t, Origin> origins_of_casts_;  // by node
  std::unordered_map<std::int64_t, std::int32_t> made_;        // tensor id -> node
  std::unordered_map<std::int64_t, std::int32_t> scores_;      // tensor id -> product
};

/// The quantised copies of one matrix.
struct Copies {
  TensorRef rows, columns, row_scales, column_scales;
};

class NarrowWriter {
 public:
  NarrowWriter(const ExecutionGraph& graph, ProductFinder& finder, const NarrowRecipe& recipe)
      : source_(graph), finder_(finder), recipe_(recipe), copy_(graph), builder_(copy_.builder()) {}

  ExecutionGraph run() {
    const auto steps = iterations(source_);
    std::size_t step = 0;
    done_.assign(source_.nodes.size(), false);
    for (std::size_t i = 0; i < source_.nodes.size(); ++i) {
      const auto index = static_cast<std::int32_t>(i);
      if (step < steps.size() && index >= steps[step].begin) {
        copies_.clear();  // weights change
        narrow_storages_.clear();
        ++step;
      }
      const std::int32_t parent = source_.node(index).parent;
      done_[i] = (parent >= 0 && done_[parent]) || write(index);
    }
    return copy_.finish();
  }

 private:
  ExecutionGraph& made() { return builder_.graph_being_made(); }

  // Whether the node was written anew, with all below it.
  bool write(std::int32_t index) {
    const std::int32_t cast_for = finder_.product_of_cast(index);
    if (cast_for >= 0) {
      write_weight_copy(index, *finder_.product_at(cast_for));
      return true;
    }
    if (Product* product = finder_.product_at(index)) {
      write_product(index, *product, product->input, product->weight, true);
      return true;
    }
    if (Product* product = finder_.gradient_of(index)) {
      write_product(index, *product, finder_.left_of(index), finder_.right_of(index), false);
      return true;
    }
    if (finder_.is_around_product(index)) return false;  // what is below moves up
    copy_.copy(index);
    forget_reused(index);
    retag(index);
    return false;
  }

  // A conversion to half becomes one to the narrow type: its number in autograd stays.
  void write_weight_copy(std::int32_t index, Product& product) {
    copy_.close_beside(index);
    const Tensor half = source_.tensors[source_.outputs(index)[0].index];
    Needs needs = product.of(Role::kWeight);
    needs.rows = true;  // what other ops know as the half copy
    const Copies made_copies =
        quantize(finder_.origin_of_cast(index), Role::kWeight, needs, sequence_of(index), &half);
    copies_[key(product, Role::kWeight, product.weight)] = made_copies;
    if (half.storage_id != 0) narrow_storages_[half.storage_id] = half.rank;
  }

  std::int64_t sequence_of(std::int32_t index) const {
    std::int64_t found = source_.node(index).seq_id;
    for (std::int32_t child : source_.children(index)) {
      found = std::max(found, sequence_of(child));
    }
    return found;
  }

  void write_product(std::int32_t index, Product& product, const Origin& left, const Origin& right,
                     bool forward) {
    copy_.close_beside(index);
    const Node& n = source_.node(index);
    const auto inputs = source_.inputs(n);
    const Role left_role = forward ? Role::kInput : ProductFinder::role_of(product, left);
    const Role right_role = forward ? Role::kWeight : ProductFinder::role_of(product, right);
    const Copies& a = copies_of(product, left_role, left);
    const Copies& b = copies_of(product, right_role, right);
    const TensorRef a_rows = left.turned ? a.columns : a.rows;
    const TensorRef a_scales = left.turned ? a.column_scales : a.row_scales;
    const TensorRef b_rows = right.turned ? b.rows : b.columns;
    const TensorRef b_scales = right.turned ? b.row_scales : b.column_scales;
    const Op& op = *find_op(source_.name(n));
    const bool grouped = is_grouped(op);
    const TensorRef b_columns = grouped ? transpose(builder_, b_rows, -2, -1) : t(builder_, b_rows);
    const Tensor& out = source_.tensors[source_.outputs(n)[0].index];
    std::vector<Value> arguments = {a_rows, b_columns, scale(a_scales, a), scale(b_scales, b)};
    if (grouped) arguments.push_back(reference(inputs[2].index));
    arguments.push_back(op.has_addend ? Value(reference(inputs[0].index)) : Value(kNone));
    arguments.insert(arguments.end(), {kNone, scalar_type_code(out.dtype), forward});
    builder_.leaf_op(op.narrow, std::move(arguments), {reference(source_.outputs(n)[0].index)},
                     n.seq_id);
    Node& written = made().nodes.back();
    written.kernel_time_us = n.kernel_time_us;
    written.kernel_time_scale = n.kernel_time_scale;
  }

  // One scale for a whole tensor serves both copies.
  static TensorRef scale(TensorRef own, const Copies& copies) {
    return own.exists()                 ? own
           : copies.row_scales.exists() ? copies.row_scales
                                        : copies.column_scales;
  }

  using Key = std::tuple<Role, std::int64_t, std::int32_t>;
  // Layers quantise inputs and gradients for themselves; weights that are shared, once.
  static Key key(const Product& product, Role role, const Origin& origin) {
    return {role, origin.id, role == Role::kWeight ? -1 : product.node};
  }

  const Copies& copies_of(Product& product, Role role, const Origin& origin) {
    const Key at = key(product, role, origin);
    const auto known = copies_.find(at);
    if (known != copies_.end()) return known->second;
    return copies_[at] = quantize(origin, role, product.of(role), -1, nullptr);
  }

  TensorRef reference(std::uint32_t tensor) { return builder_.tensor_of_source(tensor); }
  TensorRef reference(const Tensor& tensor) {
    made().tensors.push_back(tensor);
    return builder_.tensor_of_source(static_cast<std::uint32_t>(made().tensors.size() - 1));
  }

  // Numbers of a tensor with these axes, as elements: pairs along the last axis in 4 bits.
  Shape elements(Shape shape) const {
    if (recipe_.dtype == DType::kFloat4) shape.back() /= 2;
    return shape;
  }

  // Scales of a copy whose numbers have this shape, each along the last axis.
  TensorRef new_scales(Shape shape, Role role) {
    DType dtype = DType::kFloat32;
    switch (recipe_.scaling) {
      case Scaling::kDelayed:
      case Scaling::kCurrent:
        shape = {1};
        break;
      case Scaling::kToken:
        shape.back() = 1;
        break;
      case Scaling::kBlock128:
        shape.back() /= 128;
        if (role == Role::kWeight) shape[shape.size() - 2] /= 128;
        break;
      case Scaling::kMx:
        dtype = DType::kFloat8;
        shape.back() /= 32;
        break;
      case Scaling::kNv16:
        dtype = DType::kFloat8;
        shape.back() /= 16;
        break;
    }
    return builder_.new_tensor(dtype, std::move(shape));
  }

  std::string_view scaling_name() const {
    switch (recipe_.scaling) {
      case Scaling::kDelayed:
        return "delayed";
      case Scaling::kCurrent:
        return "current";
      case Scaling::kToken:
        return "token";
      case Scaling::kBlock128:
        return "block";
      case Scaling::kMx:
        return "mx";
      case Scaling::kNv16:
        return "nv";
    }
    return "";
  }

  bool per_tensor() const {
    return recipe_.scaling == Scaling::kDelayed || recipe_.scaling == Scaling::kCurrent;
  }

  // `half`: the tensor in whose place the copy along rows comes.
  Copies quantize(const Origin& origin, Role role, Needs needs, std::int64_t sequence,
                  const Tensor* half) {
    const TensorRef x = reference(origin.tensor);
    const Shape shape = builder_.shape(x);
    Shape turned = shape;
    std::swap(turned[turned.size() - 1], turned[turned.size() - 2]);
    if (recipe_.scaling == Scaling::kCurrent) {
      builder_.leaf_op("transformer_engine::compute_amax", {x},
                       {builder_.new_tensor(DType::kFloat32, {1})});
    }
    Copies made_copies;
    if (needs.rows) {
      made_copies.rows = half ? narrow_reference(*half, origin)
                              : builder_.new_tensor(recipe_.dtype, elements(shape));
      made_copies.row_scales = new_scales(shape, role);
    }
    if (needs.columns) {
      made_copies.columns = builder_.new_tensor(recipe_.dtype, elements(turned));
      if (!per_tensor() || !needs.rows) made_copies.column_scales = new_scales(turned, role);
    }
    const auto given = [&](TensorRef tensor) {
      return tensor.exists() ? tensor : builder_.undefined();
    };
    const std::string name(scaling_name());
    builder_.leaf_op("transformer_engine::quantize",
                     {x, scalar_type_code(recipe_.dtype), name.c_str(), needs.rows, needs.columns},
                     {given(made_copies.rows), given(made_copies.columns),
                      given(made_copies.row_scales), given(made_copies.column_scales)},
                     sequence);
    return made_copies;
  }

  // Mentions of half copies that are narrow now.

  void make_narrow(Tensor& tensor, bool turned) {
    tensor.dtype = recipe_.dtype;
    tensor.item_size = size_in_bytes(recipe_.dtype);
    if (recipe_.dtype != DType::kFloat4 || tensor.rank < 2) return;
    const auto sizes = made().shape(tensor);
    Shape shape(sizes.begin(), sizes.end());
    shape[shape.size() - (turned ? 2 : 1)] /= 2;
    tensor.numel /= 2;
    tensor.shape_begin = static_cast<std::uint32_t>(made().shape_pool.size());
    made().shape_pool.insert(made().shape_pool.end(), shape.begin(), shape.end());
  }

  // In memory the half copy lies like the parameter, whichever way round its axes are.
  TensorRef narrow_reference(const Tensor& half, const Origin& origin) {
    Tensor tensor = half;
    tensor.shape_begin = source_.tensors[origin.tensor].shape_begin;
    make_narrow(tensor, false);
    turned_ids_[half.id] = origin.turned;
    return reference(tensor);
  }

  void forget_reused(std::int32_t index) {
    const Node& n = source_.node(index);
    if (narrow_storages_.empty() || n.is_label) return;
    for_each_tensor(source_, source_.outputs(n), [&](const Tensor& out) {
      if (!narrow_storages_.contains(out.storage_id)) return;
      bool view = false, turned = false;
      for_each_tensor(source_, source_.inputs(n), [&](const Tensor& in) {
        if (in.storage_id != out.storage_id) return;
        view = true;
        const auto at = turned_ids_.find(in.id);
        turned = at != turned_ids_.end() && at->second;
        if (in.id != out.id && turns(source_, n)) turned = !turned;
      });
      if (view) {
        turned_ids_[out.id] = turned;
      } else {
        narrow_storages_.erase(out.storage_id);
      }
    });
  }

  void retag(std::int32_t index) {
    if (narrow_storages_.empty() || source_.node(index).is_label) return;
    change_tensors(made(), made().nodes[builder_.innermost()], [this](Tensor& mention) {
      if (!narrow_storages_.contains(mention.storage_id) || !is_wide_half(mention.dtype)) return;
      const auto at = turned_ids_.find(mention.id);
      make_narrow(mention, at != turned_ids_.end() && at->second);
    });
  }

  const ExecutionGraph& source_;
  ProductFinder& finder_;
  const NarrowRecipe recipe_;
  GraphCopy copy_;
  GraphBuilder& builder_;
  std::vector<bool> done_;  // written anew, or part of what was
  std::map<Key, Copies> copies_;
  std::unordered_map<std::int64_t, int> narrow_storages_;  // of half copies that are narrow -> rank
  std::unordered_map<std::int64_t, bool> turned_ids_;      // their views
};

}  // namespace

std::optional<ExecutionGraph> narrow_products(const ExecutionGraph& graph, const BackwardPass& pass,
                                              const NarrowRecipe& recipe) {
  ProductFinder finder(graph, pass, recipe);
  finder.find();
  if (finder.empty()) return std::nullopt;
  return NarrowWriter(graph, finder, recipe).run();
}

}  // namespace perfmodel
