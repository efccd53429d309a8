#include "unfused_norms.hpp"

#include <algorithm>
#include <utility>

#include "ops/catalogue.hpp"
#include "step/pattern.hpp"

namespace perfmodel {
namespace {

// The mean of squares, or the variance, of "d" plus eps, under a root.
std::vector<Pattern> spreads() {
  const Pattern d = value("d");
  const auto mean = [](Pattern of) { return op("mean", {std::move(of)}).named("mean"); };
  std::vector<Pattern> spreads;
  for (const Pattern& one : {mean(one_of({"pow", "square"}, {d}).named("square")),
                             mean(op("mul", {d, d})), op("var", {value("x")}).named("mean")}) {
    spreads.push_back(op("add", {one}).named("sum"));
    spreads.push_back(op("add", {one, anything()}).named("sum"));
  }
  return spreads;
}

// "d" over the root, in all ways to write it.
std::vector<Pattern> normalised() {
  std::vector<Pattern> patterns;
  for (const Pattern& spread : spreads()) {
    patterns.push_back(either_order("mul", value("d"), op("rsqrt", {spread})));
    patterns.push_back(op("div", {value("d"), op("sqrt", {spread})}));
  }
  return patterns;
}

class NormFinder {
 public:
  explicit NormFinder(const StepView& step)
      : graph_(step.graph()), flow_(step.forward()), matcher_(step) {}

  std::vector<UnfusedNorm> find() {
    std::vector<UnfusedNorm> norms;
    for (const std::int32_t op : flow_.ops()) {
      if (auto norm = flow_.outputs(op).empty() ? std::nullopt : norm_at(op)) {
        norms.push_back(std::move(*norm));
      }
    }
    return norms;
  }

 private:
  // Older PyTorch 2 calls single ops inside of aten::rms_norm.
  std::optional<UnfusedNorm> composite(std::int32_t op) const {
    const auto children = graph_.children(op);
    const auto is_kernel = [&](std::int32_t child) {
      return graph_.name(child) == "aten::_fused_rms_norm";
    };
    if (graph_.name(op) != "aten::rms_norm" || children.empty()) return std::nullopt;
    if (std::ranges::any_of(children, is_kernel)) return std::nullopt;
    const auto& read = flow_.inputs(op);
    UnfusedNorm norm{.is_rms = true, .x = read.front()};
    if (read.size() > 1) norm.weight = read[1];
    norm.group = {.ops = {op}, .result = flow_.outputs(op).front()};
    return norm;
  }

  std::optional<UnfusedNorm> norm_at(std::int32_t op) const {
    if (auto norm = composite(op)) return norm;
    for (const Pattern& pattern : patterns_) {
      Match match;
      if (!matcher_.match(pattern, *flow_.outputs(op).front(), match)) continue;
      auto norm = core(match);
      if (!norm || !is_of_last_axis(match)) return std::nullopt;
      norm->group.result = flow_.outputs(op).front();
      extend(*norm);
      std::ranges::sort(norm->group.ops);
      return norm;
    }
    return std::nullopt;
  }

  // Finds the value that the norm divides: x less its mean, or x itself, through casts that nothing
  // else reads.
  std::optional<UnfusedNorm> core(const Match& match) const {
    UnfusedNorm norm{.is_rms = true, .x = match["d"]};
    norm.group.ops = match.sorted_ops();
    Match centred;
    const bool is_centred = matcher_.match(centred_, *match["d"], centred).has_value();
    if (is_centred) {
      norm.is_rms = false;
      norm.x = centred["x"];
      norm.group.ops.insert(norm.group.ops.end(), centred.ops.begin(), centred.ops.end());
    }
    // The variance must be taken of the same x, less its mean.
    if (const Version* x = match["x"]; x && (!is_centred || x != norm.x)) return std::nullopt;
    norm.eps = number_of(match["sum"]->op, 1);  // unless it is a wrapped number
    std::ranges::sort(norm.group.ops);
    while (is_cast(norm.x->op) && !flow_.inputs(norm.x->op).empty()) {
      const std::int32_t cast = norm.x->op;
      const Version* from = flow_.inputs(cast).front();
      const bool is_inside = is_read_inside(*norm.x, norm.group.ops);
      const bool does_nothing =
          graph_.tensors[from->tensor].id == graph_.tensors[norm.x->tensor].id;
      if (!is_inside && !does_nothing) break;
      if (is_inside) norm.group.ops.push_back(cast);
      std::ranges::sort(norm.group.ops);
      norm.x = from;
    }
    return norm;
  }

