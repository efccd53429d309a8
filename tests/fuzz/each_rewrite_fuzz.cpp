// Every rewrite on every graph of the inputs, one by one: an error, or a graph whose indices lie in
// their pools. `rewrites` looks longer at few of them; here counts how many graphs there are.
#include <cstdio>
#include <cstdlib>

#include "fuzz.hpp"
#include "graph_indices.hpp"
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
  const auto& rewrites = fuzz::each_rewrite();
  ++counts().graphs;
  const std::size_t written = hash_text(text) % rewrites.size();
  for (std::size_t i = 0; i < rewrites.size(); ++i) {
    const auto made = apply_rewrites(*graph, {&rewrites[i], 1});
    ++(made ? counts().rewritten : counts().refused);
    if (!made) {
      fuzz::check_error(made.error());
      continue;
    }
    fuzz::check_indices(*made);
    if (i == written) fuzz::check_written(*made);  // costs more than all else together
  }
  return 0;
}
