#include "table_fusion_finder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "base/contains.hpp"
#include "builders/emit/embedding.hpp"
#include "rewrite/name_pattern.hpp"

namespace perfmodel {
namespace {

using Kind = Argument::Kind;

constexpr std::string_view kModes[] = {"sum", "mean", "max"};

bool is_tensor(const Argument& argument) { return argument.kind == Kind::kTensor; }

// embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
// include_last_offset, padding_idx). Empty: one lookup of all tables can do what this one does.
std::string reason_against_arguments(const ExecutionGraph& graph, std::span<const Argument> in) {
  const auto given = [&in](std::size_t i) { return i < in.size() && in[i].integer != 0; };
  if (const std::int64_t mode = in[4].integer; mode != kModeSum) {
    return fmt::format("expected bags that sum, found mode {}",
                       mode > 0 && mode < 3 ? kModes[mode] : std::to_string(mode));
  }
  if (!given(5)) return "expected sparse gradients, found dense ones";
  if (is_tensor(in[6]) && graph.tensors[in[6].index].numel > 0) {
    return "expected bags without weights per sample, found them";
  }
  if (given(7)) return "expected one offset per bag, found the last one too";
  if (given(3)) return "expected plain gradients, found some scaled by frequency";
  if (in.size() > 8 && in[8].kind == Kind::kInt && in[8].integer >= 0) {
    return fmt::format("expected bags without padding, found index {}", in[8].integer);
  }
  return {};
}

bool is_top_level(const ExecutionGraph& graph, std::int32_t index) {
  const Node& op = graph.node(index);
  if (op.is_label || op.is_structural || op.parent < 0) return false;
  return graph.node(op.parent).is_label || graph.node(op.parent).is_structural;
}

bool copies_from_host(const ExecutionGraph& graph, std::int32_t index) {
  const auto in = graph.inputs(index);
  return graph.name(index) == "aten::to" && !in.empty() && is_tensor(in[0]) &&
         graph.tensors[in[0].index].on_cpu();
}

bool takes_sparse(const ExecutionGraph& graph, const BackwardFunction& function) {
  const auto in = graph.inputs(function.function);
  return function.accumulates() && !in.empty() && is_tensor(in[0]) &&
         graph.tensors[in[0].index].storage_id == 0;
}

// Ops that stay must not read the tables nor anything that goes away with the bags. Autograd wraps
// saved values into tensors without an op, which only their storage tells apart.
Result<void> check_readers(const StepView& step, const GraphIteration& range,
                           const TableFusion& fusion, const FactsOfValues<bool>& gradients) {
  const ExecutionGraph& graph = step.graph();
  const Values& values = step.tensors();
  std::vector<bool> roots(graph.nodes.size());
  for (const std::int32_t node : fusion.left_out) roots[node] = true;
  if (fusion.step) roots[fusion.step->label] = true;
  const std::vector<bool> gone = at_or_below(graph, [&](std::size_t i) { return roots[i]; });
  FactsOfValues<std::optional<std::int64_t>> missing(values);  // the tensor's storage
  for (const FusibleBag& bag : fusion.bags) {
    missing[graph.tensors[bag.weight]] = graph.tensors[bag.weight].storage_id;
  }
  for (std::int32_t i = range.begin; i < range.end; ++i) {
    const Node& op = graph.node(i);
    bool dangles = false;
    std::vector<std::pair<std::int32_t, std::int64_t>> read;
    for_each_tensor(graph, graph.inputs(op), [&](const Tensor& t) {
      read.emplace_back(values.of(t), t.storage_id);
      dangles |= missing[t] == t.storage_id;
    });
    const bool is_shortened = i == fusion.cat || op.parent == fusion.cat;
    if (!gone[i] && !is_shortened && dangles) {
      return refuse_table_fusion(
          fmt::format("expected tables, vectors and gradients that nothing else reads, found {} "
                      "(node {})",
                      graph.name(op), op.id));
    }
    for_each_tensor(graph, graph.outputs(op), [&](const Tensor& made) {
      const bool is_new = !contains(read, std::pair(values.of(made), made.storage_id));
      if (gone[i] && (is_new || gradients[made])) missing[made] = made.storage_id;
      if (!gone[i] && is_new) missing[made].reset();
    });
  }
  return {};
}

class TableFusionFinder {
 public:
  TableFusionFinder(const StepView& step, const GraphIteration& range)
      : step_(step),
        graph_(step.graph()),
        values_(step.tensors()),
        range_(range),
        gradients_(step.tensors()) {}

