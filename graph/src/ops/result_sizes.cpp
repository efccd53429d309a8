#include "result_sizes.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>

#include "catalogue.hpp"

namespace perfmodel {
namespace {

using Shape = std::vector<std::int64_t>;
using Results = std::vector<ResultSizes>;

// A file may hold any numbers: no op exceeds these limits, and no sum or product of two numbers
// within them leaves 64 bits.
constexpr std::int64_t kMostElements = std::int64_t{1} << 48;
constexpr std::int64_t kLargestStep = std::int64_t{1}
                                      << 12;  // strides, paddings, dilations, groups

// The arguments of one node, as its rule reads them.
class CallArguments {
 public:
  CallArguments(const ExecutionGraph& graph, const Node& node)
      : graph_(graph), arguments_(graph.inputs(node)), name_(graph.name(node)) {}

  std::string_view name() const { return name_; }
  bool is_like(std::string_view part) const { return name_.find(part) != std::string_view::npos; }
  std::size_t size() const { return arguments_.size(); }

  const Tensor* tensor(std::size_t at) const {
    if (at >= size() || arguments_[at].kind != Argument::Kind::kTensor) return nullptr;
    const Tensor& found = graph_.tensors[arguments_[at].index];
    return found.storage_id != 0 ? &found : nullptr;
  }
  Shape shape(const Tensor& tensor) const {
    const auto extents = graph_.shape(tensor);
    return {extents.begin(), extents.end()};
  }
  /// Tensors that are arguments themselves, not in lists.
  std::vector<const Tensor*> tensors() const {
    std::vector<const Tensor*> found;
    for (std::size_t i = 0; i < size(); ++i) {
      if (const Tensor* one = tensor(i)) found.push_back(one);
    }
    return found;
  }
  std::vector<const Tensor*> tensors_of_list(std::size_t at) const {
    std::vector<const Tensor*> found;
    if (at >= size() || arguments_[at].kind != Argument::Kind::kList) return found;
    for (const Argument& one : graph_.elements(arguments_[at])) {
      const bool is_tensor = one.kind == Argument::Kind::kTensor;
      found.push_back(is_tensor ? &graph_.tensors[one.index] : nullptr);
    }
    return found;
  }
  std::optional<std::int64_t> integer(std::size_t at) const {
    if (at >= size() || arguments_[at].kind != Argument::Kind::kInt) return std::nullopt;
    return arguments_[at].integer;
  }
  bool flag(std::size_t at) const {
    return at < size() && arguments_[at].kind == Argument::Kind::kBool &&
           arguments_[at].integer != 0;
  }
  /// A list of numbers, or one number; nothing if none was recorded.
  std::optional<Shape> integers(std::size_t at) const {
    auto found = recorded_integers(at);
    const auto is_extent = [](std::int64_t n) { return n >= -kMostElements && n <= kMostElements; };
    if (found && !std::ranges::all_of(*found, is_extent)) return std::nullopt;
    return found;
  }
  /// One number for each axis; a list of one holds for all.
  std::optional<Shape> per_axis(std::size_t at, std::size_t axes) const {
    auto found = integers(at);
    if (found && found->size() == 1) found->resize(axes, found->front());
    if (!found || found->size() != axes) return std::nullopt;
    return found;
  }
  std::optional<Shape> steps(std::size_t at, std::size_t axes) const {
    auto found = per_axis(at, axes);
    const auto is_step = [](std::int64_t n) { return n >= 0 && n <= kLargestStep; };
    if (found && !std::ranges::all_of(*found, is_step)) return std::nullopt;
    return found;
  }

 private:
  std::optional<Shape> recorded_integers(std::size_t at) const {
    if (const auto one = integer(at)) return Shape{*one};
    if (at >= size() || arguments_[at].kind != Argument::Kind::kList) return std::nullopt;
    Shape found;
    for (const Argument& one : graph_.elements(arguments_[at])) {
      if (one.kind != Argument::Kind::kInt) return std::nullopt;
      found.push_back(one.integer);
    }
    return found;
  }

