#include "seeds.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "call.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "traced_batch.hpp"

namespace perfmodel::resize {
namespace {

std::string_view word(Symbol symbol) { return symbol == Symbol::kBatch ? "batch" : "sequence"; }

std::string_view purpose(Symbol symbol) {
  return symbol == Symbol::kBatch ? "a batch size" : "a sequence length";
}

bool is_input(const External& external) { return !external.state && !external.weight; }

// Indices and labels; bytes are pictures.
bool is_index(const Tensor& tensor) {
  return !is_floating_point(tensor.dtype) && tensor.dtype != DType::kUInt8;
}

// Place of the symbol in an input; -1: it has none.
int place(const Tensor& tensor, bool time_first, Symbol symbol) {
  const bool integer = is_index(tensor);
  const int first = symbol == Symbol::kBatch ? 0 : 1;
  if (integer ? tensor.rank != 2 : tensor.rank < (symbol == Symbol::kBatch ? 2 : 3)) return -1;
  return time_first ? 1 - first : first;
}

std::string list(const std::map<std::int64_t, std::size_t>& votes) {
  std::string text;
  for (const auto& [size, count] : votes)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", size);
  return text;
}

// "545:0 [16 x 13]": an input and the dimensions that have the size.
std::string candidates(const ExecutionGraph& graph, const std::vector<External>& externals,
                       std::int64_t size) {
  constexpr std::size_t kMost = 8;
  std::size_t found = 0;
  std::string text;
  for (const External& external : externals) {
    const Tensor& tensor = graph.tensors[external.tensor];
    const auto sizes = graph.shape(tensor);
    const auto at = std::ranges::find(sizes, size);
    if (!is_input(external) || at == sizes.end() || ++found > kMost) continue;
    text += fmt::format("{}{}:{} [{}]", text.empty() ? "" : ", ", tensor.id, at - sizes.begin(),
                        fmt::join(sizes, " x "));
  }
  return found > kMost ? fmt::format("{}, ... of {}", text, found) : text;
}

// Several sizes of the graph equal the batch by chance, so it is not known which inputs have it.
Error with_way_out(Error error, const ExecutionGraph& graph, const std::vector<External>& externals,
                   std::int64_t was, std::int64_t wanted) {
  error.message += fmt::format(
      "; where a width or a length is {0}, too, name the inputs whose dimension is the batch and "
      "no "
      "others: --batch {1}@ID:DIM+ID:DIM of {2}",
      was, wanted, candidates(graph, externals, was));
  return error;
}

// A step that makes its data itself has no input whose size could be changed.
Error no_input(Symbol symbol, bool any_input) {
  return {.code = ErrorCode::kImpossible,
          .message = fmt::format(
              "expected an input that has a {0}, found none; {1}", word(symbol),
              any_input ? fmt::format("name its size: --{} OLD=NEW", word(symbol))
                        : "the step makes its data itself (torch.randn, ...): make them before the "
                          "step and record it again, or record one graph for each size")};
}

}  // namespace

Result<Seeds> named_seeds(const ExecutionGraph& graph, const std::vector<External>& externals,
                          std::int64_t given, std::span<const BatchInput> inputs) {
  Seeds seeds{.was = given};
  for (const External& external : externals) {
    seeds.dims.emplace_back(graph.tensors[external.tensor].rank, false);
  }
  for (const BatchInput& input : inputs) {
    const auto refuse = [&](std::string_view what) -> Unexpected {
      return fail(ErrorCode::kImpossible,
                  fmt::format("batch input {}:{}: expected {}", input.tensor, input.dim, what));
    };
    const auto external = std::ranges::find_if(externals, [&](const External& one) {
      return is_input(one) && graph.tensors[one.tensor].id == input.tensor;
    });
    if (external == externals.end()) {
      return refuse("the id of a tensor that comes from outside of the graph and is no parameter");
    }
    auto& dims = seeds.dims[external - externals.begin()];
    const auto dim = static_cast<std::size_t>(input.dim);
    if (input.dim < 0 || dim >= dims.size()) {
      return refuse(fmt::format("a dimension of its {}", dims.size()));
    }
    const std::int64_t size = graph.shape(graph.tensors[external->tensor])[dim];
    if (seeds.was == 0) seeds.was = size;
    if (size != seeds.was) return refuse(fmt::format("a size of {}, found {}", seeds.was, size));
    dims[dim] = true;
  }
  return seeds;
}

Result<Seeds> find_seeds(const ExecutionGraph& graph, const std::vector<External>& externals,
                         Symbol symbol, std::int64_t given) {
  const bool any_from_host = std::any_of(externals.begin(), externals.end(), [](const External& e) {
    return e.from_host && is_input(e);
  });
  const bool time_first = std::any_of(externals.begin(), externals.end(),
                                      [](const External& e) { return e.time_first; });
  const auto tensor_of = [&](const External& e) -> const Tensor& {
    return graph.tensors[e.tensor];
  };
  // Gradients that a step gets from the step before have the shapes of parameters.
  const auto like_a_parameter = [&](const External& external) {
    return std::ranges::any_of(externals, [&](const External& other) {
      return (other.weight || other.state) &&
             std::ranges::equal(graph.shape(tensor_of(other)), graph.shape(tensor_of(external)));
    });
  };
  // Floats and pictures tell the batch, indices the sequence; the others where there are none of
  // these.
  std::map<std::int64_t, std::size_t> votes;
  for (bool integers : {symbol == Symbol::kSequence, symbol == Symbol::kBatch}) {
    std::map<std::int64_t, std::size_t> unlike;
    for (const External& external : externals) {
      const Tensor& tensor = tensor_of(external);
      if (!is_input(external) || (any_from_host && !external.from_host)) continue;
      if (is_index(tensor) != integers) continue;
      const int at = place(tensor, time_first, symbol);
      if (at < 0) continue;
      const std::int64_t size = graph.shape(tensor)[at];
      ++votes[size];
      if (!like_a_parameter(external)) ++unlike[size];
    }
    if (votes.size() > 1 && !unlike.empty()) votes = std::move(unlike);
    if (votes.size() > 1) votes.erase(1);  // tables of positions, masks: broadcast to the batch
    if (!votes.empty()) break;
  }
  if (given == 0 && votes.size() > 1) {
    return fail(ErrorCode::kImpossible,
                fmt::format("expected inputs of one {0}, found sizes {1}; name the one to change: "
                            "--{0} OLD=NEW",
                            word(symbol), list(votes)));
  }
  const bool any_input = std::ranges::any_of(externals, is_input);
  if (votes.empty() && (given == 0 || !any_input)) return Unexpected{no_input(symbol, any_input)};
  Seeds seeds{.was = given != 0 ? given : votes.begin()->first};
  // Look first where the symbol usually is, and elsewhere only if no named size is there.
  bool found = false;
  for (bool anywhere : {false, true}) {
    if (found || (anywhere && given == 0)) break;
    seeds.dims.clear();
    for (const External& external : externals) {
      const Tensor& tensor = tensor_of(external);
      const auto sizes = graph.shape(tensor);
      seeds.dims.emplace_back(sizes.size(), false);
      const bool eligible = is_input(external) && (!any_from_host || external.from_host ||
                                                   (seeds.was > 1 && sizes.size() == 2));
      const auto has = [&](int d) {
        return d >= 0 && static_cast<std::size_t>(d) < sizes.size() && sizes[d] == seeds.was;
      };
      int at = place(tensor, time_first, symbol);
      if (anywhere && sizes.size() >= 2) at = has(0) ? 0 : 1;
      if (!eligible || !has(at)) continue;
      seeds.dims.back()[at] = true;
      found = true;
    }
  }
  if (!found) {
    return fail(ErrorCode::kImpossible,
                fmt::format("expected an input of {} {}, found {}", word(symbol), given,
                            votes.empty() ? "none" : list(votes)));
  }
  return seeds;
}

/// A first walk over a graph finds this; a second one changes the sizes from it.
struct Scouted {
  Seeds seeds;
  std::vector<External> externals;
};

static Result<Scouted> scout(const ExecutionGraph& graph, Symbol symbol, std::int64_t given,
                             std::span<const BatchInput> inputs = {}) {
  if (auto known = check_tensors_known(graph, purpose(symbol)); !known) {
    return Unexpected{known.error()};
  }
  Tracker tracker(graph, rules_of(graph), {});
  if (auto seen = tracker.run(); !seen) return Unexpected{seen.error()};
  PERFMODEL_TRY(seeds, inputs.empty() ? find_seeds(graph, tracker.externals(), symbol, given)
                                      : named_seeds(graph, tracker.externals(), given, inputs));
  return Scouted{std::move(*seeds), tracker.externals()};
}

static Result<ExecutionGraph> resized(const ExecutionGraph& graph, Symbol symbol, Scouted scouted,
                                      std::int64_t wanted) {
  if (wanted < 1 || wanted > kLargestSize) {
    return fail(ErrorCode::kImpossible,
                fmt::format("expected a {} from 1 to 2^40, found {}", word(symbol), wanted));
  }
  scouted.seeds.now = wanted;
  const std::int64_t was = scouted.seeds.was;
  if (was < 1) {
    return fail(
        ErrorCode::kImpossible,
        fmt::format("expected a {} of at least 1 in the graph, found {}", word(symbol), was));
  }
  if (was == wanted) return graph;
  Tracker tracker(graph, rules_of(graph), std::move(scouted.seeds), scouted.externals);
  if (auto tracked = tracker.run(); !tracked) {
    const bool ambiguous = symbol == Symbol::kBatch && tracker.contradicts();
    if (!ambiguous) return Unexpected{tracked.error()};
    return Unexpected{with_way_out(tracked.error(), graph, scouted.externals, was, wanted)};
  }
  PERFMODEL_TRY(edits, tracker.edits());
  return edited(graph, *edits);
}

Result<std::int64_t> current_size(const ExecutionGraph& graph, Symbol symbol) {
  if (symbol == Symbol::kBatch && is_from_trace(graph)) return traced_batch_size(graph);
  return scout(graph, symbol, 0).map([](const Scouted& found) { return found.seeds.was; });
}

Result<ExecutionGraph> resized(const ExecutionGraph& graph, Symbol symbol, std::int64_t given,
                               std::int64_t wanted, std::span<const BatchInput> inputs) {
  const bool possible = wanted >= 1 && wanted <= kLargestSize;
  if (symbol == Symbol::kBatch && is_from_trace(graph) && inputs.empty() && possible) {
    return set_traced_batch_size(graph, given, wanted);
  }
  PERFMODEL_TRY(scouted, possible ? scout(graph, symbol, given, inputs) : Scouted{});
  return resized(graph, symbol, std::move(*scouted), wanted);
}

Result<TwiceTheBatch> twice_the_batch(const ExecutionGraph& graph) {
  if (is_from_trace(graph)) {
    PERFMODEL_TRY(batch, traced_batch_size(graph));
    return TwiceTheBatch{*batch, resized(graph, Symbol::kBatch, 0, 2 * *batch)};
  }
  PERFMODEL_TRY(scouted, scout(graph, Symbol::kBatch, 0));
  const std::int64_t batch = scouted->seeds.was;
  return TwiceTheBatch{batch, resized(graph, Symbol::kBatch, std::move(*scouted), 2 * batch)};
}

}  // namespace perfmodel::resize