  Result<TableFusion> find() {
    if (auto good = find_bags(); !good) return Unexpected{good.error()};
    if (fusion_.bags.size() < 2) return std::move(fusion_);
    fusion_.indices = loaded(&FusibleBag::indices);
    fusion_.offsets = loaded(&FusibleBag::offsets);
    for (const auto stage : {&TableFusionFinder::find_cat, &TableFusionFinder::find_backward,
                             &TableFusionFinder::find_step}) {
      if (auto good = (this->*stage)(); !good) return Unexpected{good.error()};
    }
    PERFMODEL_TRY(good, check_readers(step_, range_, fusion_, gradients_));
    return std::move(fusion_);
  }

 private:
  const Tensor& tensor(std::int64_t index) const { return graph_.tensors[index]; }
  std::int32_t value(std::int64_t index) const { return values_.of(tensor(index)); }
  bool in_step(std::int32_t node) const { return node >= range_.begin && node < range_.end; }

  Result<void> find_bags() {
    for (std::int32_t i = range_.begin; i < range_.end; ++i) {
      const bool is_bag = graph_.name(i) == "aten::embedding_bag" &&
                          graph_.node(i).scope == Scope::kFunction && is_top_level(graph_, i);
      if (!is_bag) continue;
      const Node& op = graph_.node(i);
      const auto in = graph_.inputs(op), out = graph_.outputs(op);
      if (in.size() < 8 || out.empty() || !std::all_of(in.begin(), in.begin() + 3, is_tensor) ||
          !is_tensor(out[0]) || tensor(out[0].index).rank == 0) {
        return refuse_table_fusion(fmt::format(
            "expected an embedding_bag of weights, indices and offsets, found node {}", op.id));
      }
      const FusibleBag bag{.node = i,
                           .sequence = op.seq_id,
                           .weight = in[0].index,
                           .indices = in[1].index,
                           .offsets = in[2].index,
                           .vector = out[0].index};
      if (const std::string reason = reason_against_arguments(graph_, in); !reason.empty()) {
        return refuse_table_fusion(fmt::format("{} (node {})", reason, op.id));
      }
      if (auto good = check_tensors(op, bag); !good) return good;
      if (fusion_.bags.empty()) fusion_.batch = tensor(bag.offsets).numel;
      fusion_.bags.push_back(bag);
      fusion_.left_out.push_back(i);
    }
    return {};
  }

  Result<void> check_tensors(const Node& op, const FusibleBag& bag) const {
    const Tensor &weight = tensor(bag.weight), &offsets = tensor(bag.offsets);
    if (!weight.on_gpu()) {
      return refuse_table_fusion("expected tables on a GPU, found one on a CPU");
    }
    if (weight.dtype != DType::kFloat32 || weight.rank != 2) {
      return refuse_table_fusion(fmt::format("expected tables of float32, found {} (node {})",
                                             to_string(weight.dtype), op.id));
    }
    if (fusion_.bags.empty()) return {};
    const FusibleBag& first = fusion_.bags.front();
    if (offsets.numel != fusion_.batch) {
      return refuse_table_fusion(
          fmt::format("expected one batch, found {} and {}", fusion_.batch, offsets.numel));
    }
    if (tensor(first.weight).device != weight.device) {
      return refuse_table_fusion("expected tables on one GPU, found several");
    }
    const DType indices = tensor(first.indices).dtype, others = tensor(bag.indices).dtype;
    if (indices != others) {
      return refuse_table_fusion(fmt::format("expected indices of one type, found {} and {}",
                                             to_string(indices), to_string(others)));
    }
    const bool is_looked_up = std::ranges::any_of(fusion_.bags, [&](const FusibleBag& other) {
      return value(other.weight) == value(bag.weight);
    });
    if (!is_looked_up) return {};
    return refuse_table_fusion(
        fmt::format("expected one bag per table, found two of one (node {})", op.id));
  }

  // The op of this step that makes a tensor; -1: it was there before.
  std::int32_t maker(std::uint32_t of) const {
    const std::int32_t node = values_.maker(value(of));
    return in_step(node) ? node : -1;
  }

  // Whether an op of the forward pass other than these reads a tensor.
  bool is_read_elsewhere(std::uint32_t of, const std::vector<std::int32_t>& known) const {
    return std::ranges::any_of(values_.readers(value(of)), [&](std::int32_t reader) {
      return in_step(reader) && is_top_level(graph_, reader) && !contains(known, reader) &&
             !step_.backward().in_backward[reader];
    });
  }

