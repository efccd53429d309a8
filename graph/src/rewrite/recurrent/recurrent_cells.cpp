#include "recurrent_cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ops/catalogue.hpp"
#include "step/optimizer_reader.hpp"

namespace perfmodel {
namespace {

constexpr std::string_view kPieces[] = {"chunk",        "unsafe_chunk",     "split",
                                        "unsafe_split", "split_with_sizes", "slice",
                                        "narrow",       "tensor_split"};

class CellFinder {
 public:
  CellFinder(const ExecutionGraph& graph, const BackwardPass& pass) : graph_(graph), pass_(pass) {}

  UnfusedCells find() {
    for (std::int32_t i = 0; i < count(); ++i) {
      if (graph_.node(i).parent < 0) walk(i);
    }
    std::ranges::sort(roots_);
    ops_.resize(graph_.nodes.size());
    for (const std::int32_t root : roots_) define(root);
    UnfusedCells found;
    for (const std::int32_t root : roots_) {
      std::optional<UnfusedCell> cell = lstm_at(root);
      if (!cell) cell = gru_at(root);
      if (!cell) cell = plain_at(root);
      if (!cell || !is_closed(*cell)) continue;
      add_products(*cell);
      found.cells.push_back(std::move(*cell));
    }
    for (const std::int32_t root : roots_) found.flow[root] = flow_of(root);
    add_functions(found.cells);
    found.broken = std::move(broken_);
    return found;
  }

 private:
  // A value: what an op made of a tensor id. Ids are used again, and ops work in place.
  struct Def {
    std::int32_t root = -1;  // -1: from outside
    std::uint32_t tensor = 0;
    std::vector<std::int32_t> readers;
  };
  using DefId = std::int32_t;
  struct OpDefs {
    std::vector<DefId> inputs, outputs;
  };

  std::int32_t count() const { return static_cast<std::int32_t>(graph_.nodes.size()); }
  const Def& def(DefId id) const { return defs_[id]; }
  const Tensor& tensor(DefId id) const { return graph_.tensors[def(id).tensor]; }
  const OpDefs& op(std::int32_t root) const { return ops_[root]; }

  void walk(std::int32_t index) {
    for (const std::int32_t child : children_in_order(graph_, graph_.node(index))) {
      if (pass_.in_backward[child]) continue;
      const Node& below = graph_.node(child);
      const bool container =
          below.is_label || below.is_structural ||
          (below.children_count > 0 && graph_.name(below).find("::") == std::string_view::npos) ||
          graph_.name(below) == "aten::lstm" || graph_.name(below) == "aten::gru" ||
          graph_.name(below) == "aten::lstm_cell" || graph_.name(below) == "aten::gru_cell" ||
          graph_.name(below).starts_with("aten::rnn_");
      if (container) {
        walk(child);
      } else {
        roots_.push_back(child);
      }
    }
  }

  void define(std::int32_t root) {
    OpDefs& defs = ops_[root];
    visit(graph_.inputs(root), [&](std::uint32_t entry) {
      const std::int64_t id = graph_.tensors[entry].id;
      const auto [at, is_new] = current_.try_emplace(id, static_cast<DefId>(defs_.size()));
      if (is_new) defs_.push_back({.root = -1, .tensor = entry, .readers = {}});
      defs_[at->second].readers.push_back(root);
      defs.inputs.push_back(at->second);
    });
    visit(graph_.outputs(root), [&](std::uint32_t entry) {
      const auto made = static_cast<DefId>(defs_.size());
      defs_.push_back({.root = root, .tensor = entry, .readers = {}});
      current_[graph_.tensors[entry].id] = made;
      defs.outputs.push_back(made);
    });
  }

  template <class Visit>
  void visit(std::span<const Argument> arguments, Visit&& visit_one) {
    for (const Argument& argument : arguments) {
      if (argument.kind == Argument::Kind::kList) {
        visit(graph_.elements(argument), visit_one);
      } else if (argument.kind == Argument::Kind::kTensor) {
        visit_one(argument.index);
      }
    }
  }

