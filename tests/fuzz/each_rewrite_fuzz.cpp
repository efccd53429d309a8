// Every rewrite on every graph of the inputs, one by one: an error, or a graph that breaks no
// invariant (tests/graph/rewrite_invariants.hpp). One of them is also applied again, followed by
// another rewrite, and written to a file. `rewrites` looks longer at few of them; here counts how
// many graphs there are.
#include <cstdio>
#include <cstdlib>

#include "../graph/rewrite_contracts.hpp"
#include "fuzz.hpp"
#include "rewritten_graphs.hpp"

using namespace perfmodel;

namespace {

struct Counts {
  std::size_t graphs = 0, rewritten = 0, refused = 0;
};

Counts& counts() {
  static Counts made;
  return made;
}

void print_counts() {
  std::fprintf(stderr, "stat::graphs: %zu\nstat::rewritten: %zu\nstat::refused: %zu\n",
               counts().graphs, counts().rewritten, counts().refused);
}

std::optional<ExecutionGraph> try_rewrite(const ExecutionGraph& graph, bool is_program,
                                          const test_support::ContractedRewrite& one,
                                          const std::string& rewrites) {
  auto made = apply_rewrites(graph, {&one.rewrite, 1});
  ++(made ? counts().rewritten : counts().refused);
  if (!made) {
    fuzz::check_error(made.error());
    return {};
  }
  fuzz::check_unbroken(is_program ? broken_invariant(one, graph, *made)
                                  : test_support::broken_structure(graph, *made),
                       rewrites);
  return std::move(*made);
}

// A changed graph may be ambiguous: a size that the batch has now may be a parameter's as well.
// Then a second application is refused.
void check_second(const test_support::ContractedRewrite& one, const ExecutionGraph& made) {
  const auto twice = apply_rewrites(made, {&one.rewrite, 1});
  if (!twice) return fuzz::check_error(twice.error());
  fuzz::check_unbroken(test_support::difference_up_to_ids(made, *twice), one.rewrite.name);
}

void try_each_rewrite(const ExecutionGraph& graph, bool is_program, std::uint64_t chosen) {
  const auto& rewrites = test_support::contracted_rewrites();
  const std::size_t count = rewrites.size();
  for (std::size_t i = 0; i < count; ++i) {
    const test_support::ContractedRewrite& one = rewrites[i];
    const auto made = try_rewrite(graph, is_program, one, one.rewrite.name);
    if (!made || i != chosen % count) continue;
    fuzz::check_unbroken(test_support::differs_when_read_back(*made), one.rewrite.name);
    if (one.contract->again == test_support::Again::kNothing) check_second(one, *made);
    const test_support::ContractedRewrite& other = rewrites[chosen / count % count];
    // A graph whose ops were taken out is no program any more.
    try_rewrite(*made, is_program && one.contract->is_whole, other,
                one.rewrite.name + " " + other.rewrite.name);
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  std::atexit(print_counts);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  if (fuzz::too_deep(text)) return 0;  // execution_graph looks at those
  const auto document = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return 0;
  const auto graph = fuzz::graph_of(document, text);
  if (!graph) return 0;
  ++counts().graphs;
  try_each_rewrite(*graph, fuzz::is_program(document), hash_text(text));
  return 0;
}