  const ExecutionGraph& graph_;
  std::span<const Argument> arguments_;
  std::string_view name_;
};

std::optional<std::size_t> axis_of(std::int64_t axis, std::size_t rank) {
  const auto dims = static_cast<std::int64_t>(rank);
  if (axis < 0) axis += dims;
  if (axis < 0 || axis >= dims) return std::nullopt;
  return static_cast<std::size_t>(axis);
}

Results one(DType dtype, Shape shape) { return {{dtype, std::move(shape)}}; }

/// Values and the places they were found at.
Results with_indices(DType dtype, Shape shape) {
  return {{dtype, shape}, {DType::kInt64, std::move(shape)}};
}

std::optional<Shape> broadcast(Shape a, const Shape& b) {
  if (a.size() < b.size()) a.insert(a.begin(), b.size() - a.size(), 1);
  for (std::size_t i = 0; i < b.size(); ++i) {
    std::int64_t& extent = a[a.size() - b.size() + i];
    if (extent != b[i] && extent != 1 && b[i] != 1) return std::nullopt;
    if (extent == 1) extent = b[i];
  }
  return a;
}

// The type that can hold both: a float, then the wider one; for two different halves fp32.
DType wider(DType a, DType b) {
  if (a == DType::kUnknown || a == b) return b;
  if (b == DType::kUnknown) return a;
  if (is_floating_point(a) != is_floating_point(b)) return is_floating_point(a) ? a : b;
  if (size_in_bytes(a) != size_in_bytes(b)) return size_in_bytes(a) > size_in_bytes(b) ? a : b;
  if (is_floating_point(a)) return DType::kFloat32;
  return a == DType::kBool ? b : a;
}

// Numbers count only among numbers, tensors without dimensions only among these two, unless they
// are floats and the others are not.
DType promoted(std::span<const Tensor* const> tensors) {
  DType whole = DType::kUnknown, single = DType::kUnknown, number = DType::kUnknown;
  for (const Tensor* tensor : tensors) {
    const bool is_number = tensor->rank == 0 && tensor->on_cpu();
    DType& of = tensor->rank > 0 ? whole : is_number ? number : single;
    of = wider(of, tensor->dtype);
  }
  DType best = whole;
  for (const DType next : {single, number}) {
    if (best == DType::kUnknown) {
      best = next;
    } else if (is_floating_point(next) && !is_floating_point(best)) {
      best = DType::kFloat32;
    }
  }
  return best;
}

std::string_view without_underscore(std::string_view name) {
  return name.ends_with('_') ? name.substr(0, name.size() - 1) : name;
}

bool gives_truth(std::string_view name) {
  static constexpr std::string_view kNames[] = {
      "aten::eq",          "aten::ne",          "aten::lt",         "aten::le",
      "aten::gt",          "aten::ge",          "aten::isnan",      "aten::isinf",
      "aten::isfinite",    "aten::logical_and", "aten::logical_or", "aten::logical_not",
      "aten::logical_xor", "aten::isin",        "aten::all",        "aten::any"};
  return std::ranges::find(kNames, without_underscore(name)) != std::end(kNames);
}

// Losses of pairs, whose mean or sum another op takes unless the last number says "none".
bool is_reduced_loss(const CallArguments& call) {
  if (!call.name().ends_with("_loss") && call.name() != "aten::binary_cross_entropy") return false;
  const std::size_t at = call.name() == "aten::binary_cross_entropy" ? 3 : 2;
  return call.integer(at).value_or(1) != 0;
}

// constant_pad_nd(self, pad, ...), reflection_pad2d(self, pad): pairs from the last axis on.
Results padded(const CallArguments& call, const Tensor& x) {
  const auto pad = call.integers(1);
  Shape shape = call.shape(x);
  if (!pad || pad->size() > 2 * shape.size()) return {};
  for (std::size_t i = 0; i < pad->size(); ++i) shape[shape.size() - 1 - i / 2] += (*pad)[i];
  if (std::ranges::any_of(shape, [](std::int64_t extent) { return extent < 0; })) return {};
  return one(x.dtype, std::move(shape));
}

// pixel_shuffle(self, factor): channels become places.
Results shuffled(const CallArguments& call, const Tensor& x) {
  const std::int64_t factor = call.integer(1).value_or(0);
  Shape shape = call.shape(x);
  const std::size_t rank = shape.size();
  if (factor <= 0 || factor > kLargestStep || rank < 3) return {};
  shape[rank - 3] /= factor * factor;
  shape[rank - 2] *= factor;
  shape[rank - 1] *= factor;
  return one(x.dtype, std::move(shape));
}

// glu(self, dim): one half times the other.
Results halved(const CallArguments& call, const Tensor& x) {
  Shape shape = call.shape(x);
  const auto axis = axis_of(call.integer(1).value_or(-1), shape.size());
  if (!axis) return {};
  shape[*axis] /= 2;
  return one(x.dtype, std::move(shape));
}

Results pointwise(const CallArguments& call) {
  std::vector<const Tensor*> tensors = call.tensors();
  if (tensors.empty()) return {};
  if (call.name() == "aten::glu") return halved(call, *tensors[0]);
  if (call.name() == "aten::pixel_shuffle") return shuffled(call, *tensors[0]);
  if (call.is_like("_pad")) return padded(call, *tensors[0]);
  if (is_reduced_loss(call)) return one(tensors[0]->dtype, {});
  if (call.name().ends_with('_')) {
    return one(tensors[0]->dtype, call.shape(*tensors[0]));
  }
  Shape shape;
  for (const Tensor* tensor : tensors) {
    auto both = broadcast(std::move(shape), call.shape(*tensor));
    if (!both) return {};
    shape = std::move(*both);
  }
  const std::string_view name = call.name();
  if (gives_truth(name)) return one(DType::kBool, std::move(shape));
  if (name == "aten::native_dropout") return {{tensors[0]->dtype, shape}, {DType::kBool, shape}};
  if (name == "aten::log_sigmoid_forward") {  // its buffer is for CPUs
    return {{tensors[0]->dtype, std::move(shape)}, {tensors[0]->dtype, {0}}};
  }
  if (name == "aten::_fused_dropout") return {{tensors[0]->dtype, shape}, {DType::kUInt8, shape}};
  if (name == "aten::where" || name == "aten::_s_where") tensors.erase(tensors.begin());
  // Masks and targets come after the tensors that they choose from.
  const bool first_decides = name.find("masked") != std::string_view::npos ||
                             name.find("backward") != std::string_view::npos;
  if (tensors.empty()) return {};
  DType dtype = first_decides ? tensors[0]->dtype : promoted(tensors);
  const bool divides = name == "aten::div" || name == "aten::true_divide";
  if (divides && !is_floating_point(dtype)) dtype = DType::kFloat32;
  return one(dtype, std::move(shape));
}

// Places of the axes of a reduction and of the flag that keeps them.
struct ReducedAxes {
  std::size_t axes = 1, keep = 2;
};
std::optional<ReducedAxes> reduced_axes(const CallArguments& call) {
  const std::string_view name = call.name();
  if (name == "aten::norm" || name == "aten::linalg_vector_norm") {
    if (call.size() >= 4) return ReducedAxes{.axes = 2, .keep = 3};
    return std::nullopt;
  }
  if (name.starts_with("aten::var") || name.starts_with("aten::std")) {
    if (call.size() >= 4) return ReducedAxes{.axes = 1, .keep = 3};
    return std::nullopt;
  }
  if (name == "aten::count_nonzero") return ReducedAxes{};
  // sum(self, dtype) has two arguments, sum(self, dim, keepdim, dtype) four.
  if (call.size() >= 3) return ReducedAxes{};
  return std::nullopt;
}

Results reduction(const CallArguments& call) {
  const std::string_view name = call.name();
  const Tensor* x = call.tensor(0);
  if (!x) return {};
  if (call.tensor(1)) return pointwise(call);  // max(self, other)
  Shape shape = call.shape(*x);
  const auto places = reduced_axes(call);
  std::optional<Shape> axes;
  if (places) axes = call.integers(places->axes);
  if (axes && !axes->empty()) {
    const bool keeps = call.flag(places->keep);
    std::vector<bool> gone(shape.size());
    for (const std::int64_t recorded : *axes) {
      const auto axis = axis_of(recorded, shape.size());
      if (!axis) return {};
      gone[*axis] = true;
    }
    Shape left;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (!gone[i]) left.push_back(shape[i]);
      if (gone[i] && keeps) left.push_back(1);
    }
    shape = std::move(left);
  } else {
    const bool keeps = places && call.flag(places->keep);
    shape.assign(keeps ? shape.size() : 0, 1);
  }
  if (gives_truth(name)) return one(DType::kBool, std::move(shape));
  if (name == "aten::argmax" || name == "aten::argmin" || name == "aten::count_nonzero") {
    return one(DType::kInt64, std::move(shape));
  }
  const bool finds_places = name == "aten::max" || name == "aten::min" || name == "aten::median";
  if (finds_places && axes) return with_indices(x->dtype, std::move(shape));
  if (name.ends_with("_mean") || name.ends_with("aminmax")) {
    return {{x->dtype, shape}, {x->dtype, shape}};
  }
  const bool sums = name == "aten::sum" || name == "aten::prod" || name == "aten::nansum";
  const bool widens = sums && !is_floating_point(x->dtype);
  return one(widens ? DType::kInt64 : x->dtype, std::move(shape));
}

// Places of a convolution's lists. No place: 1, for dilation and groups; 0, for the padding of a
// result.
struct ConvolutionPlaces {
  std::optional<std::size_t> stride, padding, dilation, output_padding, groups;
  bool transposed = false;
};
ConvolutionPlaces convolution_places(const CallArguments& call) {
  const std::string_view name = call.name();
  const bool transposed = name.ends_with("_transpose");
  if (name.starts_with("aten::cudnn_convolution")) {
    if (name.ends_with("add_relu")) return {.stride = 5, .padding = 6, .dilation = 7};
    if (name.ends_with("relu")) return {.stride = 3, .padding = 4, .dilation = 5};
    if (!transposed) return {.stride = 3, .padding = 2, .dilation = 4};
    return {.stride = 4,
            .padding = 2,
            .dilation = 5,
            .output_padding = 3,
            .groups = 6,
            .transposed = true};
  }
  if (transposed) {  // MIOpen's
    return {.stride = 5,
            .padding = 3,
            .dilation = 6,
            .output_padding = 4,
            .groups = 7,
            .transposed = true};
  }
  if (name.starts_with("aten::miopen") || name.starts_with("aten::mkldnn")) {
    return {.stride = 4, .padding = 3, .dilation = 5};
  }
  if (name.find("slow_conv") != name.npos || name.find("thnn_conv") != name.npos ||
      name.find("depthwise") != name.npos) {
    return {.stride = 4,
            .padding = 5,
            .dilation = call.size() > 6 ? std::optional<std::size_t>(6) : std::nullopt};
  }
  return {.stride = 3,
          .padding = 4,
          .dilation = 5,
          .output_padding = 7,
          .groups = 8,
          .transposed = call.flag(6)};
}

Results convolution(const CallArguments& call) {
  const Tensor *x = call.tensor(0), *weight = call.tensor(1);
  if (!x || !weight) return {};
  const Shape in = call.shape(*x), window = call.shape(*weight);
  if (in.size() < 3 || in.size() != window.size()) return {};
  const std::size_t axes = in.size() - 2;
  const ConvolutionPlaces at = convolution_places(call);
  const auto numbers = [&](std::optional<std::size_t> place,
                           std::int64_t otherwise) -> std::optional<Shape> {
    if (!place) return Shape(axes, otherwise);
    return call.steps(*place, axes);
  };
  const auto stride = numbers(at.stride, 1), padding = numbers(at.padding, 0),
             dilation = numbers(at.dilation, 1);
  if (!stride || !padding || !dilation) return {};
  Shape out{in[0], window[0]};
  if (at.transposed) {
    const std::int64_t groups = at.groups ? call.integer(*at.groups).value_or(1) : 1;
    if (groups < 1 || groups > kLargestStep) return {};
    out[1] = window[1] * groups;
  }
  const Shape more = numbers(at.output_padding, 0).value_or(Shape(axes, 0));
  for (std::size_t i = 0; i < axes; ++i) {
    const std::int64_t reach = (*dilation)[i] * (window[i + 2] - 1);
    if ((*stride)[i] <= 0) return {};
    const std::int64_t extent =
        at.transposed ? (in[i + 2] - 1) * (*stride)[i] - 2 * (*padding)[i] + reach + more[i] + 1
                      : (in[i + 2] + 2 * (*padding)[i] - reach - 1) / (*stride)[i] + 1;
    if (extent <= 0) return {};
    out.push_back(extent);
  }
  return one(x->dtype, std::move(out));
}

// Before PyTorch 1.11 only a gradient is asked for, with its sizes first.
Results gradient_of_sizes(const CallArguments& call) {
  const auto sizes = call.integers(0);
  const Tensor* gradient = call.tensor(1);
  if (!sizes || !gradient) return {};
  return one(gradient->dtype, *sizes);
}

// Extent of a pooled axis; the last window may begin in the padding on the left, never on the
// right.
std::int64_t pooled(std::int64_t in, std::int64_t reach, std::int64_t padding, std::int64_t stride,
                    bool rounds_up) {
  const std::int64_t room = in + 2 * padding - reach - 1;
  std::int64_t out = (room + (rounds_up ? stride - 1 : 0)) / stride + 1;
  if (rounds_up && (out - 1) * stride >= in + padding) --out;
  return out;
}

Results windowed(const CallArguments& call, const Tensor& x) {
  const bool is_max = call.is_like("max");
  const std::size_t axes = call.is_like("3d") ? 3 : 2;
  Shape shape = call.shape(x);
  if (shape.size() < axes) return {};
  const auto window = call.steps(1, axes), padding = call.steps(3, axes);
  auto stride = call.steps(2, axes);
  if (const auto given = call.integers(2); given && given->empty()) stride = window;
  const auto dilation = is_max ? call.steps(4, axes) : Shape(axes, 1);
  const bool rounds_up = call.flag(is_max ? 5 : 4);
  if (!window || !padding || !stride || !dilation) return {};
  for (std::size_t i = 0; i < axes; ++i) {
    std::int64_t& extent = shape[shape.size() - axes + i];
    if ((*stride)[i] <= 0) return {};
    extent =
        pooled(extent, (*dilation)[i] * ((*window)[i] - 1), (*padding)[i], (*stride)[i], rounds_up);
    if (extent <= 0) return {};
  }
  return is_max ? with_indices(x.dtype, std::move(shape)) : one(x.dtype, std::move(shape));
}

Results pooling(const CallArguments& call) {
  const Tensor* x = call.tensor(0);
  if (!x) return {};
  const std::string_view name = call.name();
  if (name.starts_with("aten::upsample") && call.is_like("backward")) {
    const auto sizes = call.integers(2);
    return sizes ? one(x->dtype, *sizes) : Results{};
  }
  if (call.is_like("backward")) {
    const Tensor* input = call.tensor(1);
    return input ? one(input->dtype, call.shape(*input)) : Results{};
  }
  if (call.is_like("adaptive") || name.starts_with("aten::upsample")) {
    const std::size_t axes = call.is_like("3d") ? 3 : 2;
    Shape shape = call.shape(*x);
    const auto sizes = call.per_axis(1, axes);
    if (!sizes || shape.size() < axes) return {};
    std::ranges::copy(*sizes, shape.end() - static_cast<std::ptrdiff_t>(axes));
    return call.is_like("max") ? with_indices(x->dtype, std::move(shape))
                               : one(x->dtype, std::move(shape));
  }
  if (name == "aten::grid_sampler_2d") {
    const Tensor* grid = call.tensor(1);
    if (!grid || x->rank != 4 || grid->rank != 4) return {};
    const Shape in = call.shape(*x), places = call.shape(*grid);
    return one(x->dtype, {in[0], in[1], places[1], places[2]});
  }
  return call.is_like("pool") ? windowed(call, *x) : Results{};
}

// index(self, indices): the axes that have an index become one, at the place of the first if they
// are neighbours, else in front.
Results indexed(const CallArguments& call) {
  const Tensor* x = call.tensor(0);
  const auto indices = call.tensors_of_list(1);
  if (!x || indices.empty() || indices.size() > x->rank) return {};
  const Shape in = call.shape(*x);
  Shape places;
  std::size_t first = in.size(), last = 0;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const bool is_whole = !indices[i] || (indices[i]->rank == 0 && indices.size() > 1);
    if (is_whole) continue;
    const Shape index = call.shape(*indices[i]);
    // An index as large as the tensor's own axes is a mask, whose number of true values is unknown.
    const bool covers =
        index.size() > 1 && i + index.size() <= in.size() &&
        std::equal(index.begin(), index.end(), in.begin() + static_cast<std::ptrdiff_t>(i));
    if (covers || indices[i]->dtype == DType::kBool) return {};
    auto both = broadcast(std::move(places), index);
    if (!both) return {};
    places = std::move(*both);
    first = std::min(first, i);
    last = i;
  }
  if (first == in.size()) return {};
  bool adjacent = true;
  Shape out;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const bool has_index =
        i < indices.size() && indices[i] && (indices[i]->rank > 0 || indices.size() == 1);
    if (!has_index) out.push_back(in[i]);
    if (!has_index && i > first && i < last) adjacent = false;
  }
  const std::size_t at = adjacent ? first : 0;
  out.insert(out.begin() + static_cast<std::ptrdiff_t>(at), places.begin(), places.end());
  return one(x->dtype, std::move(out));
}