  // "mul" for aten::mul and aten::mul_.
  std::string_view name(std::int32_t root) const {
    std::string_view text = graph_.name(root);
    if (const std::size_t colons = text.find("::"); colons != text.npos)
      text = text.substr(colons + 2);
    if (text.ends_with('_')) text.remove_suffix(1);
    return text;
  }
  bool reads_anything(DefId id) const {
    return def(id).root >= 0 && !op(def(id).root).inputs.empty();
  }
  bool is(DefId id, std::string_view op_name) const {
    return reads_anything(id) && name(def(id).root) == op_name;
  }
  DefId input(DefId id, std::size_t at = 0) const { return op(def(id).root).inputs[at]; }
  bool has_inputs(DefId id, std::size_t number) const {
    return def(id).root >= 0 && op(def(id).root).inputs.size() == number;
  }

  // The two operands in the order in which `fits` takes them.
  template <class Fits>
  std::optional<std::pair<DefId, DefId>> operands(std::int32_t root, Fits&& fits) const {
    const auto& inputs = op(root).inputs;
    if (inputs.size() != 2) return std::nullopt;
    if (fits(inputs[0], inputs[1])) return std::pair(inputs[0], inputs[1]);
    if (fits(inputs[1], inputs[0])) return std::pair(inputs[1], inputs[0]);
    return std::nullopt;
  }

  void note_broken(std::string_view what, DefId found) {
    if (!broken_.empty() || def(found).root < 0) return;
    const std::int32_t root = def(found).root;
    const std::string_view of = graph_.name(root);
    const char* variant =
        of.find("layer_norm") != of.npos ? " (layer-normalised cells are not covered)" : "";
    broken_ =
        fmt::format("expected {}, found {} (node {}){}", what, of, graph_.node(root).id, variant);
  }

  // What the gates are pieces of, and the ops that cut them.
  struct Cut {
    DefId base = -1;
    std::vector<std::int32_t> roots;
  };
  std::optional<Cut> cut_of(std::span<const DefId> gates, std::string_view cell) {
    Cut cut;
    for (const DefId gate : gates) {
      const std::int32_t root = def(gate).root;
      const bool piece =
          reads_anything(gate) && std::ranges::find(kPieces, name(root)) != std::end(kPieces);
      if (!piece) {
        note_broken(fmt::format("gates of {} that are pieces of one tensor", cell), gate);
        return std::nullopt;
      }
      const DefId base = op(root).inputs.front();
      if (cut.base >= 0 && base != cut.base) return std::nullopt;
      cut.base = base;
      if (std::ranges::find(cut.roots, root) == cut.roots.end()) cut.roots.push_back(root);
    }
    return cut;
  }

  static void add_roots(UnfusedCell& cell, std::initializer_list<std::int32_t> roots) {
    cell.roots.insert(cell.roots.end(), roots);
  }
  std::int32_t root(DefId id) const { return def(id).root; }

  std::optional<UnfusedCell> lstm_at(std::int32_t at) {
    if (name(at) != "mul" || op(at).outputs.empty()) return std::nullopt;
    const auto output =
        operands(at, [&](DefId a, DefId b) { return is(a, "sigmoid") && is(b, "tanh"); });
    if (!output) return std::nullopt;
    const auto [o, tanh_of_memory] = *output;
    const DefId memory = input(tanh_of_memory);
    // s(i) tanh(g) looks like this as well; its tanh is of a gate.
    if (std::ranges::find(kPieces, root(memory) < 0 ? "" : name(root(memory))) !=
        std::end(kPieces)) {
      return std::nullopt;
    }
    if (!is(memory, "add") || !has_inputs(memory, 2)) {
      note_broken("c' = s(f) c + s(i) tanh(g) under the tanh of an LSTM", memory);
      return std::nullopt;
    }
    const auto is_new = [&](DefId q) {
      return is(q, "mul") && operands(root(q), [&](DefId a, DefId b) {
                               return is(a, "sigmoid") && is(b, "tanh");
                             }).has_value();
    };
    const auto sum = operands(
        root(memory), [&](DefId kept, DefId added) { return is(kept, "mul") && is_new(added); });
    if (!sum) {
      note_broken("c' = s(f) c + s(i) tanh(g) in an LSTM",
                  is_new(input(memory)) ? input(memory, 1) : input(memory));
      return std::nullopt;
    }
    const auto forget =
        operands(root(sum->first), [&](DefId a, DefId) { return is(a, "sigmoid"); });
    if (!forget) {
      note_broken("s(f) c in an LSTM", sum->first);
      return std::nullopt;
    }
    const auto fresh = operands(
        root(sum->second), [&](DefId a, DefId b) { return is(a, "sigmoid") && is(b, "tanh"); });
    const std::array<DefId, 4> gates = {input(o), input(forget->first), input(fresh->first),
                                        input(fresh->second)};
    const auto cut = cut_of(gates, "an LSTM");
    if (!cut) return std::nullopt;
    UnfusedCell cell{.kind = UnfusedCell::Kind::kLstm, .roots = cut->roots};
    add_roots(cell,
              {at, root(o), root(tanh_of_memory), root(memory), root(sum->first), root(sum->second),
               root(forget->first), root(fresh->first), root(fresh->second)});
    add_gates(cell, cut->base);
    cell.state = def(forget->second).tensor;
    cell.hidden = def(op(at).outputs.front()).tensor;
    cell.memory = def(memory).tensor;
    cell.hidden_root = at;
    cell.memory_root = root(memory);
    return sorted(std::move(cell));
  }

