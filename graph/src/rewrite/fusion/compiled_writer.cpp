#include "compiled_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "compiled_labels.hpp"
#include "compiled_tensors.hpp"
#include "generated_kernels.hpp"
#include "reduction_parts.hpp"
#include "step/autograd_names.hpp"
#include "step/tree_walk.hpp"

namespace perfmodel {
namespace {

// torch/_inductor/codegen/triton.py, should_use_persistent_reduction()
constexpr std::int64_t kLongestPersistentRow = 1024, kLongestPersistentColumn = 64;

class CompiledWriter {
 public:
  CompiledWriter(const StepView& step, const std::vector<CompiledKernels>& regions,
                 const CompileRewrite& rewrite)
      : step_(step),
        source_(step.graph()),
        rewrite_(rewrite),
        edit_(source_, step.dialect()),
        in_region_(source_.nodes.size()) {
    for (std::size_t i = 0; i < regions.size(); ++i) plan(regions[i], i);
    remove_empty_labels(edit_, in_region_);
  }

  ExecutionGraph write() { return edit_.write(); }

 private:
  ExecutionGraph& made() { return edit_.made(); }
  GraphBuilder& builder() { return edit_.builder(); }

  void plan(const CompiledKernels& compiled, std::size_t number) {
    for (const auto& [mention, by] : compiled.renamed)
      made().tensors[mention].id = made().tensors[by].id;
    const CompiledRegion& region = compiled.region;
    for (const std::int32_t op : region.ops) take_out(op);
    for (const std::int32_t function : region.functions) {
      take_out(step_.backward().functions[function].evaluate);
    }
    for (const std::int32_t wrapper : region.wrappers) take_out(wrapper);
    for (const std::int32_t node : compiled.accumulations) {
      edit_.replace(node, [this, &region, node] { write_accumulation(region, node); });
    }
    const std::int32_t place = place_of_region(step_, region.ops);
    edit_.precede(place,
                  [this, &compiled, number, place] { write_forward(compiled, number, place); });
    if (region.functions.empty()) return;
    const std::int32_t first = step_.backward().functions[region.functions.front()].evaluate;
    edit_.precede(first, [this, &compiled, first] { write_backward(compiled, first); });
  }

  void take_out(std::int32_t node) {
    in_region_[node] = true;
    edit_.replace(node);
  }

  void write_forward(const CompiledKernels& compiled, std::size_t number, std::int32_t place) {
    edit_.copy().close_beside(place);
    write_kept(compiled, false);
    builder().begin_label(fmt::format("Torch-Compiled Region: {}/0", number));
    std::vector<Value> inputs;
    for (const LoopValue& value : compiled.loops.values) {
      if (value.made_by < 0 && !value.is_blank && !is_incoming_gradient(compiled, value)) {
        inputs.emplace_back(tensors_.ref(value));
      }
    }
    builder().begin_plain("CompiledFunction", std::move(inputs), compiled.region.sequence);
    begin_graph();
    write_seeds(compiled);
    write_kernels(compiled, compiled.forward);
    write_views(compiled, false);
    end_graph();
    builder().end_op();
    builder().end_op();
  }

  void write_backward(const CompiledKernels& compiled, std::int32_t first) {
    edit_.copy().close_beside(first);
    std::vector<TensorRef> gradients;
    for (const LoopValue& value : compiled.loops.values) {
      if (is_incoming_gradient(compiled, value)) gradients.push_back(tensors_.ref(value));
    }
    write_kept(compiled, true);
    builder().begin_plain(std::string(kEvaluate) + "CompiledFunctionBackward");
    builder().begin_backward_function("CompiledFunctionBackward", gradients,
                                      compiled.region.sequence);
    Node& function = made().nodes[builder().innermost()];
    function.fw_thread = source_.node(compiled.region.ops.front()).thread;
    begin_graph();
    write_kernels(compiled, compiled.backward);
    write_views(compiled, true);
    end_graph();
    builder().end_op();
    builder().end_op();
  }

