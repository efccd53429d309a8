#include "retarget_rules.hpp"

#include <algorithm>
#include <utility>

#include "builders/emit/memory.hpp"
#include "builders/emit/views.hpp"
#include "ops/catalogue.hpp"
#include "step/autograd_names.hpp"
#include "step/view_strides.hpp"

namespace perfmodel {
namespace {

// The kernels exist on both devices; the inner ops of a CPU do not matter.
void retarget_leaf(const CpuOp& op) { op.refill({}); }

// A number is compared and moved lazily; neither happens on a GPU without complex tensors.
void disappear(const CpuOp& op) { op.leave_out(); }

// A CPU looks for classes out of range first, the kernel of a GPU does it on the way.
void retarget_one_hot(const CpuOp& op) {
  if (op.integer(1) < 0) return;  // the largest class says their number, on a GPU as well
  for (const std::int32_t child : op.children()) {
    const std::string_view name = op.at(child).name();
    if (name == "aten::min" || name == "aten::max" || name == "aten::item") {
      op.at(child).leave_out();
    }
  }
}

// F.interpolate calls an op that calls the one with a kernel, of the same name.
void retarget_upsampling(const CpuOp& op) {
  if (op.child(op.name()) < 0) retarget_leaf(op);
}

// The addend is copied into the result on both devices.
void retarget_batched_product(const CpuOp& op) {
  if (!op.children().empty()) return op.keep_children({"aten::expand", "aten::copy_"});
  if (!op.input(0) || !op.output(0)) return;
  op.refill([op](GraphBuilder& graph) {
    const TensorRef made = op.result(0);
    copy(graph, made, expand(graph, op.tensor(0), graph.shape(made)));
  });
}

// As rows of the op catalogue name them.
const std::unordered_map<std::string_view, RetargetRule>& retarget_rules() {
  static const std::unordered_map<std::string_view, RetargetRule> kRules = {
      {"disappear", disappear},
      {"leaf", retarget_leaf},
      {"reduction", retarget_reduction},
      {"zero_of_any_size", retarget_zero},
      {"dropout", retarget_dropout},
      {"softmax_backward", retarget_softmax_gradient},
      {"multiply", retarget_product_with_mask},
      {"nll_loss_forward", retarget_nll_loss},
      {"log_sigmoid_forward", retarget_log_sigmoid},
      {"binary_cross_entropy_gradient", retarget_binary_cross_entropy_gradient},
      {"product_with_bias", retarget_product_with_bias},
      {"batched_product_with_addend", retarget_batched_product},
      {"attention", retarget_attention},
      {"attention_backward", retarget_attention_gradient},
      {"foreach", retarget_foreach},
      {"convolution", retarget_convolution},
      {"mkldnn_convolution", retarget_mkldnn_convolution},
      {"convolution_backward", retarget_convolution_gradient},
      {"batch_norm", retarget_batch_norm},
      {"batch_norm_backward", retarget_batch_norm_gradient},
      {"layer_norm_backward", retarget_layer_norm_gradient},
      {"index_select", retarget_index_select},
      {"index_put", retarget_index_put},
      {"one_hot", retarget_one_hot},
      {"upsample", retarget_upsampling},
      {"embedding_gradient", retarget_embedding_gradient},
      {"embedding_bag", retarget_embedding_bag},
      {"embedding_bag_gradient", retarget_embedding_bag_gradient},
      {"add_sparse", retarget_sparse_sum},
      {"coalesce", retarget_coalesce},
      {"sparse_tensor", retarget_sparse_tensor},
      {"sparse_mask", retarget_sparse_mask},
  };
  return kRules;
}

// The rule for an op's name, or null. In-place variants need none, except lists and variants that a
// CPU runs as several ops.
RetargetRule find_rule(std::string_view name) {
  const Op* op = find_op(name);
  if (!op) return nullptr;
  const std::string_view named = retarget_rule(*op);
  const bool variants_too = op->kind == OpKind::kForeach || named == "leaf";
  if (named.empty() || (op->name != name && !variants_too)) return nullptr;
  const auto rule = retarget_rules().find(named);
  PERFMODEL_CHECK(rule != retarget_rules().end());  // a row names a rule that does not exist
  return rule->second;
}

// Autograd's saved copies are below an op whose kernel is not looked into.
bool is_bare(const CpuOp& op) {
  return std::ranges::all_of(op.children(), [&](std::int32_t child) {
    const std::string_view name = op.at(child).name();
    return name == "aten::detach" || name == "aten::clone";
  });
}

// The host computes `x + 1` of numbers in the type of x, to which it casts the other one first.
void cast_number_on_host(const CpuOp& op) {
  const Tensor *number = op.input(0), *other = op.input(1);
  const Op* row = find_op(op.name());
  if (!row || !row->takes_numbers || !number || !other || number->dtype == other->dtype) return;
  op.refill(
      [op](GraphBuilder& graph) { to_dtype(graph, op.tensor(1), graph.dtype(op.tensor(0))); });
}

struct Sight {
  bool tensors = false, memory = false;
};

Sight sight_of(const ExecutionGraph& graph, std::int32_t node) {
  Sight sight;
  for_each_tensor(graph, graph.inputs(graph.node(node)), [&](const Tensor& tensor) {
    sight.tensors |= tensor.rank > 0 && tensor.storage_id == 0;
    sight.memory |= tensor.storage_id != 0;
  });
  return sight;
}

// Under vmap an op sees tensors without memory: the batched op that vmap calls below it runs.
// Sparse tensors have none either, but the ops that take them apart see them as well.
bool is_called_by_vmap(const CpuOp& op) {
  const Sight own = sight_of(op.source(), op.node());
  return own.tensors && !own.memory && !op.children().empty() &&
         std::ranges::none_of(op.children(), [&](std::int32_t child) {
           return sight_of(op.source(), child).tensors;
         });
}

// Tensors and arguments that name the CPU, or `meta` in a captured graph, name the GPU, except
// those that a GPU run keeps on the host too.
void move_to_gpu(const Placement& placement, ExecutionGraph& graph,
                 const std::vector<Node>& nodes) {
  for (std::size_t t = 0; t < graph.tensors.size(); ++t) {
    Tensor& tensor = graph.tensors[t];
    if ((tensor.on_cpu() || tensor.on_meta()) && !placement.tensors_on_host[t]) {
      tensor.device = {.kind = Device::Kind::kGpu, .index = 0};
    }
  }
  const NameId gpu = graph.names.intern("cuda:0");
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (placement.on_host[i]) continue;
    for (std::uint32_t k = 0; k < nodes[i].inputs_count; ++k) {
      Argument& argument = graph.arguments[nodes[i].inputs_begin + k];
      if (argument.kind == Argument::Kind::kOpaque &&
          graph.names.text(argument.index) == placement.device) {
        argument.index = gpu;
      }
    }
  }
}

}  // namespace