  // The sum of both products is part of the cell where nobody else reads it.
  void add_gates(UnfusedCell& cell, DefId base) {
    cell.x_gates = def(base).tensor;
    if (!is(base, "add") || !has_inputs(base, 2)) return;
    const DefId a = input(base), b = input(base, 1);
    if (tensor(a).numel != tensor(base).numel || tensor(b).numel != tensor(base).numel) return;
    const bool inside = std::ranges::all_of(def(base).readers, [&](std::int32_t reader) {
      return std::ranges::find(cell.roots, reader) != cell.roots.end();
    });
    if (!inside) return;
    cell.roots.push_back(root(base));
    cell.x_gates = def(a).tensor;
    cell.h_gates = def(b).tensor;
    cell.h_gates_root = root(b);
  }

  struct GruParts {
    DefId n = -1, z = -1, h = -1;
    std::vector<std::int32_t> roots;  // beside those of n and z
  };

  // h' = n + z (h - n) or (1 - z) n + z h.
  std::optional<GruParts> gru_parts(std::int32_t at) const {
    const auto change = operands(at, [&](DefId n, DefId mul) {
      return is(n, "tanh") && is(mul, "mul") && has_inputs(mul, 2) &&
             operands(root(mul), [&](DefId z, DefId d) {
               return is(z, "sigmoid") && is(d, "sub") && has_inputs(d, 2) && input(d, 1) == n;
             });
    });
    if (change) {
      const auto factors = *operands(
          root(change->second), [&](DefId z, DefId d) { return is(z, "sigmoid") && is(d, "sub"); });
      return GruParts{change->first,
                      factors.first,
                      input(factors.second),
                      {root(change->second), root(factors.second)}};
    }
    const auto is_rest = [&](DefId d) {
      return is(d, "rsub") || (is(d, "sub") && has_inputs(d, 1));
    };
    const auto mix = operands(at, [&](DefId a, DefId b) {
      return is(a, "mul") && is(b, "mul") &&
             operands(root(a),
                      [&](DefId rest, DefId n) { return is_rest(rest) && is(n, "tanh"); }) &&
             operands(root(b), [&](DefId z, DefId) { return is(z, "sigmoid"); });
    });
    if (!mix) return std::nullopt;
    const auto first = *operands(
        root(mix->first), [&](DefId rest, DefId n) { return is_rest(rest) && is(n, "tanh"); });
    const DefId z = input(first.first);
    const auto second = operands(root(mix->second), [&](DefId a, DefId) { return a == z; });
    if (!second) return std::nullopt;
    return GruParts{
        first.second, z, second->second, {root(mix->first), root(mix->second), root(first.first)}};
  }