  // In the source it is below the function of a checkpoint, here it follows the compiled function.
  void write_accumulation(const CompiledRegion& region, std::int32_t accumulation) {
    std::int32_t around = accumulation;
    for (std::int32_t at = around; at >= 0 && step_.backward().in_backward[at];
         at = source_.node(at).parent) {
      around = at;
    }
    edit_.copy().close_beside(around);
    walk_tree(
        source_, accumulation,
        [&](std::int32_t node) {
          Node copied = source_.node(node);
          copied.fw_parent = 0;
          if (copied.scope == Scope::kBackward) {
            copied.fw_thread = source_.node(region.ops.front()).thread;
          }
          builder().copy_node(copied);
          return true;
        },
        [&] { builder().close(); });
  }

  bool is_incoming_gradient(const CompiledKernels& compiled, const LoopValue& value) const {
    if (value.made_by >= 0 || value.is_blank) return false;
    const auto in_backward = [&](std::int32_t op) { return compiled.loops.ops[op].in_backward; };
    if (!value.readers.empty()) return std::ranges::all_of(value.readers, in_backward);
    const Tensor& mention = source_.tensors[value.tensor];
    return step_.storages().maker(step_.storages().of(mention)) > compiled.region.ops.back();
  }

  void begin_graph() {
    if (rewrite_.mode != CompileMode::kDefault) builder().begin_plain("CUDAGraph.replay");
  }
  void end_graph() {
    if (rewrite_.mode != CompileMode::kDefault) builder().end_op();
  }

  void write_kept(const CompiledKernels& compiled, bool backward) {
    for (const std::int32_t node : compiled.kept) {
      if (step_.backward().in_backward[node] == backward) copy_tree({.node = node});
    }
  }

  // One seed for each loop that draws random numbers, drawn together.
  void write_seeds(const CompiledKernels& compiled) {
    const auto count = std::ranges::count(compiled.loops.ops, true, &LoopOp::is_random);
    if (count == 0) return;
    const TensorRef seeds = builder().new_tensor(DType::kInt64, Shape{count});
    builder().begin_plain("aten::random_", {seeds});
    builder().end_op({seeds});
  }

  void write_kernels(const CompiledKernels& compiled, const std::vector<LoopKernel>& kernels) {
    kernels_.clear();
    for (const LoopKernel& kernel : kernels) {
      if (kernel.kind == LoopKind::kLibrary) {
        write_library(compiled.loops, compiled.loops.ops[kernel.ops.front()]);
      } else if (kernel.product >= 0) {
        write_template(compiled.loops, kernel);
      } else if (!kernel.writes.empty()) {
        write_loop(compiled.loops, kernel);
      }
    }
  }

  void write_library(const LoopGraph& loops, const LoopOp& op) {
    const bool as_it_is = op.addend == LoopOp::Addend::kAsItIs && !op.is_padded;
    if (as_it_is || op.name == "convolution") return copy_tree(op);
    std::vector<Value> values;
    for (const Argument& operand : tensors_.operands(source_, loops, op)) {
      values.emplace_back(builder().tensor_of_source(made().tensors[operand.index]));
    }
    const bool adds = op.name == "addmm" && op.addend != LoopOp::Addend::kDropped;
    if (adds) values.insert(values.end(), {Value(1), Value(1)});
    builder().leaf_op(adds ? "aten::addmm" : "aten::mm", std::move(values),
                      {tensors_.ref(loops.values[op.writes[0]])});
  }

  void write_template(const LoopGraph& loops, const LoopKernel& kernel) {
    const LoopOp& product = loops.ops[kernel.product];
    GeneratedKernel made{.name = "triton_tem_fused_" + names_of_ops(loops, kernel),
                         .reads = tensors_.operands(source_, loops, product),
                         .writes = tensors_.arguments(loops, kernel.writes)};
    for (const LoopRead& read : kernel.reads) {
      const bool is_operand =
          std::ranges::find(product.reads, read.value, &LoopRead::value) != product.reads.end();
      if (!is_operand) made.reads.push_back(tensors_.argument(loops.values[read.value]));
    }
    kernels_.write(builder(), made);
  }