Retargeter::Retargeter(const StepView& step, const Placement& placement, const PyTorch& pytorch,
                       const RetargetOptions& options)
    : placement_(placement),
      options_(options),
      edit_(step.graph(), pytorch),
      settled_(step.graph().nodes.size()),
      strides_(strides_in_memory(step)) {
  move_to_gpu(placement, edit_.made(), source().nodes);
}

void Retargeter::rename_tensor(std::size_t first_entry, const Tensor& made, const Tensor& as) {
  const std::int64_t id = made.id, storage = made.storage_id;
  std::vector<Tensor>& tensors = edit_.made().tensors;
  for (std::size_t t = first_entry; t < tensors.size(); ++t) {
    if (tensors[t].id == id) tensors[t].id = as.id;
    if (storage != 0 && tensors[t].storage_id == storage) tensors[t].storage_id = as.storage_id;
  }
}

Result<ExecutionGraph> Retargeter::run() {
  plan_inputs();
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(source().nodes.size()); ++i) {
    const std::int32_t parent = source().node(i).parent;
    if (parent >= 0 && settled_[parent]) settled_[i] = true;
    if (!settled_[i]) plan({*this, i});
  }
  edit_.on_each_copy([this](std::int32_t node, Node& made) { rename_function(node, made); });
  ExecutionGraph made = edit_.write();
  if (error_) return Unexpected{std::move(*error_)};
  return made;
}