  std::optional<UnfusedCell> gru_at(std::int32_t at) {
    if (name(at) != "add" || op(at).outputs.empty()) return std::nullopt;
    const auto parts = gru_parts(at);
    if (!parts) return std::nullopt;
    const DefId sum = input(parts->n);
    const auto fresh = is(sum, "add") ? operands(root(sum),
                                                 [&](DefId, DefId mul) {
                                                   return is(mul, "mul") &&
                                                          operands(root(mul), [&](DefId r, DefId) {
                                                            return is(r, "sigmoid");
                                                          });
                                                 })
                                      : std::nullopt;
    if (!fresh) {
      note_broken("n = tanh(x_n + s(r) h_n) in a GRU", sum);
      return std::nullopt;
    }
    const auto reset =
        *operands(root(fresh->second), [&](DefId r, DefId) { return is(r, "sigmoid"); });
    const DefId r_sum = input(reset.first), z_sum = input(parts->z);
    for (const DefId gate : {r_sum, z_sum}) {
      if (is(gate, "add") && has_inputs(gate, 2)) continue;
      note_broken("x + h under a sigmoid of a GRU", gate);
      return std::nullopt;
    }
    const auto of_x = cut_of(std::span(&fresh->first, 1), "a GRU");
    const auto of_h = cut_of(std::span(&reset.second, 1), "a GRU");
    if (!of_x || !of_h) return std::nullopt;
    Cut x = *of_x, h = *of_h;
    for (const DefId gate : {r_sum, z_sum}) {
      for (const DefId piece : op(root(gate)).inputs) {
        const auto cut = cut_of(std::span(&piece, 1), "a GRU");
        if (!cut) return std::nullopt;
        if (cut->base != x.base && cut->base != h.base) {
          note_broken("gates of a GRU that are pieces of two tensors", piece);
          return std::nullopt;
        }
        Cut& of = cut->base == x.base ? x : h;
        of.roots.insert(of.roots.end(), cut->roots.begin(), cut->roots.end());
      }
    }
    UnfusedCell cell{.kind = UnfusedCell::Kind::kGru, .roots = parts->roots};
    for (const Cut* cut : {&x, &h}) {
      cell.roots.insert(cell.roots.end(), cut->roots.begin(), cut->roots.end());
    }
    add_roots(cell, {at, root(parts->n), root(parts->z), root(sum), root(fresh->second),
                     root(reset.first), root(r_sum), root(z_sum)});
    cell.x_gates = def(x.base).tensor;
    cell.h_gates = def(h.base).tensor;
    cell.h_gates_root = root(h.base);
    cell.state = def(parts->h).tensor;
    cell.hidden = def(op(at).outputs.front()).tensor;
    cell.hidden_root = at;
    return sorted(std::move(cell));
  }

  // Storage of the weight of a linear layer that makes a value or a sequence of values; nothing: no
  // product.
  std::optional<std::int64_t> weight_of(std::int32_t product) const {
    if (product < 0) return std::nullopt;
    const std::string_view of = name(product);
    const auto& inputs = op(product).inputs;
    if (of == "unbind" && !inputs.empty()) return weight_of(root(inputs[0]));  // of all steps
    const std::size_t at = of == "addmm" ? 2 : 1;
    if (of != "linear" && of != "addmm" && of != "mm" && of != "matmul") return std::nullopt;
    if (inputs.size() <= at) return std::nullopt;
    return tensor(inputs[at]).storage_id;
  }

  std::optional<UnfusedCell> plain_at(std::int32_t at) {
    const std::string_view activation = name(at);
    if (activation != "tanh" && activation != "relu") return std::nullopt;
    if (op(at).inputs.size() != 1 || op(at).outputs.size() != 1) return std::nullopt;
    const DefId sum = op(at).inputs.front(), hidden = op(at).outputs.front();
    if (!is(sum, "add") || !has_inputs(sum, 2)) return std::nullopt;
    const auto a = weight_of(root(input(sum))), b = weight_of(root(input(sum, 1)));
    if (!a || !b) return std::nullopt;
    const bool recurs = std::ranges::any_of(def(hidden).readers, [&](std::int32_t reader) {
      const auto weight = weight_of(reader);
      return weight && (*weight == *a || *weight == *b);
    });
    // The last step of a layer has the weights of the one before.
    const bool last = recurrent_weights_.contains(*a) || recurrent_weights_.contains(*b);
    if (!recurs && !last) return std::nullopt;
    recurrent_weights_[*a] = recurrent_weights_[*b] = true;
    UnfusedCell cell{.kind = UnfusedCell::Kind::kPlain, .roots = {at, root(sum)}};
    cell.activation = activation;
    cell.x_gates = def(input(sum)).tensor;
    cell.h_gates = def(input(sum, 1)).tensor;
    cell.h_gates_root = root(input(sum, 1));
    cell.hidden = def(hidden).tensor;
    cell.hidden_root = at;
    return sorted(std::move(cell));
  }

