#include "recurrent_cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/contains.hpp"
#include "step/nesting.hpp"
#include "step/pattern.hpp"

namespace perfmodel {
namespace {

Pattern sigmoid_of(Pattern x) { return op("sigmoid", {std::move(x)}); }
Pattern tanh_of(Pattern x) { return op("tanh", {std::move(x)}); }
Pattern add_of(Pattern a, Pattern b) { return either_order("add", std::move(a), std::move(b)); }
Pattern mul_of(Pattern a, Pattern b) { return either_order("mul", std::move(a), std::move(b)); }

const std::vector<std::string_view> kCuts = {"chunk",        "unsafe_chunk",     "split",
                                             "unsafe_split", "split_with_sizes", "slice",
                                             "narrow",       "tensor_split"};
Pattern piece_of(std::string_view gates) { return one_of(kCuts, {value(gates)}); }

// The sum of both products, as large as they are, or a product.
Pattern sum_of_products(std::string_view gates) {
  return add_of(value("x gates").of_size(gates), value("h gates").of_size(gates)).named(gates);
}

struct LstmPatterns {
  Pattern output = mul_of(sigmoid_of(value("o")), tanh_of(value("c'")));
  Pattern memory = add_of(mul_of(sigmoid_of(value("f")), value("c")).expecting(kSum),
                          mul_of(sigmoid_of(value("i")), tanh_of(value("g"))).expecting(kSum))
                       .named("c'")
                       .expecting("c' = s(f) c + s(i) tanh(g) under the tanh of an LSTM");
  Pattern gate = piece_of("gates").expecting("gates of an LSTM that are pieces of one tensor");

  static constexpr std::string_view kSum = "c' = s(f) c + s(i) tanh(g) in an LSTM";
};

struct GruPatterns {
  Pattern changed = add_of(tanh_of(value("n")).named("tanh"),
                           mul_of(sigmoid_of(value("z")), op("sub", {value("h"), value("tanh")})));
  Pattern mixed = mixed_with("rsub"), mixed_by_sub = mixed_with("sub");
  Pattern fresh = add_of(value("x_n"), mul_of(sigmoid_of(value("r")), value("h_n")))
                      .expecting("n = tanh(x_n + s(r) h_n) in a GRU");
  Pattern sum = op("add", {anything(), anything()}).expecting("x + h under a sigmoid of a GRU");
  Pattern x_gate = piece_of("x gates").expecting("gates of a GRU that are pieces of one tensor");
  Pattern h_gate = piece_of("h gates").expecting("gates of a GRU that are pieces of one tensor");
  Pattern gates = add_of(piece_of("x gates").expecting(kTwo), piece_of("h gates").expecting(kTwo));

  static Pattern mixed_with(std::string_view minus) {
    return add_of(mul_of(op(minus, {value("sigmoid")}), tanh_of(value("n"))),
                  mul_of(sigmoid_of(value("z")).named("sigmoid"), value("h")));
  }
  static constexpr std::string_view kTwo = "gates of a GRU that are pieces of two tensors";
};

class CellFinder {
 public:
  explicit CellFinder(const StepView& step)
      : graph_(step.graph()),
        flow_(step.forward()),
        matcher_(step),
        storages_(step.storages()),
        is_recurrent_(step.storages()) {}

  UnfusedCells find() {
    for (const std::int32_t op : flow_.ops()) {
      if (flow_.outputs(op).empty()) continue;
      const Version& result = *flow_.outputs(op).front();
      if (graph_.tensors[result.tensor].rank == 0) continue;  // no state
      std::optional<UnfusedCell> cell = lstm(result);
      if (!cell) cell = gru(result);
      if (!cell) cell = plain(result);
      if (!cell || !is_closed(*cell)) continue;
      add_products(*cell);
      found_.cells.push_back(std::move(*cell));
    }
    return std::move(found_);
  }

