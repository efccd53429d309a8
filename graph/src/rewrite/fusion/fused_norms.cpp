#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "perfmodel/graph/rewrites/fusion.hpp"
#include "step/dialect.hpp"
#include "unfused_norms.hpp"

namespace perfmodel {
namespace {

// aten::layer_norm asks for one; it changes no price.
constexpr double kDefaultEps = 1e-5;

// Writes nn.RMSNorm and nn.LayerNorm as the builders of models do.
class NormWriter {
 public:
  NormWriter(const StepView& step, GraphEdit& edit, const UnfusedNorm& norm)
      : step_(step), edit_(edit), norm_(norm) {}

  void replace() {
    replace_group(
        edit_, step_, norm_.group, [this] { forward(); },
        norm_.is_rms ? "FusedRmsNormBackward0" : "NativeLayerNormBackward0",
        [this](TensorRef gradient, const std::vector<TensorRef>& parts) {
          backward(gradient, parts);
        });
  }

 private:
  TensorRef tensor(const Version* version) {
    return version ? builder_.tensor_of_source(version->tensor) : TensorRef{};
  }
  Value or_none(TensorRef tensor) { return tensor.exists() ? Value(tensor) : Value(kNone); }

  void forward() {
    const std::int64_t sequence = norm_.group.sequence;
    x_ = tensor(norm_.x);
    weight_ = tensor(norm_.weight);
    bias_ = tensor(norm_.bias);
    width_ = {builder_.shape(x_).back()};
    const TensorRef out = tensor(norm_.group.result);
    Shape statistics = builder_.shape(x_);
    statistics.back() = 1;
    const auto statistic = [&] { return builder_.new_tensor(DType::kFloat32, statistics); };
    root_ = statistic();
    const Value eps = norm_.eps ? Value(*norm_.eps) : Value(kNone);
    if (norm_.is_rms) {
      builder_.begin_op("aten::rms_norm", {x_, width_, or_none(weight_), eps}, sequence);
      builder_.leaf_op("aten::_fused_rms_norm", {x_, width_, or_none(weight_), eps}, {out, root_},
                       sequence);
    } else {
      mean_ = statistic();
      const double number = norm_.eps.value_or(kDefaultEps);
      builder_.begin_op("aten::layer_norm",
                        {x_, width_, or_none(weight_), or_none(bias_), number, true}, sequence);
      builder_.leaf_op("aten::native_layer_norm",
                       {x_, width_, or_none(weight_), or_none(bias_), number}, {out, mean_, root_},
                       sequence);
    }
    builder_.end_op({out});
  }

  void backward(TensorRef gradient, const std::vector<TensorRef>& parts) {
    const FusedGroup& group = norm_.group;
    const auto part = [&](const Version* of) {
      const HandedGradient* handed = gradient_of(step_, group, of);
      return handed ? parts[static_cast<std::size_t>(handed - group.handed.data())] : TensorRef{};
    };
    const TensorRef of_x = part(norm_.x), of_weight = part(norm_.weight),
                    of_bias = part(norm_.bias);
    const auto given = [&](TensorRef made) { return made.exists() ? made : builder_.undefined(); };
    if (norm_.is_rms) {
      builder_.leaf_op("aten::_fused_rms_norm_backward",
                       {gradient, x_, width_, root_, or_none(weight_),
                        Value::List{of_x.exists(), of_weight.exists()}},
                       {given(of_x), given(of_weight)});
    } else {
      builder_.leaf_op("aten::native_layer_norm_backward",
                       {gradient, x_, width_, mean_, root_, or_none(weight_), or_none(bias_),
                        Value::List{of_x.exists(), of_weight.exists(), of_bias.exists()}},
                       {given(of_x), given(of_weight), given(of_bias)});
    }
  }

  const StepView& step_;
  GraphEdit& edit_;
  GraphBuilder& builder_ = edit_.builder();
  const UnfusedNorm& norm_;
  TensorRef x_ = {}, weight_ = {}, bias_ = {}, mean_ = {}, root_ = {};
  Shape width_ = {};
};

Unexpected refuse_norms(const std::string& found) {
  return fail(ErrorCode::kImpossible,
              "fuse-norms: expected RMS or layer norms in single ops on a GPU, found " + found);
}

std::string norm_instead(const ExecutionGraph& graph) {
  for (const Node& node : graph.nodes) {
    const std::string_view name = graph.name(node);
    if (name == "aten::_fused_rms_norm" || name == "aten::native_layer_norm") {
      return fmt::format("{}, a norm in one kernel (node {})", name, node.id);
    }
  }
  return "none";
}

}  // namespace

Result<ExecutionGraph> rewrite_fused_norms(const ExecutionGraph& source) {
  const StepView step(source);
  if (auto good = step.check("fuse-norms", {.no_checkpoints = true, .eager = true}); !good) {
    return Unexpected{good.error()};
  }
  const ExecutionGraph& graph = step.graph();
  std::vector<UnfusedNorm> norms = find_unfused_norms(step);
  if (norms.empty()) return refuse_norms(norm_instead(graph));
  std::vector<FusedGroup> groups;
  for (UnfusedNorm& norm : norms) groups.push_back(std::move(norm.group));
  find_backward(step, groups);
  GraphEdit edit(graph, dialect_of(graph));
  std::vector<NormWriter> writers;
  writers.reserve(norms.size());
  std::string left;
  for (std::size_t i = 0; i < norms.size(); ++i) {
    norms[i].group = std::move(groups[i]);
    std::string& broken = norms[i].group.broken;
    if (!graph.tensors[norms[i].x->tensor].on_gpu())
      broken = "tensors on a CPU: --retarget comes first";
    if (!broken.empty()) {
      left = broken;
      continue;
    }
    writers.emplace_back(step, edit, norms[i]).replace();
  }
  if (writers.empty()) return refuse_norms("norms that cannot become one kernel: " + left);
  ExecutionGraph made = edit.write();
  if (!left.empty()) {
    made.warnings.push_back(fmt::format("fuse-norms: {} of {} norms stay in single ops: {}",
                                        norms.size() - writers.size(), norms.size(), left));
  }
  return made;
}

}  // namespace perfmodel