  std::optional<LoadedInput> loaded(std::uint32_t FusibleBag::*field) {
    LoadedInput input;
    std::set<std::int32_t> copies;
    std::vector<std::int32_t> known;     // bags, and views of what was loaded: one per table
    std::vector<std::uint32_t> sources;  // the loaded tensors
    bool is_resident = false;
    for (const FusibleBag& bag : fusion_.bags) known.push_back(bag.node);
    for (const FusibleBag& bag : fusion_.bags) {
      std::uint32_t of = bag.*field;
      std::int32_t from = maker(of);
      if (from >= 0 && graph_.name(from) == "aten::select") {  // a row of all offsets
        const auto whole = graph_.inputs(from);
        if (whole.empty() || !is_tensor(whole[0])) return std::nullopt;
        known.push_back(from);
        of = whole[0].index;
        from = maker(of);
      }
      sources.push_back(of);
      is_resident |= from < 0;
      if (from < 0) continue;
      if (!copies_from_host(graph_, from)) return std::nullopt;
      copies.insert(from);
      const auto in = graph_.inputs(from);
      input.pinned = in.size() > 5 && in[5].kind == Kind::kBool && in[5].integer != 0;
    }
    if (is_resident && !copies.empty()) return std::nullopt;
    for (const std::uint32_t of : sources) {
      if (is_read_elsewhere(of, known)) return std::nullopt;
    }
    if (!copies.empty()) input.copy = *copies.begin();
    fusion_.left_out.insert(fusion_.left_out.end(), copies.begin(), copies.end());
    add_each_once(fusion_.left_out, known);
    return input;
  }

  Result<void> find_cat() {
    std::set<std::int32_t> readers;
    for (const FusibleBag& bag : fusion_.bags) {
      for (const std::int32_t reader : values_.readers(value(bag.vector))) {
        if (in_step(reader) && is_top_level(graph_, reader)) readers.insert(reader);
      }
    }
    if (readers.empty()) {
      return refuse_table_fusion("expected an aten::cat of the vectors, found none");
    }
    fusion_.cat = *readers.begin();
    const Node& op = graph_.node(fusion_.cat);
    if (graph_.name(op) == "aten::cat" && takes_all(op)) return {};
    return refuse_table_fusion(
        fmt::format("expected vectors that go side by side into one aten::cat, found {} (node {})",
                    graph_.name(op), op.id));
  }

  // The cat must take all vectors, in the order of the bags, side by side.
  bool takes_all(const Node& op) {
    const auto in = graph_.inputs(op);
    if (in.size() < 2 || in[0].kind != Kind::kList || in[1].kind != Kind::kInt) return false;
    if (in[1].integer != 1 && in[1].integer != -1) return false;
    const auto list = graph_.elements(in[0]);
    const auto is_vector = [this](const Argument& input, const FusibleBag& bag) {
      return is_tensor(input) && value(input.index) == value(bag.vector);
    };
    const auto first =
        std::search(list.begin(), list.end(), fusion_.bags.begin(), fusion_.bags.end(), is_vector);
    if (first == list.end() || !std::all_of(list.begin(), first, is_tensor)) return false;
    fusion_.first_input = first - list.begin();
    for (std::size_t i = 0; i < fusion_.first_input; ++i) {
      fusion_.first_column += graph_.shape(tensor(list[i].index)).back();
    }
    return true;
  }

  // Position of the function of this number in the backward pass, -1: none in this step.
  std::int32_t function_of(std::int64_t sequence) const {
    const auto& functions = step_.backward().functions;
    const auto at = std::ranges::find_if(functions, [&](const BackwardFunction& function) {
      return sequence >= 0 && function.sequence == sequence && in_step(function.function);
    });
    return at == functions.end() ? -1 : static_cast<std::int32_t>(at - functions.begin());
  }