 private:
  // Whether it fits; a pattern that is nearly a cell says what broke it.
  bool fits(const Pattern& pattern, const Version& version, Match& match) const {
    return matcher_.match(pattern, version, match).has_value();
  }
  bool completes(const Pattern& pattern, std::string_view name, Match& match) {
    const auto good = matcher_.match(pattern, *match[name], match);
    if (!good && found_.broken.empty() && good.error().found->op >= 0) {
      found_.broken = to_string(graph_, good.error());
      if (graph_.name(good.error().found->op).find("layer_norm") != std::string_view::npos) {
        found_.broken += " (layer-normalised cells are not covered)";
      }
    }
    return good.has_value();
  }

  std::optional<UnfusedCell> lstm(const Version& hidden) {
    Match match;
    if (!fits(lstm_.output, hidden, match)) return std::nullopt;
    // The product s(i) tanh(g) fits this pattern as well.
    if (Match gate = match; fits(lstm_.gate, *match["c'"], gate)) return std::nullopt;
    if (!completes(lstm_.memory, "c'", match)) return std::nullopt;
    for (const std::string_view gate : {"o", "f", "i", "g"}) {
      if (!completes(lstm_.gate, gate, match)) return std::nullopt;
    }
    UnfusedCell cell{.kind = UnfusedCell::Kind::kLstm, .ops = match.sorted_ops()};
    cell.state = match["c"];
    cell.hidden = &hidden;
    cell.memory = match["c'"];
    add_gates(cell, *match["gates"]);
    return cell;
  }

  // The sum of both products is part of the cell if nothing else reads it.
  void add_gates(UnfusedCell& cell, const Version& gates) const {
    cell.x_gates = &gates;
    const bool inside = std::ranges::all_of(
        gates.readers, [&](std::int32_t reader) { return contains(cell.ops, reader); });
    Match match{.ops = cell.ops};
    if (!inside || !fits(sum_, gates, match)) return;
    cell.ops = match.sorted_ops();
    cell.x_gates = match["x gates"];
    cell.h_gates = match["h gates"];
  }

  std::optional<UnfusedCell> gru(const Version& hidden) {
    Match match;
    if (!fits(gru_.changed, hidden, match) && !fits(gru_.mixed, hidden, match) &&
        !fits(gru_.mixed_by_sub, hidden, match)) {
      return std::nullopt;
    }
    const bool is_cell = completes(gru_.fresh, "n", match) && completes(gru_.sum, "r", match) &&
                         completes(gru_.sum, "z", match) && completes(gru_.x_gate, "x_n", match) &&
                         completes(gru_.h_gate, "h_n", match) &&
                         completes(gru_.gates, "r", match) && completes(gru_.gates, "z", match);
    if (!is_cell) return std::nullopt;
    return UnfusedCell{.kind = UnfusedCell::Kind::kGru,
                       .ops = match.sorted_ops(),
                       .x_gates = match["x gates"],
                       .h_gates = match["h gates"],
                       .state = match["h"],
                       .hidden = &hidden};
  }

  // A linear layer, where `through_unbind` says so of all steps at once. Its weight is a matrix: a
  // hashed one has fewer numbers than the layers of a library read.
  std::optional<CellProduct> product(const Version& result, bool through_unbind) const {
    for (const Pattern& pattern : products_) {
      Match match;
      if (!fits(through_unbind ? pattern.through({"unbind"}) : pattern, result, match)) continue;
      if (graph_.tensors[match["weight"]->tensor].rank != 2) continue;
      return CellProduct{.op = match.ops.front(),
                         .input = match["x"],
                         .weight = match["weight"],
                         .bias = match["bias"]};
    }
    return std::nullopt;
  }

