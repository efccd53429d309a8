#include "table_fusion_finder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>

#include "builders/emit/embedding.hpp"

namespace perfmodel {
namespace {

using Kind = Argument::Kind;

constexpr std::string_view kModes[] = {"sum", "mean", "max"};

class FusionFinder {
 public:
  FusionFinder(const ExecutionGraph& graph, const GraphIteration& range,
               const BackwardPass& backward)
      : graph_(graph), range_(range), backward_(backward) {}

  Result<TableFusion> find() {
    if (auto good = find_bags(); !good) return Unexpected{good.error()};
    if (fusion_.bags.size() < 2) return std::move(fusion_);
    fusion_.indices = loaded(&FusibleBag::indices);
    fusion_.offsets = loaded(&FusibleBag::offsets);
    if (auto good = find_cat(); !good) return Unexpected{good.error()};
    if (auto good = find_backward(); !good) return Unexpected{good.error()};
    if (auto good = find_step(); !good) return Unexpected{good.error()};
    if (auto good = check_readers(); !good) return Unexpected{good.error()};
    return std::move(fusion_);
  }

 private:
  const Tensor& tensor(std::uint32_t index) const { return graph_.tensors[index]; }
  std::int64_t id(std::uint32_t index) const { return tensor(index).id; }

  bool is_top_level(const Node& op) const {
    if (op.is_label || op.is_structural || op.parent < 0) return false;
    return graph_.node(op.parent).is_label || graph_.node(op.parent).is_structural;
  }

  bool reads(const Node& op, const std::set<std::int64_t>& ids) const {
    bool found = false;
    for_each_tensor(graph_, graph_.inputs(op),
                    [&](const Tensor& t) { found |= ids.contains(t.id); });
    return found;
  }

  Result<void> find_bags() {
    for (std::int32_t i = range_.begin; i < range_.end; ++i) {
      const Node& op = graph_.node(i);
      if (op.scope != Scope::kFunction || !is_top_level(op)) continue;
      if (graph_.name(op) != "aten::embedding_bag") continue;
      if (auto good = take_bag(i); !good) return good;
    }
    return {};
  }

  Result<void> take_bag(std::int32_t index) {
    const Node& op = graph_.node(index);
    const auto in = graph_.inputs(op), out = graph_.outputs(op);
    const auto is_tensor = [](const Argument& a) { return a.kind == Kind::kTensor; };
    if (in.size() < 8 || out.empty() || !std::all_of(in.begin(), in.begin() + 3, is_tensor) ||
        !is_tensor(out[0]) || tensor(out[0].index).rank == 0) {
      return refuse_table_fusion(fmt::format(
          "expected an embedding_bag of weights, indices and offsets, found node {}", op.id));
    }
    const FusibleBag bag{.node = index,
                         .sequence = op.seq_id,
                         .weight = in[0].index,
                         .indices = in[1].index,
                         .offsets = in[2].index,
                         .vector = out[0].index};
    if (auto good = check_arguments(op, in); !good) return good;
    if (auto good = check_tensors(op, bag); !good) return good;
    fusion_.bags.push_back(bag);
    return {};
  }

  // embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
  // include_last_offset, padding_idx)
  Result<void> check_arguments(const Node& op, std::span<const Argument> in) const {
    const auto given = [&in](std::size_t i) { return i < in.size() && in[i].integer != 0; };
    if (in[4].integer != kModeSum) {
      const bool known = in[4].integer > 0 && in[4].integer < 3;
      return refuse_table_fusion(
          fmt::format("expected bags that sum, found mode {} (node {})",
                      known ? kModes[in[4].integer] : std::to_string(in[4].integer), op.id));
    }
    if (!given(5)) {
      return refuse_table_fusion(
          fmt::format("expected sparse gradients, found dense ones (node {})", op.id));
    }
    if (in[6].kind == Kind::kTensor && tensor(in[6].index).numel > 0) {
      return refuse_table_fusion(
          fmt::format("expected bags without weights per sample, found them (node {})", op.id));
    }
    if (given(7)) {
      return refuse_table_fusion(
          fmt::format("expected one offset per bag, found the last one too (node {})", op.id));
    }
    if (given(3)) {
      return refuse_table_fusion(
          fmt::format("expected plain gradients, found some scaled by frequency (node {})", op.id));
    }
    if (in.size() > 8 && in[8].kind == Kind::kInt && in[8].integer >= 0) {
      return refuse_table_fusion(fmt::format(
          "expected bags without padding, found index {} (node {})", in[8].integer, op.id));
    }
    return {};
  }

