// Graphs that no recording is (rewritten_graphs.hpp), changed by whatever rewrites: an error, or a
// graph that is nested, can be written, read again and predicted, and whose memory adds up.
//
// An input has {"rewrites": [...]} next to its graph, each a flag of `perfpredict rewrite` with its
// value, "--batch 6". On a document without them one of all rewrites is tried.
#include <cmath>
#include <nlohmann/json.hpp>

#include "../graph/rewrite_contracts.hpp"
#include "fuzz.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/what_if.hpp"
#include "rewritten_graphs.hpp"

using namespace perfmodel;
using Json = nlohmann::json;

namespace {

constexpr std::size_t kMostRewrites = 4;

void check_invariants(const ExecutionGraph& source, const ExecutionGraph& made,
                      const std::vector<NamedRewrite>& rewrites) {
  std::string names;
  for (const NamedRewrite& rewrite : rewrites) names += rewrite.name + " ";
  fuzz::check_unbroken(test_support::broken_structure(source, made), names);
  fuzz::check_unbroken(test_support::differs_when_read_back(made), names);
}

void try_rewrites(const ExecutionGraph& graph, std::vector<NamedRewrite> rewrites) {
  const auto made = apply_rewrites(graph, rewrites);
  if (made) {
    check_invariants(graph, *made, rewrites);
  } else {
    fuzz::check_error(made.error());
  }
  static const Gpu gpu = *read_gpu(fuzz::data_folder() / "gpus/a100-sxm-40gb.json");
  static const OverheadTable table =
      *read_overheads(fuzz::data_folder() / "overheads/programs/dlrm_v100.json");
  const Variant variant{"input", std::move(rewrites)};
  const WhatIfTarget target{.gpu = gpu, .overheads = &table};
  const auto answers = what_if(graph, {&variant, 1}, {&target, 1}, {.threads = 1});
  PERFMODEL_CHECK(answers.size() == 1);
  if (answers[0].error) {
    fuzz::check_error(*answers[0].error);
    return;
  }
  PERFMODEL_CHECK(made.has_value());
  for (const double us : {answers[0].e2e_us, answers[0].gpu_active_us, answers[0].cpu_us}) {
    PERFMODEL_CHECK(std::isfinite(us) && us >= 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  if (fuzz::too_deep(text)) return 0;  // execution_graph looks at those
  const Json document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return 0;
  const auto graph = fuzz::graph_of(document, text);
  if (!graph) return 0;
  if (!document.contains("rewrites")) {
    const auto& rewrites = test_support::contracted_rewrites();
    try_rewrites(*graph, {rewrites[hash_text(text) % rewrites.size()].rewrite});
    return 0;
  }
  std::vector<NamedRewrite> rewrites;
  for (const Json& chosen : document["rewrites"]) {
    if (!chosen.is_string() || rewrites.size() >= kMostRewrites) continue;
    if (auto rewrite = fuzz::rewrite_of(chosen.get<std::string>())) {
      rewrites.push_back(std::move(*rewrite));
    }
  }
  if (!rewrites.empty()) try_rewrites(*graph, std::move(rewrites));
  return 0;
}