  void copy_tree(const LoopOp& call) {
    const bool has_bias = call.addend == LoopOp::Addend::kAsItIs;
    walk_tree(
        source_, call.node,
        [&](std::int32_t node) {
          if (!has_bias && source_.name(node) == "aten::add_") return false;
          copy_here(node);
          made().nodes.back().fw_parent = 0;
          return true;
        },
        [&] { builder().close(); });
  }

  void write_loop(const LoopGraph& loops, const LoopKernel& kernel) {
    const std::int64_t parts = parts_of_reduction(kernel);
    std::vector<Argument> reads;
    for (const LoopRead& read : kernel.reads) {
      reads.push_back(tensors_.argument(loops.values[read.value]));
    }
    const std::vector<Argument> writes = tensors_.arguments(loops, kernel.writes);
    if (parts == 1) return write_kernel(loops, kernel, kernel.rows, kernel.columns, reads, writes);
    std::vector<Argument> partial;
    for (const std::int32_t op : kernel.ops) {
      if (!loops.ops[op].reduces()) continue;
      for (const std::int32_t written : loops.ops[op].writes) {
        const LoopValue& value = loops.values[written];
        partial.push_back(builder().tensor_argument(
            builder().new_tensor(DType::kFloat32, value.device, Shape{parts, value.numel})));
      }
    }
    write_kernel(loops, kernel, kernel.rows * parts, (kernel.columns + parts - 1) / parts, reads,
                 partial);
    for (std::size_t i = 0; i < partial.size(); ++i) {
      std::vector<Argument> last = writes;
      if (partial.size() == writes.size()) last = {writes[i]};
      write_kernel(loops, kernel, kernel.rows, parts, {partial[i]}, last);
      if (partial.size() != writes.size()) break;
    }
  }

  void write_kernel(const LoopGraph& loops, const LoopKernel& kernel, std::int64_t rows,
                    std::int64_t columns, const std::vector<Argument>& reads,
                    const std::vector<Argument>& writes) {
    const bool is_loop = kernel.kind == LoopKind::kPointwise || kernel.kind == LoopKind::kScatter;
    const std::int64_t longest =
        kernel.kind == LoopKind::kColumns ? kLongestPersistentColumn : kLongestPersistentRow;
    const std::string_view kind = is_loop ? "poi" : columns <= longest ? "per" : "red";
    const std::string name = fmt::format("triton_{}_fused_{}", kind, names_of_ops(loops, kernel));
    std::vector<std::int64_t> sizes = {rows};
    if (!is_loop) sizes.push_back(columns);
    kernels_.write(builder(), {.name = name, .sizes = sizes, .reads = reads, .writes = writes});
  }

  void write_views(const CompiledKernels& compiled, bool backward) {
    for (const std::uint32_t view : compiled.views) {
      const Tensor& mention = source_.tensors[view];
      const std::int32_t maker = step_.tensors().maker(step_.tensors().of(mention));
      if (maker < 0 || step_.backward().in_backward[maker] != backward) continue;
      for_each_tensor(source_, source_.outputs(maker), [&](const Tensor& output) {
        made().tensors[&output - source_.tensors.data()].id = output.id;
      });
      copy_here(maker);
      builder().close();
    }
  }

  // On the thread that runs the region, without a gradient of its own.
  void copy_here(std::int32_t node) {
    Node copied = source_.node(node);
    copied.thread = builder().thread();
    copied.seq_id = -1;
    builder().copy_node(copied);
  }

  const StepView& step_;
  const ExecutionGraph& source_;
  const CompileRewrite& rewrite_;
  GraphEdit edit_;
  std::vector<bool> in_region_;  // by node: outermost nodes of regions
  GeneratedKernels kernels_;
  CompiledTensors tensors_{edit_.builder()};
};

}  // namespace

ExecutionGraph write_compiled(const StepView& step, const std::vector<CompiledKernels>& regions,
                              const CompileRewrite& rewrite) {
  return CompiledWriter(step, regions, rewrite).write();
}

}  // namespace perfmodel