  Result<void> check_tensors(const Node& op, const FusibleBag& bag) {
    const Tensor &weight = tensor(bag.weight), &offsets = tensor(bag.offsets);
    if (!weight.on_gpu()) {
      return refuse_table_fusion("expected tables on a GPU, found one on a CPU");
    }
    if (weight.dtype != DType::kFloat32 || weight.rank != 2) {
      return refuse_table_fusion(fmt::format("expected tables of float32, found {} (node {})",
                                             to_string(weight.dtype), op.id));
    }
    if (fusion_.bags.empty()) {
      fusion_.batch = offsets.numel;
      return {};
    }
    const Tensor& first = tensor(fusion_.bags.front().weight);
    if (offsets.numel != fusion_.batch) {
      return refuse_table_fusion(
          fmt::format("expected one batch, found {} and {}", fusion_.batch, offsets.numel));
    }
    if (first.device != weight.device) {
      return refuse_table_fusion("expected tables on one GPU, found several");
    }
    const DType indices = tensor(fusion_.bags.front().indices).dtype;
    if (tensor(bag.indices).dtype != indices) {
      return refuse_table_fusion(fmt::format("expected indices of one type, found {} and {}",
                                             to_string(indices),
                                             to_string(tensor(bag.indices).dtype)));
    }
    for (const FusibleBag& other : fusion_.bags) {
      if (tensor(other.weight).id == weight.id) {
        return refuse_table_fusion(
            fmt::format("expected one bag per table, found two of one (node {})", op.id));
      }
    }
    return {};
  }

  // The last op before `before` that made this tensor.
  std::int32_t producer(std::uint32_t of, std::int32_t before) const {
    for (std::int32_t i = before - 1; i >= range_.begin; --i) {
      const Node& op = graph_.node(i);
      if (!is_top_level(op)) continue;
      const auto outputs = graph_.outputs(op);
      if (!outputs.empty() && outputs[0].kind == Kind::kTensor && id(outputs[0].index) == id(of)) {
        return i;
      }
    }
    return -1;
  }

  bool copies_from_host(std::int32_t index) const {
    if (graph_.name(index) != "aten::to") return false;
    const auto in = graph_.inputs(index);
    return !in.empty() && in[0].kind == Kind::kTensor && tensor(in[0].index).on_cpu();
  }

  // Whether an op other than the bags and `known` reads a tensor behind node `from`, -1 for the
  // start of the step, while the tensor has this id.
  bool read_elsewhere(std::uint32_t of, std::int32_t from,
                      const std::unordered_set<std::int32_t>& known) const {
    const std::set<std::int64_t> wanted = {id(of)};
    for (std::int32_t i = std::max(from + 1, range_.begin); i < range_.end; ++i) {
      const Node& op = graph_.node(i);
      if (!is_top_level(op) || known.contains(i) || backward_.in_backward[i]) {
        continue;
      }
      if (reads(op, wanted)) return true;
      if (i > fusion_.bags.back().node) {  // ids are used again
        for (const Argument& made : graph_.outputs(op)) {
          if (made.kind == Kind::kTensor && id(made.index) == id(of)) return false;
        }
      }
    }
    return false;
  }

  std::optional<LoadedInput> loaded(std::uint32_t FusibleBag::*field) const {
    LoadedInput input;
    std::unordered_set<std::int32_t> known;
    std::set<std::int32_t> copies;
    for (const FusibleBag& bag : fusion_.bags) known.insert(bag.node);
    std::vector<std::pair<std::uint32_t, std::int32_t>> sources;  // tensor, what made it
    bool resident = false;
    for (const FusibleBag& bag : fusion_.bags) {
      std::uint32_t of = bag.*field;
      std::int32_t from = producer(of, bag.node);
      if (from >= 0 && graph_.name(from) == "aten::select") {  // a row of all offsets
        const auto whole = graph_.inputs(from);
        if (whole.empty() || whole[0].kind != Kind::kTensor) return std::nullopt;
        input.views.push_back(from);
        known.insert(from);
        of = whole[0].index;
        from = producer(of, from);
      }
      sources.emplace_back(of, from);
      if (from < 0) {
        resident = true;
      } else if (copies_from_host(from)) {
        copies.insert(from);
        const auto in = graph_.inputs(from);
        input.pinned = in.size() > 5 && in[5].kind == Kind::kBool && in[5].integer != 0;
      } else {
        return std::nullopt;
      }
    }
    if (resident && !copies.empty()) return std::nullopt;
    for (const auto& [of, from] : sources) {
      if (read_elsewhere(of, from, known)) return std::nullopt;
    }
    input.copies.assign(copies.begin(), copies.end());
    return input;
  }