  static UnfusedCell sorted(UnfusedCell cell) {
    std::ranges::sort(cell.roots);
    cell.roots.erase(std::unique(cell.roots.begin(), cell.roots.end()), cell.roots.end());
    return cell;
  }

  // Nothing but the new state leaves it.
  bool is_closed(const UnfusedCell& cell) {
    for (const std::int32_t inner : cell.roots) {
      if (inner == cell.hidden_root || inner == cell.memory_root) continue;
      for (const DefId made : op(inner).outputs) {
        for (const std::int32_t reader : def(made).readers) {
          if (std::ranges::binary_search(cell.roots, reader)) continue;
          if (broken_.empty()) {
            broken_ = fmt::format(
                "expected nothing inside of a cell to be read outside, found {} "
                "(node {}), which reads {} (node {})",
                graph_.name(reader), graph_.node(reader).id, graph_.name(inner),
                graph_.node(inner).id);
          }
          return false;
        }
      }
    }
    return true;
  }

  ForwardFlow flow_of(std::int32_t at) const {
    ForwardFlow flow;
    for (const DefId read : op(at).inputs) flow.input_roots.push_back(root(read));
    for (const DefId made : op(at).outputs) {
      flow.readers.insert(flow.readers.end(), def(made).readers.begin(), def(made).readers.end());
    }
    std::ranges::sort(flow.readers);
    flow.readers.erase(std::unique(flow.readers.begin(), flow.readers.end()), flow.readers.end());
    return flow;
  }

  // linear(x, W, b), addmm(b, x, W'), mm(x, W') with W' = t(W).
  std::optional<CellProduct> product_at(std::int32_t at) const {
    if (at < 0) return std::nullopt;
    const std::string_view of = name(at);
    const auto& inputs = op(at).inputs;
    const std::size_t first = of == "addmm" ? 1 : 0;
    const bool known = of == "linear" || of == "addmm" || of == "mm" || of == "matmul";
    if (!known || inputs.size() < first + 2) return std::nullopt;
    CellProduct made{
        .root = at, .input = def(inputs[first]).tensor, .input_root = root(inputs[first])};
    const DefId weight = inputs[first + 1];
    made.weight = def(is(weight, "t") ? input(weight) : weight).tensor;
    if (of == "addmm") made.bias = def(inputs[0]).tensor;
    if (of == "linear" && inputs.size() > 2) made.bias = def(inputs[2]).tensor;
    return made;
  }

  void add_products(UnfusedCell& cell) const {
    for (const std::int32_t inner : cell.roots) {
      for (const DefId read : op(inner).inputs) {
        if (std::ranges::binary_search(cell.roots, root(read))) continue;
        const bool noted = std::ranges::any_of(
            cell.products, [&](const CellProduct& one) { return one.root == root(read); });
        const auto product = noted ? std::nullopt : product_at(root(read));
        if (product) cell.products.push_back(*product);
      }
    }
  }

  void add_functions(std::vector<UnfusedCell>& cells) const {
    std::unordered_map<std::int32_t, UnfusedCell*> cell_of;
    for (UnfusedCell& cell : cells) {
      for (const std::int32_t inner : cell.roots) cell_of[inner] = &cell;
    }
    for (std::size_t i = 0; i < pass_.functions.size(); ++i) {
      const std::int32_t root = graph_.find_around(
          pass_.functions[i].forward, [&](std::int32_t up) { return cell_of.contains(up); });
      if (root >= 0) cell_of.at(root)->functions.push_back(i);
    }
  }

  const ExecutionGraph& graph_;
  const BackwardPass& pass_;
  std::vector<std::int32_t> roots_;
  std::vector<Def> defs_;
  std::vector<OpDefs> ops_;  // per node; of roots
  std::unordered_map<std::int64_t, DefId> current_;
  std::map<std::int64_t, bool> recurrent_weights_;
  std::string broken_;
};

}  // namespace

UnfusedCells find_unfused_cells(const ExecutionGraph& graph, const BackwardPass& pass) {
  return CellFinder(graph, pass).find();
}

}  // namespace perfmodel