  Result<void> find_backward() {
    const auto& functions = step_.backward().functions;
    if (std::ranges::none_of(functions, [this](const auto& f) { return in_step(f.function); })) {
      return {};
    }
    for (const FusibleBag& bag : fusion_.bags) {
      const std::int32_t at = function_of(bag.sequence);
      if (at < 0) {
        return refuse_table_fusion(
            fmt::format("expected the backward function of every bag, found none of the number {}",
                        bag.sequence));
      }
      // The engine accumulates the gradient of a parameter before anything else.
      const auto next = static_cast<std::size_t>(at) + 1;
      if (next >= functions.size() || !takes_sparse(graph_, functions[next])) {
        return refuse_table_fusion(
            "expected a sparse gradient after the backward function of every bag, found none");
      }
      leave_out(functions[next - 1].evaluate, fusion_.first_function);
      fusion_.left_out.push_back(functions[next].evaluate);
    }
    const std::int32_t cat = function_of(graph_.node(fusion_.cat).seq_id);
    if (cat < 0) return refuse_table_fusion("expected CatBackward0 of the vectors, found none");
    fusion_.cat_function = functions[cat].function;
    const auto in = graph_.inputs(fusion_.cat_function);
    if (in.empty() || !is_tensor(in[0]) || tensor(in[0].index).rank != 2) {
      return refuse_table_fusion("expected a matrix of gradients into CatBackward0, found none");
    }
    return find_narrows();
  }

  void leave_out(std::int32_t node, std::int32_t& first) {
    fusion_.left_out.push_back(node);
    if (first < 0 || node < first) first = node;
  }

  Result<void> find_narrows() {
    std::int64_t column = fusion_.first_column;
    for (const FusibleBag& bag : fusion_.bags) {
      int narrows = 0;
      for (std::int32_t child : graph_.children(fusion_.cat_function)) {
        const auto in = graph_.inputs(child);
        if (graph_.name(child) != "aten::narrow" || in.size() != 4) continue;
        if (in[2].integer != column) continue;
        leave_out(child, fusion_.first_narrow);
        ++narrows;
      }
      if (narrows != 1) {
        return refuse_table_fusion(
            "expected CatBackward0 to cut the gradient with aten::narrow, found other ops");
      }
      column += graph_.shape(tensor(bag.vector)).back();
    }
    return {};
  }

  Result<void> find_step() {
    const auto& steps = step_.optimizers();
    if (!steps) return Unexpected{steps.error()};
    for (const auto& [label, step] : *steps) {
      if (!in_step(label)) continue;
      if (fusion_.step) return refuse_table_fusion("expected one optimizer step, found several");
      fusion_.step = step;
      if (auto good = take_tables_out(*fusion_.step); !good) return good;
    }
    return {};
  }

  Result<void> take_tables_out(ReadStep& step) {
    std::set<std::int32_t> tables;
    for (const FusibleBag& bag : fusion_.bags) tables.insert(value(bag.weight));
    std::set<double> rates;
    for (ReadGroup& group : step.groups) {
      if (group.settings.optimizer != TrainingOptions::Optimizer::kSgd) continue;
      std::erase_if(group.updates, [&](const ReadUpdate& update) {
        if (tables.erase(value(update.parameter)) == 0) return false;
        rates.insert(group.settings.learning_rate);
        leave_out_zeroing(update.gradient);
        return true;
      });
    }
    std::erase_if(step.groups, [](const ReadGroup& group) { return group.updates.empty(); });
    if (!tables.empty()) {
      return refuse_table_fusion(
          fmt::format("expected an optimizer step that updates every table by SGD, found {} of {} "
                      "tables without",
                      tables.size(), fusion_.bags.size()));
    }
    if (rates.size() > 1) {
      return refuse_table_fusion(
          fmt::format("expected one learning rate of all tables, found {} and {}", *rates.begin(),
                      *rates.rbegin()));
    }
    fusion_.learning_rate = *rates.begin();
    return {};
  }

  // Kept gradients are emptied by Optimizer.zero_grad.
  void leave_out_zeroing(std::int64_t gradient) {
    gradients_[tensor(gradient)] = true;
    for (const std::int32_t reader : values_.readers(value(gradient))) {
      const std::int32_t parent = graph_.node(reader).parent;
      if (in_step(reader) && parent >= 0 && graph_.name(reader) == "aten::zero_" &&
          graph_.name(parent).starts_with("Optimizer.zero_grad#")) {
        fusion_.left_out.push_back(reader);
      }
    }
  }

  const StepView& step_;
  const ExecutionGraph& graph_;
  const Values& values_;
  const GraphIteration& range_;
  TableFusion fusion_;
  FactsOfValues<bool> gradients_;  // gradients of the tables, as the optimizer reads them
};

}  // namespace

Unexpected refuse_table_fusion(std::string message) {
  return fail(ErrorCode::kImpossible, "table fusion: " + std::move(message));
}

Result<TableFusion> find_table_fusion(const StepView& step, const GraphIteration& range) {
  return TableFusionFinder(step, range).find();
}

}  // namespace perfmodel