  bool is_cast(std::int32_t op) const {
    return op >= 0 && is_conversion(graph_.name(op)) && !flow_.inputs(op).empty();
  }

  bool is_read_inside(const Version& version, const std::vector<std::int32_t>& ops) const {
    return std::ranges::all_of(version.readers, [&](std::int32_t reader) {
      return std::ranges::binary_search(ops, reader);
    });
  }

  std::optional<double> number_of(std::int32_t op, std::size_t at) const {
    using Kind = Argument::Kind;
    const auto inputs = graph_.inputs(op);
    if (at >= inputs.size()) return std::nullopt;
    const Argument& number = inputs[at];
    if (number.kind == Kind::kDouble) return number.real;
    if (number.kind != Kind::kInt && number.kind != Kind::kBool) return std::nullopt;
    return static_cast<double>(number.integer);
  }

  // A row has one mean, and squares are squares.
  bool is_of_last_axis(const Match& match) const {
    const Tensor &mean = graph_.tensors[match["mean"]->tensor],
                 &d = graph_.tensors[match["d"]->tensor];
    if (d.rank < 1 || mean.rank != d.rank || graph_.shape(mean).back() != 1 ||
        mean.numel * graph_.shape(d).back() != d.numel) {
      return false;
    }
    if (match["x"]) return number_of(match["mean"]->op, 2) == 0.0;  // divides by n, not n - 1
    if (!match["square"]) return true;
    const std::int32_t square = match["square"]->op;
    return graph_.name(square) == "aten::square" || number_of(square, 1) == 2.0;
  }

  // Takes in the ops that follow: a cast, the weight, the bias.
  void extend(UnfusedNorm& norm) const {
    for (;;) {
      const std::vector<std::int32_t>& readers = norm.group.result->readers;
      if (readers.size() != 1 || flow_.outputs(readers.front()).size() != 1) return;
      const std::int32_t next = readers.front();
      if (!is_cast(next)) {
        const bool is_scale = is_op(next, "aten::mul"), is_shift = is_op(next, "aten::add");
        const bool is_next = is_scale ? !norm.weight && !norm.bias
                                      : is_shift && !norm.is_rms && norm.weight && !norm.bias;
        const Version* parameter = is_next ? other_operand(next, *norm.group.result) : nullptr;
        if (!parameter) return;
        (is_scale ? norm.weight : norm.bias) = parameter;
      }
      norm.group.ops.push_back(next);
      norm.group.result = flow_.outputs(next).front();
    }
  }

  bool is_op(std::int32_t node, std::string_view name) const { return graph_.name(node) == name; }

  // A number per column.
  const Version* other_operand(std::int32_t op, const Version& one) const {
    const auto& read = flow_.inputs(op);
    if (read.size() != 2) return nullptr;
    const Version* other = read[0] == &one ? read[1] : read[0];
    const Tensor &weight = graph_.tensors[other->tensor], &x = graph_.tensors[one.tensor];
    const bool fits = weight.rank == 1 && weight.numel == graph_.shape(x).back();
    return fits && other != &one ? other : nullptr;
  }

  const ExecutionGraph& graph_;
  const ForwardFlow& flow_;
  const PatternMatcher matcher_;
  const std::vector<Pattern> patterns_ = normalised();
  const Pattern centred_ = op("sub", {value("x"), op("mean", {value("x")})});
};

}  // namespace

std::vector<UnfusedNorm> find_unfused_norms(const StepView& step) {
  return NormFinder(step).find();
}

}  // namespace perfmodel
