#include "relaid_views.hpp"

#include <string_view>
#include <utility>

#include "builders/emit/graph_views.hpp"
#include "builders/emit/memory.hpp"
#include "step/tensor_arguments.hpp"

namespace perfmodel {
namespace {

bool is_written_anew(std::string_view name) {
  return name == "aten::permute" || name == "aten::transpose" || name == "aten::view" ||
         name == "aten::reshape" || name == "aten::_unsafe_view" || name == "aten::contiguous" ||
         name == "aten::clone";
}

Shape listed_numbers(const ExecutionGraph& graph, const Argument& list) {
  Shape made;
  for (const Argument& one : graph.elements(list)) made.push_back(one.integer);
  return made;
}

}  // namespace

RelaidViews::RelaidViews(const StepView& step, GraphEdit& edit, TensorPlaces& places, Moved moved,
                         Closed closed)
    : step_(step),
      graph_(step.graph()),
      edit_(edit),
      places_(places),
      moved_(std::move(moved)),
      closed_(std::move(closed)),
      made_(step.tensors()),
      planned_(step.tensors()) {}

void RelaidViews::plan(const Tensor& tensor) {
  std::vector<const Tensor*> open = {&tensor};
  while (!open.empty()) {
    const Tensor& next = *open.back();
    open.pop_back();
    if (planned_[next]) continue;
    planned_[next] = true;
    std::int32_t behind = -1;  // nodes inside of one that is written anew
    for (const std::int32_t reader : step_.tensors().readers(step_.tensors().of(next))) {
      const Tensor* input = input_at(graph_, reader, 0);
      const bool inside = behind >= 0 && graph_.is_inside(reader, behind);
      if (inside || !input || !is_written_anew(graph_.name(reader))) continue;
      if (input->id != next.id || !output_at(graph_, reader)) continue;
      behind = reader;
      edit_.replace(reader, [this, reader] { write(reader); });
      open.push_back(output_at(graph_, reader));
    }
  }
}

void RelaidViews::replace(const Tensor& tensor, TensorRef made) {
  made_[tensor] = made;
  places_.replace(tensor.id, edit_.builder().mention_of(made));
}

void RelaidViews::write(std::int32_t node) {
  const Tensor &input = *input_at(graph_, node, 0), &output = *output_at(graph_, node);
  const auto arguments = graph_.inputs(node);
  const std::int64_t sequence = moved_(graph_.node(node).seq_id);
  edit_.copy().close_beside(node);
  GraphBuilder& builder = edit_.builder();
  const TensorRef x = made_[input];
  const std::string_view name = graph_.name(node);
  TensorRef made;
  if (name == "aten::permute") {
    made = permute(builder, x, listed_numbers(graph_, arguments[1]), sequence);
  } else if (name == "aten::transpose") {
    made = transpose(builder, x, static_cast<int>(arguments[1].integer),
                     static_cast<int>(arguments[2].integer), sequence);
  } else if (name == "aten::contiguous" || name == "aten::clone") {
    if (builder.is_contiguous(x)) {
      drop_function(node);
      return replace(output, x);
    }
    builder.begin_op(name, {x, 0}, sequence);
    made = name == "aten::clone" ? TensorRef{} : clone(builder, x, sequence);
    if (!made.exists()) {
      made = like(builder, x);
      allocate_like(builder, made, x);
      copy(builder, made, x);
    }
    builder.end_op({made});
  } else {
    const Shape asked = listed_numbers(graph_, arguments[1]);
    const bool is_view =
        name == "aten::view" && view_strides(builder, x, resolve(builder, x, asked));
    made = is_view ? view(builder, x, asked, sequence) : reshape(builder, x, asked, sequence);
  }
  replace(output, made);
}

// The backward function of a copy that is gone handed its gradient on.
void RelaidViews::drop_function(std::int32_t node) {
  for (const BackwardFunction& function : step_.backward().functions) {
    if (function.accumulates() || !graph_.is_inside(function.forward, node)) continue;
    edit_.replace(function.evaluate);
    closed_(function.sequence);
  }
}

}  // namespace perfmodel