  Result<void> find_cat() {
    std::set<std::int64_t> vectors;
    for (const FusibleBag& bag : fusion_.bags) vectors.insert(id(bag.vector));
    for (std::int32_t i = fusion_.bags.front().node + 1; i < range_.end; ++i) {
      const Node& op = graph_.node(i);
      if (!is_top_level(op) || !reads(op, vectors)) continue;
      if (graph_.name(op) == "aten::cat" && takes_all(op)) {
        fusion_.cat = i;
        return {};
      }
      return refuse_table_fusion(
          fmt::format("expected vectors that go side by side into one aten::cat, found "
                      "{} (node {})",
                      graph_.name(op), op.id));
    }
    return refuse_table_fusion("expected an aten::cat of the vectors, found none");
  }

  // All vectors, in the order of the bags, one beside the other.
  bool takes_all(const Node& op) {
    const auto in = graph_.inputs(op);
    if (in.size() < 2 || in[0].kind != Kind::kList || in[1].kind != Kind::kInt) return false;
    if (in[1].integer != 1 && in[1].integer != -1) return false;
    const auto list = graph_.elements(in[0]);
    std::int64_t column = 0;
    for (std::size_t first = 0; first + fusion_.bags.size() <= list.size(); ++first) {
      if (list[first].kind != Kind::kTensor) return false;
      if (starts_with_vectors(list.subspan(first))) {
        fusion_.first_input = first;
        fusion_.first_column = column;
        return true;
      }
      column += graph_.shape(tensor(list[first].index)).back();
    }
    return false;
  }

  bool starts_with_vectors(std::span<const Argument> list) const {
    for (std::size_t b = 0; b < fusion_.bags.size(); ++b) {
      if (list[b].kind != Kind::kTensor || id(list[b].index) != id(fusion_.bags[b].vector)) {
        return false;
      }
    }
    return true;
  }

  // Position of the function of this number in the backward pass, -1: none in this step.
  std::int32_t function_of(std::int64_t sequence) const {
    for (std::size_t i = 0; i < backward_.functions.size() && sequence >= 0; ++i) {
      const BackwardFunction& function = backward_.functions[i];
      if (function.sequence == sequence && function.function >= range_.begin &&
          function.function < range_.end) {
        return static_cast<std::int32_t>(i);
      }
    }
    return -1;
  }

  bool has_backward() const {
    return std::ranges::any_of(backward_.functions, [this](const BackwardFunction& function) {
      return function.function >= range_.begin && function.function < range_.end;
    });
  }

  Result<void> find_backward() {
    if (!has_backward()) return {};
    for (const FusibleBag& bag : fusion_.bags) {
      const std::int32_t at = function_of(bag.sequence);
      if (at < 0) {
        return refuse_table_fusion(
            fmt::format("expected the backward function of every bag, found none of the number {}",
                        bag.sequence));
      }
      // The engine accumulates the gradient of a parameter before anything else.
      const auto next = static_cast<std::size_t>(at) + 1;
      if (next >= backward_.functions.size() || !takes_sparse(backward_.functions[next])) {
        return refuse_table_fusion(
            "expected a sparse gradient behind the backward function of every bag, found none");
      }
      fusion_.functions.push_back(backward_.functions[next - 1].evaluate);
      fusion_.accumulations.push_back(backward_.functions[next].evaluate);
    }
    const std::int32_t cat = function_of(graph_.node(fusion_.cat).seq_id);
    if (cat < 0) return refuse_table_fusion("expected CatBackward0 of the vectors, found none");
    fusion_.cat_function = backward_.functions[cat].function;
    const auto in = graph_.inputs(fusion_.cat_function);
    if (in.empty() || in[0].kind != Kind::kTensor || tensor(in[0].index).rank != 2) {
      return refuse_table_fusion("expected a matrix of gradients into CatBackward0, found none");
    }
    return find_narrows();
  }

  bool takes_sparse(const BackwardFunction& function) const {
    if (!function.accumulates()) return false;
    const auto in = graph_.inputs(function.function);
    return !in.empty() && in[0].kind == Kind::kTensor && tensor(in[0].index).storage_id == 0;
  }

  Result<void> find_narrows() {
    std::int64_t column = fusion_.first_column;
    for (const FusibleBag& bag : fusion_.bags) {
      const std::size_t before = fusion_.narrows.size();
      for (std::int32_t child : graph_.children(fusion_.cat_function)) {
        const auto in = graph_.inputs(child);
        if (graph_.name(child) == "aten::narrow" && in.size() == 4 && in[2].integer == column) {
          fusion_.narrows.push_back(child);
        }
      }
      if (fusion_.narrows.size() != before + 1) {
        return refuse_table_fusion(
            "expected CatBackward0 to cut the gradient with aten::narrow, found other ops");
      }
      column += graph_.shape(tensor(bag.vector)).back();
    }
    return {};
  }

  Result<void> find_step() {
    for (std::int32_t label : optimizer_steps(graph_)) {
      if (label < range_.begin || label >= range_.end) continue;
      if (fusion_.step) return refuse_table_fusion("expected one optimizer step, found several");
      auto step = read_optimizer_step(graph_, label);
      if (!step) return Unexpected{step.error()};
      if (auto good = take_tables_out(*step); !good) return good;
      fusion_.step = std::move(*step);
    }
    return {};
  }

