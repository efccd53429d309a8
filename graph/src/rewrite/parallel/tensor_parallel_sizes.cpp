#include "tensor_parallel_sizes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "ops/catalogue.hpp"
#include "rewrite/resize/call.hpp"
#include "rewrite/resize/edits.hpp"
#include "rewrite/resize/tracker.hpp"

namespace perfmodel {
namespace {

using resize::Call;
using resize::Dim;
using resize::Dims;
using resize::Layout;
using resize::Tracker;

// A cut dimension is one of power 1 of a size that goes from the number of ranks to 1.
Dim cut(std::int64_t size) { return {.size = size, .power = 1}; }

class RankRules {
 public:
  RankRules(const ExecutionGraph& graph, const TensorParallelSizes& sizes,
            std::vector<bool>* partial)
      : graph_(graph),
        sizes_(sizes),
        rules_(resize::rules_of(graph)),
        ops_(graph.names.size()),
        partial_(partial) {}

  std::vector<std::optional<Layout>> operator()(Tracker& tracker, std::int32_t index) {
    if (const auto at = sizes_.received.find(index); at != sizes_.received.end()) {
      return receive(tracker, index, at->second);
    }
    if (refused_) tracker.refuse(refused_->first, refused_->second);
    const Node& node = graph_.node(index);
    const std::string_view name = graph_.name(node);
    if (name == "aten::embedding_dense_backward" || name == "aten::embedding_backward") {
      return table_gradient(tracker, index);
    }
    auto given = rules_(tracker, index);
    std::optional<const Op*>& known = ops_[node.name];
    if (!known) known = find_op(name);
    const Op* op = *known;
    if (!op) return given;
    if (partial_ && is_partial_sum(tracker, index, *op)) (*partial_)[index] = true;
    if (op->kind == OpKind::kView) check_heads(tracker, index, given);
    check_division(tracker, index, given);
    return given;
  }

 private:
  const Layout* input(Tracker& tracker, const Node& node, std::size_t at) const {
    const auto inputs = graph_.inputs(node);
    if (at >= inputs.size() || inputs[at].kind != Argument::Kind::kTensor) return nullptr;
    return tracker.layout_of(graph_.tensors[inputs[at].index]);
  }

  static Dims recorded_dims(const Call& call) {
    Dims dims;
    for (const std::int64_t size : call.out_shape(0)) dims.push_back(resize::constant(size));
    return dims;
  }

  std::vector<std::optional<Layout>> receive(Tracker& tracker, std::int32_t index,
                                             TokensOf tokens) const {
    Call call(tracker, index);
    Dims dims = recorded_dims(call);
    if (tokens != TokensOf::kAllRanks) {
      const bool done = std::ranges::any_of(sizes_.tokens, [&](const TokenShape& one) {
        return cut_tokens(dims, one, tokens == TokensOf::kViewOfOneRank);
      });
      if (!done) call.refuse("expected all tokens of a step, found other sizes");
    }
    if (tokens == TokensOf::kViewOfOneRank) {
      set_slice(call, std::move(dims));
    } else {
      call.set_sizes(0, dims);
      call.give(0, std::move(dims));
    }
    return call.take();
  }

  // [B, S, ..] or [B S, ..]; views of indices [B or 1, S].
  static bool cut_tokens(Dims& dims, const TokenShape& tokens, bool view) {
    const auto [batch, length] = tokens;
    if ((dims.size() > 2 || view) && dims.size() > 1 && dims[1].size == length) {
      dims[1] = cut(length);
      return true;
    }
    if (dims.empty() || dims[0].size != batch * length) return false;
    dims[0] = cut(batch * length);
    dims[0].factors = {resize::constant(batch), cut(length)};
    return true;
  }

  // aten::slice(x, 1, 0, end) of tokens [B, S].
  static void set_slice(Call& call, Dims dims) {
    const Layout* x = call.in(0);
    if (!x) return;
    if (dims.size() > 1) call.set(3, call.now(dims[1]));
    Layout made = *x;
    made.dims = std::move(dims);
    call.give(0, std::move(made));
  }

  // As large as the table of the lookup in the forward pass.
  std::vector<std::optional<Layout>> table_gradient(Tracker& tracker, std::int32_t index) const {
    Call call(tracker, index);
    Dims dims = recorded_dims(call);
    const Layout* table = table_of(tracker, tracker.forward_op(index));
    const bool is_known =
        table && dims.size() == 2 && table->dims.size() == 2 && table->dims[0].size == dims[0].size;
    if (is_known) dims = table->dims;
    if (!dims.empty() && call.integer(2) == dims[0].size) call.set(2, call.now(dims[0]));
    call.give(0, std::move(dims));
    return call.take();
  }