  std::optional<UnfusedCell> plain(const Version& hidden) {
    Match match;
    if (!fits(plain_, hidden, match)) return std::nullopt;
    const auto a = product(*match["x gates"], true), b = product(*match["h gates"], true);
    if (!a || !b) return std::nullopt;
    const auto storage = [&](const CellProduct& product) {
      return storages_.of(graph_.tensors[product.weight->tensor]);
    };
    const bool recurs = std::ranges::any_of(hidden.readers, [&](std::int32_t reader) {
      if (flow_.outputs(reader).empty()) return false;
      const auto next = product(*flow_.outputs(reader).front(), true);
      return next && (storage(*next) == storage(*a) || storage(*next) == storage(*b));
    });
    // The last step of a layer has the weights of the one before.
    char& of_a = is_recurrent_[graph_.tensors[a->weight->tensor]];
    char& of_b = is_recurrent_[graph_.tensors[b->weight->tensor]];
    if (!recurs && !of_a && !of_b) return std::nullopt;
    of_a = of_b = 1;
    return UnfusedCell{.kind = UnfusedCell::Kind::kPlain,
                       .ops = match.sorted_ops(),
                       .x_gates = match["x gates"],
                       .h_gates = match["h gates"],
                       .hidden = &hidden,
                       .activation = graph_.name(hidden.op).find("relu") == std::string_view::npos
                                         ? "tanh"
                                         : "relu"};
  }

  // Only the new state leaves the cell.
  bool is_closed(const UnfusedCell& cell) {
    const auto outside = read_outside(flow_, cell.ops, std::array{cell.hidden, cell.memory});
    if (!outside) return true;
    const auto named = [&](std::int32_t op) {
      return fmt::format("{} (node {})", graph_.name(op), graph_.node(op).id);
    };
    if (found_.broken.empty()) {
      found_.broken = fmt::format(
          "expected nothing inside of a cell to be read outside, found {}, which reads {}",
          named(outside->reader), named(outside->op));
    }
    return false;
  }

  void add_products(UnfusedCell& cell) const {
    for (const std::int32_t op : cell.ops) {
      for (const Version* read : flow_.inputs(op)) {
        if (contains(cell.ops, read->op)) continue;
        const auto made = product(*read, false);
        const bool is_known = made && std::ranges::any_of(cell.products, [&](const auto& one) {
                                return one.op == made->op;
                              });
        if (made && !is_known) cell.products.push_back(*made);
      }
    }
  }

  const ExecutionGraph& graph_;
  const ForwardFlow& flow_;
  const PatternMatcher matcher_;
  const Values& storages_;
  FactsOfValues<char> is_recurrent_;  // weights of plain cells
  const LstmPatterns lstm_ = {};
  const GruPatterns gru_ = {};
  const Pattern sum_ = sum_of_products("gates");
  const Pattern plain_ =
      one_of({"tanh", "relu"}, {op("add", {value("x gates"), value("h gates")})});
  const Pattern weight_ = value("weight").through({"t"});
  const std::vector<Pattern> products_ = {op("linear", {value("x"), weight_}),
                                          op("linear", {value("x"), weight_, value("bias")}),
                                          op("addmm", {value("bias"), value("x"), weight_}),
                                          one_of({"mm", "matmul"}, {value("x"), weight_})};
  UnfusedCells found_;
};

std::string found_instead(const ExecutionGraph& graph) {
  for (const Node& op : graph.nodes) {
    const std::string_view name = graph.name(op);
    if (name.starts_with("aten::_thnn_fused_")) {
      return fmt::format(": found {}, a cell that is fused (node {})", name, op.id);
    }
    if (name == "aten::_cudnn_rnn" || name == "aten::miopen_rnn") {
      return fmt::format(": found {}, a library's layers (node {})", name, op.id);
    }
  }
  return "";
}

}  // namespace

UnfusedCells find_unfused_cells(const StepView& step) { return CellFinder(step).find(); }

Result<UnfusedCells> unfused_cells_of(const StepView& step) {
  const ExecutionGraph& graph = step.graph();
  if (auto good = check_nesting(graph); !good) return Unexpected{good.error()};
  UnfusedCells found = find_unfused_cells(step);
  if (found.cells.empty()) {
    return fail(ErrorCode::kImpossible,
                "lstm: expected cells of LSTM, GRU or RNN layers in single ops, found none" +
                    (found.broken.empty() ? found_instead(graph) : "; " + found.broken));
  }
  if (!graph.tensors[found.cells.front().hidden->tensor].on_gpu()) {
    return fail(ErrorCode::kImpossible,
                "lstm: expected cells on a GPU, found them on a CPU: --retarget comes first");
  }
  return found;
}

}  // namespace perfmodel