Results gathered(const CallArguments& call) {
  const std::string_view name = call.name();
  const Tensor* x = call.tensor(0);
  if (!x) return {};
  if (name == "aten::index" || name == "aten::_unsafe_index") return indexed(call);
  if (name == "aten::take" || name == "aten::take_along_dim") {
    const Tensor* index = call.tensor(1);
    return index ? one(x->dtype, call.shape(*index)) : Results{};
  }
  const Tensor* index = call.tensor(2);
  if (!index) return {};
  if (name == "aten::gather") return one(x->dtype, call.shape(*index));
  Shape shape = call.shape(*x);
  const auto axis = axis_of(call.integer(1).value_or(0), shape.size());
  if (!axis) return {};
  shape[*axis] = index->numel;
  return one(x->dtype, std::move(shape));
}

Results searched(const CallArguments& call) {
  const Tensor* x = call.tensor(call.name() == "aten::searchsorted" ? 1 : 0);
  return x ? one(DType::kInt64, call.shape(*x)) : Results{};
}

Results looked_up(const CallArguments& call) {
  const std::string_view name = call.name();
  const Tensor* x = call.tensor(0);
  if (!x) return {};
  if (name == "aten::isin") return one(DType::kBool, call.shape(*x));
  if (name == "aten::diag_embed" && x->rank > 0) {
    Shape shape = call.shape(*x);
    shape.push_back(shape.back());
    return one(x->dtype, std::move(shape));
  }
  if (name == "aten::one_hot" && call.integer(1).value_or(-1) > 0) {
    Shape shape = call.shape(*x);
    shape.push_back(*call.integer(1));
    return one(DType::kInt64, std::move(shape));
  }
  return {};
}