  Result<void> take_tables_out(ReadStep& step) {
    std::set<std::int64_t> tables;
    for (const FusibleBag& bag : fusion_.bags) tables.insert(id(bag.weight));
    std::set<double> rates;
    for (ReadGroup& group : step.groups) {
      if (group.settings.optimizer != TrainingOptions::Optimizer::kSgd) continue;
      std::erase_if(group.updates, [&](const ReadUpdate& update) {
        if (tables.erase(id(static_cast<std::uint32_t>(update.parameter))) == 0) return false;
        rates.insert(group.settings.learning_rate);
        gradients_.insert(id(static_cast<std::uint32_t>(update.gradient)));
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
    return find_zeroings();
  }

  // Kept gradients are emptied by Optimizer.zero_grad.
  Result<void> find_zeroings() {
    for (std::int32_t i = range_.begin; i < range_.end; ++i) {
      const Node& op = graph_.node(i);
      if (op.parent < 0 || graph_.name(op) != "aten::zero_" || !reads(op, gradients_)) continue;
      if (graph_.name(op.parent).starts_with("Optimizer.zero_grad#")) {
        fusion_.zeroings.push_back(i);
      }
    }
    return {};
  }

  // What is left out: roots of trees.
  std::unordered_set<std::int32_t> left_out() const {
    std::unordered_set<std::int32_t> roots;
    for (const FusibleBag& bag : fusion_.bags) roots.insert(bag.node);
    for (const auto* input : {&fusion_.indices, &fusion_.offsets}) {
      if (!*input) continue;
      roots.insert((*input)->copies.begin(), (*input)->copies.end());
      roots.insert((*input)->views.begin(), (*input)->views.end());
    }
    for (const auto* nodes :
         {&fusion_.narrows, &fusion_.functions, &fusion_.accumulations, &fusion_.zeroings}) {
      roots.insert(nodes->begin(), nodes->end());
    }
    if (fusion_.step) roots.insert(fusion_.step->label);
    return roots;
  }

  // What stays must not read the tables nor what goes away with the bags, as far as ids tell: an
  // id that an op gives to a new tensor is free again, and autograd wraps what it saved into
  // tensors of new ids without an op, which only their storage tells apart.
  Result<void> check_readers() const {
    const std::unordered_set<std::int32_t> roots = left_out();
    std::set<Key> missing;
    for (const FusibleBag& bag : fusion_.bags) missing.insert(key(tensor(bag.weight)));
    std::vector<bool> gone(range_.end - range_.begin, false);
    for (std::int32_t i = range_.begin; i < range_.end; ++i) {
      const Node& op = graph_.node(i);
      const auto at = static_cast<std::size_t>(i - range_.begin);
      const bool inside = op.parent >= range_.begin && gone[op.parent - range_.begin];
      gone[at] = inside || roots.contains(i);
      std::set<Key> read;
      bool dangles = false;
      for_each_tensor(graph_, graph_.inputs(op), [&](const Tensor& t) {
        read.insert(key(t));
        dangles |= missing.contains(key(t));
      });
      if (!gone[at] && !below_cat(op, i) && dangles) {
        return refuse_table_fusion(
            fmt::format("expected tables, vectors and gradients that nothing else reads, found {} "
                        "(node {})",
                        graph_.name(op), op.id));
      }
      for_each_tensor(graph_, graph_.outputs(op), [&](const Tensor& made) {
        const bool is_new = !read.contains(key(made));
        if (gone[at] && (is_new || gradients_.contains(made.id))) missing.insert(key(made));
        if (!gone[at] && is_new) missing.erase(key(made));
      });
    }
    return {};
  }

  using Key = std::pair<std::int64_t, std::int64_t>;  // ids of a tensor and its storage
  static Key key(const Tensor& t) { return {t.id, t.storage_id}; }

  bool below_cat(const Node& op, std::int32_t index) const {
    return index == fusion_.cat || op.parent == fusion_.cat;
  }

  const ExecutionGraph& graph_;
  const GraphIteration& range_;
  const BackwardPass& backward_;
  TableFusion fusion_;
  std::set<std::int64_t> gradients_;  // ids of those of the tables, as the optimizer reads them
};

}  // namespace

Unexpected refuse_table_fusion(std::string message) {
  return fail(ErrorCode::kImpossible, "table fusion: " + std::move(message));
}

Result<TableFusion> find_table_fusion(const ExecutionGraph& graph, const GraphIteration& range,
                                      const BackwardPass& backward) {
  return FusionFinder(graph, range, backward).find();
}

}  // namespace perfmodel