  // The op with the sequence number may be a view inside of the lookup.
  const Layout* table_of(Tracker& tracker, std::int32_t index) const {
    const std::int32_t lookup =
        graph_.find_around(index, [&](std::int32_t i) { return is_row_lookup(graph_.name(i)); });
    return lookup < 0 ? nullptr : input(tracker, graph_.node(lookup), 0);
  }

  // A product along a dimension that is cut gives one, and so does a lookup in a cut table.
  bool is_partial_sum(Tracker& tracker, std::int32_t index, const Op& op) const {
    const bool is_product = op.kind == OpKind::kProduct;
    if (!is_product && !is_row_lookup(graph_.name(index))) return false;
    const Layout* x = input(tracker, graph_.node(index), is_product && op.has_addend ? 1 : 0);
    return x && !x->dims.empty() && (is_product ? x->dims.back() : x->dims.front()).scales();
  }

  // A width that is split into heads is cut between heads, never inside of one.
  void check_heads(Tracker& tracker, std::int32_t index,
                   const std::vector<std::optional<Layout>>& given) {
    const Layout* x = input(tracker, graph_.node(index), 0);
    if (!x || given.empty() || !given[0] || x->dims.empty()) return;
    const Dims& dims = given[0]->dims;
    if (dims.size() <= x->dims.size() || !x->dims.back().scales() || !dims.back().scales()) return;
    if (dims.back().size == x->dims.back().size) return;
    if (refused_) return;
    refused_.emplace(index,
                     fmt::format("expected a number of heads that divides by {} ranks, found {}",
                                 sizes_.ranks, dims[dims.size() - 2].size));
    tracker.refuse(refused_->first, refused_->second);
  }

  void check_division(Tracker& tracker, std::int32_t index,
                      const std::vector<std::optional<Layout>>& given) const {
    for (const std::optional<Layout>& layout : given) {
      if (!layout) continue;
      for (const Dim& dim : layout->dims) {
        if (!dim.scales() || (dim.size - dim.offset) % sizes_.ranks == 0) continue;
        return tracker.refuse(
            index, fmt::format("expected a size that divides by {} ranks, found {}", sizes_.ranks,
                               dim.size));
      }
    }
  }

  const ExecutionGraph& graph_;
  const TensorParallelSizes& sizes_;
  resize::ApplyRule rules_;
  std::vector<std::optional<const Op*>> ops_;  // by name, as they are met
  // The first pass tells why: later ones carry the cut inside of a head to other tensors.
  std::optional<std::pair<std::int32_t, std::string>> refused_ = {};
  std::vector<bool>* partial_;
};

// A copied graph begins with the tensors of its source.
std::vector<bool> cut_dims(const ExecutionGraph& graph, const TensorParallelSizes& sizes,
                           std::uint32_t tensor) {
  std::vector<bool> dims(graph.tensors[tensor].rank, false);
  if (tensor >= sizes.source->tensors.size()) return dims;
  const std::int8_t cut = sizes.split->cut[sizes.source->tensors[tensor]];
  if (cut >= 0 && static_cast<std::size_t>(cut) < dims.size()) dims[cut] = true;
  return dims;
}

Result<Tracker> tracked(const ExecutionGraph& graph, const TensorParallelSizes& sizes,
                        std::vector<bool>* partial) {
  const auto dims_of = [&](std::uint32_t tensor) { return cut_dims(graph, sizes, tensor); };
  Tracker tracker(graph, RankRules(graph, sizes, partial),
                  {.was = sizes.ranks, .now = 1, .dims_of = dims_of, .model_too = true});
  if (auto done = tracker.run(); !done) {
    Error error = done.error();
    error.message = "tensor-parallel: " + error.message;
    return Unexpected{std::move(error)};
  }
  return tracker;
}

}  // namespace

Result<std::vector<bool>> partial_sums(const TensorParallelSizes& sizes) {
  std::vector<bool> partial(sizes.source->nodes.size());
  if (auto done = tracked(*sizes.source, sizes, &partial); !done) return Unexpected{done.error()};
  return partial;
}

Result<ExecutionGraph> divided(const ExecutionGraph& graph, const TensorParallelSizes& sizes) {
  PERFMODEL_TRY(tracker, tracked(graph, sizes, nullptr));
  PERFMODEL_TRY(edits, tracker->edits());
  return resize::edited(graph, *edits);
}

}  // namespace perfmodel