// topk(self, k, dim)
Results largest(const CallArguments& call) {
  const Tensor* x = call.tensor(0);
  const auto count = call.integer(1);
  if (!x || !count) return {};
  Shape shape = call.shape(*x);
  const auto axis = axis_of(call.integer(2).value_or(-1), shape.size());
  if (!axis) return {};
  shape[*axis] = *count;
  return with_indices(x->dtype, std::move(shape));
}

bool is_possible(const ResultSizes& result) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : result.shape) {
    if (extent < 0 || extent > kMostElements) return false;
    if (extent > 0 && elements > kMostElements / extent) return false;
    elements *= std::max<std::int64_t>(1, extent);
  }
  return true;
}

// By the rule that prices the op: the rules that ask for results.
struct PricedResults {
  std::string_view price;
  Results (*results)(const CallArguments&);
};
constexpr PricedResults kRules[] = {
    {"pointwise", pointwise},
    {"reduction", reduction},
    {"convolution.forward", convolution},
    {"convolution.native_forward", convolution},
    {"convolution.old_backward", gradient_of_sizes},
    {"pooling", pooling},
    {"pooling.plain", pooling},
    {"index.gather", gathered},
    {"index.search", searched},
    {"index.one_pass", looked_up},
    {"sort.topk", largest},
};

}  // namespace

std::vector<ResultSizes> results_of(const ExecutionGraph& graph, const Node& node) {
  const std::string_view name = graph.name(node);
  const Op* op = find_op(name);
  if (!op) return {};
  const std::string_view price = price_rule(*op);
  const auto* rule = std::ranges::find(kRules, price, &PricedResults::price);
  if (rule == std::end(kRules)) return {};
  Results found = rule->results(CallArguments(graph, node));
  if (!std::ranges::all_of(found, is_possible)) found.clear();
  return found;
}

void update_results(ExecutionGraph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.outputs_count == 0) continue;
    const std::vector<ResultSizes> results = results_of(graph, node);
    std::size_t k = 0;
    for (const Argument& output : graph.outputs(node)) {
      if (k == results.size() || output.kind != Argument::Kind::kTensor) break;
      Tensor& tensor = graph.tensors[output.index];
      const Shape& shape = results[k++].shape;
      if (shape.size() != tensor.rank) continue;
      std::ranges::copy(shape, graph.shape_pool.begin() + tensor.shape_begin);
      tensor.numel = 1;
      for (const std::int64_t extent : shape) tensor.numel *= extent;
    }
  }
}

}  // namespace perfmodel
