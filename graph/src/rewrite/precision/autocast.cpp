#include "autocast.hpp"

#include "builders/emit/memory.hpp"
#include "rewrite/graph_copy.hpp"
#include "step/optimizer_reader.hpp"

namespace perfmodel {
namespace {

class AutocastWriter {
 public:
  AutocastWriter(const StepView& step, const AutocastPlan& plan, const AutocastOptions& options)
      : source_(step.graph()),
        functions_(step.backward().functions),
        plan_(plan),
        copy_(source_, options.on_gpu ? PyTorch{} : PyTorch{.device = GraphBuilder::cpu()}),
        builder_(copy_.builder()),
        casts_(plan.casts.size()) {}

  ExecutionGraph write() {
    for (const PlannedStep& step : plan_.steps) write_step(step);
    return copy_.finish();
  }

 private:
  void write_step(const PlannedStep& step) {
    switch (step.kind) {
      case PlannedStep::Kind::kNode: copy_.copy(step.at); break;
      case PlannedStep::Kind::kTree: write_tree(step.at); break;
      case PlannedStep::Kind::kCast:
        copy_.close_to(step.at);
        write_cast(step.cast, -1);
        break;
      case PlannedStep::Kind::kCastFunction: write_function(step); break;
    }
  }

  void write_tree(std::int32_t node) {
    const PlannedOp& op = plan_.ops[node];
    if (!op.is_wrapped && !op.casts.empty()) {
      copy_.close_beside(node);  // not inside the op before
      write_casts(op);
    }
    copy_.copy(node);
    if (!op.gives_fp32) change_type_argument(op);
    if (op.is_wrapped) {
      last().seq_id = -1;  // autocast's kernel comes before autograd's
      if (!op.gives_fp32) write_casts(op);
      retype(node);
      copy_.nest(node);  // has arguments of its own
      for (const ReplacedTensor& one : op.casts) {
        retype(*one.tensor, plan_.casts[one.by.cast].from);
      }
      if (op.gives_fp32) change_type_argument(op);
      if (op.gives_fp32) write_casts(op);
    } else {
      retype(node);
    }
    if (op.sequence >= 0) last().seq_id = op.sequence;
    for (const std::int32_t child : source_.children(node)) write_tree(child);
  }

  void write_casts(const PlannedOp& op) {
    for (const ReplacedTensor& one : op.casts) {
      const std::int32_t cast = one.by.cast;
      if (!casts_[cast]) write_cast(cast, plan_.casts[cast].sequence);
    }
  }

  void write_cast(std::int32_t cast, std::int64_t sequence) {
    const PlannedCast& planned = plan_.casts[cast];
    const TensorRef from = source_of(planned);
    if (planned.by_options) {
      to(builder_, from,
         builder_.new_tensor(planned.dtype, builder_.device(from), builder_.shape(from)), {},
         sequence);
    } else {
      to_dtype(builder_, from, planned.dtype, sequence);
    }
    casts_[cast] = made().tensors.back();
  }

  void write_function(const PlannedStep& step) {
    const PlannedCast& cast = plan_.casts[step.cast];
    copy_.begin_function(functions_[step.at], "ToCopyBackward0", source_of(cast), cast.sequence);
    write_cast(step.cast, -1);
    builder_.end_op();
    if (step.sum >= 0) {
      builder_.copy_node(source_.node(step.sum));
      retype(step.sum);
      builder_.close();
    }
    builder_.end_op();
  }

  TensorRef source_of(const PlannedCast& cast) {
    made().tensors.push_back(retyped(*cast.tensor, cast.from));
    return builder_.tensor_of_source(static_cast<std::uint32_t>(made().tensors.size() - 1));
  }

  // A copy has the arguments of its source.
  void retype(std::int32_t node) {
    const auto write = [this](const Tensor& tensor) {
      retype(tensor, plan_.mentions[mention_index(source_, tensor)]);
    };
    for_each_tensor(source_, source_.inputs(node), write);
    for_each_tensor(source_, source_.outputs(node), write);
  }

  void retype(const Tensor& tensor, const RetypedTensor& by) {
    made().tensors[mention_index(source_, tensor)] = retyped(tensor, by);
  }

  Tensor retyped(Tensor tensor, const RetypedTensor& by) const {
    if (tensor.dtype != DType::kFloat32 || by.dtype == DType::kUnknown) return tensor;
    tensor.dtype = by.dtype;
    tensor.item_size = size_in_bytes(by.dtype);
    if (by.storage >= 0) tensor.storage_id = casts_[by.storage]->storage_id;
    if (by.cast >= 0) tensor.id = casts_[by.cast]->id;
    return tensor;
  }

  void change_type_argument(const PlannedOp& op) {
    if (!op.type_argument) return;
    const auto& [position, argument] = *op.type_argument;
    made().arguments[last().inputs_begin + position] = argument;
  }

  ExecutionGraph& made() { return builder_.graph_being_made(); }
  Node& last() { return made().nodes[builder_.innermost()]; }

  const ExecutionGraph& source_;
  const std::vector<BackwardFunction>& functions_;
  const AutocastPlan& plan_;
  GraphCopy copy_;
  GraphBuilder& builder_;
  std::vector<std::optional<Tensor>> casts_;  // results, once they are written
};

}  // namespace

ExecutionGraph autocast_graph(const StepView& step, const std::vector<bool>& region,
                              const AutocastOptions& options) {
  return AutocastWriter(step, plan_autocast(step, region, options), options).write();
}

}  // namespace perfmodel
