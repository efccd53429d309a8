// Which changes make this training step faster? Each idea is a change of the graph; all of them are
// predicted on three GPUs. Nothing of it has to be written in PyTorch first.
#include <cstdio>
#include <string>
#include <vector>

#include "example.hpp"
#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/what_if.hpp"

int main() {
  using namespace perfmodel;
  // One nn.EmbeddingBag per table, as many people write a DLRM first.
  DlrmConfig config = or_exit(dlrm_preset("default"));
  config.table_batched = false;
  config.batch = 1024;
  const ExecutionGraph graph = or_exit(build_dlrm(config));

  const NamedRewrite batched = {
      "batched tables", [](const ExecutionGraph& of) { return rewrite_table_fusion(of, {}); }};
  const NamedRewrite fused = {
      "fused optimizer", [](const ExecutionGraph& of) {
        return rewrite_optimizer(of, {.implementation = TrainingOptions::Implementation::kFused});
      }};
  const NamedRewrite larger = {
      "batch x 4", [](const ExecutionGraph& of) { return set_batch_size(of, {.batch = 4096}); }};
  const std::vector<Variant> variants = {{"as it is", {}},
                                         {"batched tables", {batched}},
                                         {"and fused optimizer", {batched, fused}},
                                         {"batch x 4", {larger}},
                                         {"and batch x 4", {batched, fused, larger}}};

  const auto data = or_exit(find_data_folder());
  OverheadTables tables(data);
  std::vector<ChosenOverheads> overheads;  // live as long as the targets
  std::vector<WhatIfTarget> targets;
  for (const char* name : {"v100-sxm2-32gb", "a100-sxm-40gb", "h100-sxm-80gb"}) {
    const Gpu gpu = or_exit(find_gpu(name, data / "gpus"));
    overheads.push_back(or_exit(tables.choose("", gpu)));
    targets.push_back({.gpu = gpu, .overheads = overheads.back().table.get()});
  }

  const auto answers = what_if(graph, variants, targets);
  std::printf("%-20s", "thousand samples/s");
  for (const WhatIfTarget& target : targets) std::printf("  %26s", target.gpu.name.c_str());
  std::printf("\n");
  for (std::size_t v = 0; v < variants.size(); ++v) {
    std::printf("%-20s", variants[v].name.c_str());
    for (std::size_t t = 0; t < targets.size(); ++t) {
      const WhatIfAnswer& answer = answers[v * targets.size() + t];
      if (answer.error) {
        std::printf("  %26s", "refused");
        std::fprintf(stderr, "%s: %s\n", variants[v].name.c_str(),
                     to_string(*answer.error).c_str());
        continue;
      }
      const double baseline = *answers[t].samples_per_s();
      std::printf("  %7.0f %4.1fx %-12s", *answer.samples_per_s() / 1e3,
                  *answer.samples_per_s() / baseline, answer.bound.c_str());
    }
    std::printf("\n");
  }
}
