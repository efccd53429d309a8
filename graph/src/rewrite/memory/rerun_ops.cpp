#include "rerun_ops.hpp"

#include <map>
#include <tuple>

#include "base/contains.hpp"
#include "ops/rows.hpp"
#include "rewrite/change_tensors.hpp"
#include "rewrite/graph_edit.hpp"
#include "step/dialect.hpp"
#include "step/tree_walk.hpp"

namespace perfmodel {
namespace {

using Kind = Argument::Kind;

// Turns a copied dropout into `aten::_masked_scale`, which multiplies by the mask that was kept.
void scale_by_mask(GraphBuilder& builder, Node& copy) {
  ExecutionGraph& graph = builder.graph_being_made();
  const TensorRef x = builder.tensor_of_source(graph.inputs(copy)[0].index);
  const TensorRef result = builder.tensor_of_source(graph.outputs(copy)[0].index);
  const TensorRef mask = builder.tensor_of_source(graph.outputs(copy)[1].index);
  const double dropped = graph.inputs(copy)[1].real;
  copy.name = graph.names.intern("aten::_masked_scale");
  copy.op_schema = graph.names.intern(schema_of("aten::_masked_scale"));
  std::tie(copy.inputs_begin, copy.inputs_count) = builder.append({x, mask, 1.0 / (1.0 - dropped)});
  std::tie(copy.outputs_begin, copy.outputs_count) = builder.append({result});
}

}  // namespace

bool draws_mask(const ExecutionGraph& graph, const Node& node) {
  if (graph.name(node) != "aten::native_dropout") return false;
  const auto inputs = graph.inputs(node), outputs = graph.outputs(node);
  return inputs.size() >= 2 && inputs[0].kind == Kind::kTensor && inputs[1].kind == Kind::kDouble &&
         inputs[1].real < 1 && outputs.size() >= 2 && outputs[0].kind == Kind::kTensor &&
         outputs[1].kind == Kind::kTensor;
}

void RerunWriter::replace_input(const Tensor& input, const Tensor& by) {
  tensors_.ids[step_.tensors().of(input)] = by.id;
  places_.replace(input.id, by);
}

void RerunWriter::write(std::int32_t tree, const RerunOptions& options) {
  std::vector<bool> written;  // for the nodes that are open
  const auto close = [&] {
    if (written.back()) builder_.close();
    written.pop_back();
  };
  const auto open_node = [&](std::int32_t node) {
    written.push_back(!options.kept || !(*options.kept)[node]);
    const bool keeps_mask =
        written.back() && options.keep_masks && draws_mask(graph_, graph_.node(node));
    if (written.back()) open(node, options, keeps_mask);
    if (keeps_mask) close();
    return !keeps_mask;
  };
  walk_tree(graph_, tree, open_node, close);
}

void RerunWriter::open(std::int32_t node, const RerunOptions& options, bool keeps_mask) {
  Node copy = graph_.node(node);
  own_arguments(builder_, copy);
  rename(node, copy, keeps_mask);
  if (keeps_mask) scale_by_mask(builder_, copy);
  if (!options.later_by) {
    copy.seq_id = -1;
  } else if (copy.seq_id >= 0) {
    copy.seq_id += *options.later_by;
  }
  copy.thread = options.thread;
  builder_.copy_node(copy);
}

void RerunWriter::rename(std::int32_t node, const Node& copy, bool keeps_mask) {
  tensors_.taken.clear();
  storages_.taken.clear();
  const Tensor* mask = nullptr;
  if (keeps_mask) mask = &graph_.tensors[graph_.outputs(node)[1].index];
  const auto rename_mention = [&](const Tensor& mention, Tensor& tensor, bool is_output) {
    if (is_undefined(mention) || &mention == mask) return;
    rename(tensor.id, step_.tensors().of(mention), tensors_, is_output);
    rename(tensor.storage_id, step_.storages().of(mention), storages_, is_output);
    if (is_output && tensor.id != mention.id) places_.replace(mention.id, tensor);
  };
  const Node& source = graph_.node(node);
  ExecutionGraph& made = builder_.graph_being_made();
  change_copied_tensors(
      graph_, source.inputs_begin, made, copy.inputs_begin, source.inputs_count,
      [&](const Tensor& mention, Tensor& tensor) { rename_mention(mention, tensor, false); });
  change_copied_tensors(
      graph_, source.outputs_begin, made, copy.outputs_begin, source.outputs_count,
      [&](const Tensor& mention, Tensor& tensor) { rename_mention(mention, tensor, true); });
}

// Values that a node gives without taking them are new.
void RerunWriter::rename(std::int64_t& id, std::int32_t value, NewIds& known, bool is_output) {
  if (id == 0) return;
  if (!is_output) known.taken.push_back(value);
  auto found = known.ids.find(value);
  if (found == known.ids.end() && is_output && !contains(known.taken, value)) {
    found = known.ids.emplace(value, builder_.new_id()).first;
  }
  if (found != known.ids.end()) id = found->second;
}

ExecutionGraph write_reruns(const StepView& step, const std::vector<Rerun>& reruns) {
  const ExecutionGraph& graph = step.graph();
  const BackwardPass& pass = step.backward();
  GraphEdit edit(graph, dialect_of(graph));
  TensorPlaces places;
  edit.on_each_copy([&](std::int32_t node, Node& copy) {
    if (pass.in_backward[node]) places.apply(edit.made(), copy);
  });
  const auto write = [&](const Rerun& rerun, std::int32_t thread) {
    RerunWriter writer(step, edit.builder(), places);
    edit.builder().begin_plain(kRecomputeRegion);
    for (const std::int32_t tree : rerun.nodes) {
      writer.write(tree, {.thread = thread, .later_by = {}, .keep_masks = true});
    }
    edit.builder().end_op();
  };
  std::map<std::int32_t, std::vector<const Rerun*>> by_function;  // by its node
  for (const Rerun& rerun : reruns) {
    by_function[pass.functions[rerun.function].function].push_back(&rerun);
  }
  for (const auto& [function, ops] : by_function) {
    edit.follow(function, [&, function = function] {
      edit.copy().close_to(function);
      for (const Rerun* rerun : by_function.at(function)) {
        write(*rerun, graph.node(function).thread);
      }
    });
  }
  return edit.write();
}

}  // namespace perfmodel