void Retargeter::plan(const CpuOp& op) {
  // A CPU casts the number of `x / 3` in an op of its own, a GPU's kernel does it on the way.
  const bool on_host = placement_.on_host[op.node()];
  const bool casts_number = on_host && is_conversion(op.name()) && op.parent() >= 0 &&
                            !placement_.on_host[op.parent()] &&
                            !source().node(op.parent()).is_label;
  if (casts_number) return op.leave_out();
  if (on_host) settled_[op.node()] = true;
  if (on_host && placement_.is_captured() && is_bare(op)) return cast_number_on_host(op);
  if (on_host || source().node(op.node()).is_label || is_called_by_vmap(op)) return;
  if (placement_.is_captured() && is_bare(op)) {
    if (const RetargetRule rule = find_bare_rule(op)) return rule(op);
  }
  if (const RetargetRule rule = find_rule(op.name())) rule(op);
}

// Backward functions of ops that are other ops now.
void Retargeter::rename_function(std::int32_t node, Node& made) {
  const bool evaluates = source().name(node).starts_with(kEvaluate);
  const auto below = source().children(node);
  const Node& function = source().node(evaluates && !below.empty() ? below.front() : node);
  const auto kept = kept_.find(function.seq_id);
  if (function.scope != Scope::kBackward || function.seq_id < 0 || kept == kept_.end()) return;
  made.name = edit_.made().names.intern(evaluates ? std::string(kEvaluate) + kept->second.function
                                                  : kept->second.function);
}

// Inputs are copied before everything else of their step, or where the program itself asks for it.
void Retargeter::plan_inputs() {
  if (options_.inputs == RetargetOptions::Inputs::kOnDevice) return;
  std::unordered_map<std::int32_t, std::vector<StepInput>> copied_before;
  for (const StepInput& input : placement_.inputs) {
    const Tensor* from = input_at(source(), input.node, 0);
    const Tensor* to = output_at(source(), input.node);
    if (is_conversion(source().name(input.node)) && from && to &&
        from->storage_id == to->storage_id) {
      settled_[input.node] = true;
      edit_.replace(input.node, [this, input] { write_input(input, input.node); });
      continue;
    }
    const std::int32_t at = source().find_around(input.node, [&](std::int32_t i) {
      const std::int32_t parent = source().node(i).parent;
      return parent < 0 || source().node(parent).is_structural ||
             source().name(parent).starts_with("ProfilerStep#");
    });
    if (at < 0) continue;
    const std::int32_t step = source().node(at).parent;
    const auto siblings = step < 0 ? std::span<const std::int32_t>() : source().children(step);
    const auto first = std::ranges::find_if(siblings, [&](std::int32_t i) {
      return !placement_.is_artefact[i] && !source().node(i).is_structural;
    });
    copied_before[first == siblings.end() ? at : *first].push_back(input);
  }
  for (auto& [node, inputs] : copied_before) {
    edit_.precede(node, [this, at = node, inputs = std::move(inputs)] {
      for (const StepInput& input : inputs) write_input(input, at);
    });
  }
}

// The tensor that the ops know is the one on the GPU; the host's is a new one.
void Retargeter::write_input(const StepInput& input, std::int32_t before) {
  const auto behind = source().nodes.begin() + before;
  const auto next =
      std::find_if(behind, source().nodes.end(), [](const Node& node) { return node.seq_id >= 0; });
  const std::int64_t sequence = next == source().nodes.end() ? -1 : next->seq_id;
  edit_.copy().close_beside(before);
  GraphBuilder& graph = edit_.builder();
  const Tensor& device = source().tensors[input.tensor];
  const auto sizes = source().shape(device);
  const TensorRef host =
      graph.new_tensor(device.dtype, GraphBuilder::cpu(), Shape(sizes.begin(), sizes.end()));
  const bool pinned = options_.inputs == RetargetOptions::Inputs::kPinned;
  const ExecutionGraph& made = edit_.made();
  const std::size_t first = made.nodes.size(), first_entry = made.tensors.size();
  to_device(graph, host, pinned, sequence);
  rename_tensor(first_entry, *output_at(made, static_cast<std::int32_t>(first)), device);
}

}  // namespace perfmodel
