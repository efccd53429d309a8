// More of everything is never faster: random jobs and layouts against the same with more in them.
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../scratch.hpp"
#include "perfmodel/layout.hpp"
#include "predictor_cases.hpp"
#include "random_layouts.hpp"

namespace perfmodel {
namespace layout_relations_test {

const Predictor& predictor() {
  static const Predictor made =
      Predictor::load({.data = test_support::source_data(), .gpus = {"h100-sxm-80gb"}}).value();
  return made;
}

const LayoutPricer& pricer() {
  static const LayoutPricer made =
      LayoutPricer::make(predictor(), {.gpu = "h100-sxm-80gb"}).value();
  return made;
}

/// Nodes of four GPUs with as much network each: what fitted in a node of eight now hops.
const LayoutPricer& pricer_of_small_nodes() {
  static const LayoutPricer made = [] {
    auto topology = nlohmann::json::parse(
        std::ifstream(test_support::source_data() / "topologies" / "hgx-h100.json"));
    topology["name"] = "small-nodes";
    topology["gpus_per_node"] = 4;
    topology["nic"]["count"] = 4;
    topology["nccl"]["rates"].erase(2);  // eight ranks
    const auto file = test_support::scratch() / "layout-relations-topology.json";
    std::ofstream(file) << topology;
    return LayoutPricer::make(predictor(), {.gpu = "h100-sxm-80gb", .topology = file.string()})
        .value();
  }();
  return made;
}

using test_support::LayoutQuestions;
using Question = test_support::RandomLayout;

struct Addition {
  const char* words;
  void (*add)(Question& to);
};
// If nothing is computed again yet.
void again(Question& to, const LayoutRecompute& what) {
  if (to.layout.recompute == LayoutRecompute::kNone) to.layout.recompute = what;
}
constexpr Addition kAdditions[] = {
    {"a layer per chunk", [](Question& to) { to.job.model.layers += to.layout.pp * to.layout.vp; }},
    {"a further token", [](Question& to) { ++to.job.model.next_tokens; }},
    {"twice the words", [](Question& to) { to.job.model.vocabulary *= 2; }},
    {"twice the feed-forward width", [](Question& to) { to.job.model.feed_forward *= 2; }},
    {"experts twice as wide", [](Question& to) { to.job.model.experts.hidden *= 2; }},
    {"twice the experts of a token", [](Question& to) { to.job.model.experts.top_k *= 2; }},
    {"sequences twice as long", [](Question& to) { to.job.sequence *= 2; }},
    {"twice the sequences", [](Question& to) { to.job.global_batch *= 2; }},
    {"full recomputation", [](Question& to) { to.layout.recompute = LayoutRecompute::kFull; }},
    {"each second layer again",
     [](Question& to) {
       again(to, {LayoutRecompute::kEvery, 2});
     }},
    {"a layer of each chunk again",
     [](Question& to) {
       again(to, {LayoutRecompute::kBlock, 1});
     }},
    {"norms and attention again",
     [](Question& to) {
       again(to, {LayoutRecompute::kModules, 1,
                  LayoutRecompute::kNorms | LayoutRecompute::kCoreAttention});
     }},
    {"ops issued one by one", [](Question& to) { to.job.cuda_graphs = 0; }},
    {"gathers before products", [](Question& to) { to.layout.async_tp = false; }},
    {"smaller nodes", [](Question&) {}},
};

// nanotron balances stages by products, whatever the host needs: wider layers may move a border.
bool moves_stages(const Question& question) {
  return question.job.software == "nanotron" && question.layout.pp > 1;
}

// The host's part of a split backward pass is divided as the device's is, so that other kernels may
// take a few thousandths off a step that waits for the host.
constexpr double kMostGain = 0.01;

TEST(LayoutRelations, MoreModulesTokensAndHopsAreNeverFaster) {
  LayoutQuestions questions;
  std::array<int, std::size(kAdditions)> asked{};
  int faster = 0;
  for (int pair = 0; pair < 2000; ++pair) {
    const Question less = questions.next();
    const std::size_t which = questions.below(std::size(kAdditions));
    const Addition& addition = kAdditions[which];
    Question more = less;
    addition.add(more);
    const bool hops = which + 1 == std::size(kAdditions);
    const auto before = pricer().predict(less.job, less.layout);
    const auto after = (hops ? pricer_of_small_nodes() : pricer()).predict(more.job, more.layout);
    ASSERT_TRUE(before) << to_string(before.error());
    ASSERT_TRUE(after) << addition.words << ": " << to_string(after.error());
    ++asked[which];
    faster += after->step_ms < before->step_ms * (1 - 1e-9) ? 1 : 0;
    if (moves_stages(less)) continue;
    EXPECT_GE(after->step_ms, before->step_ms * (1 - kMostGain))
        << addition.words << " with " << less.job.software << ": layers " << less.job.model.layers
        << " hidden " << less.job.model.hidden << " experts " << less.job.model.experts.experts
        << " next " << less.job.model.next_tokens << " batch " << less.job.global_batch << " tp "
        << less.layout.tp << " pp " << less.layout.pp << " dp " << less.layout.dp << " vp "
        << less.layout.vp << " zero " << to_string(less.layout.zero) << " "
        << to_string(less.layout.order);
  }
  for (const int count : asked) EXPECT_GT(count, 100);
  EXPECT_LT(faster, 40);
}

// Stages are balanced by the weights that a token meets, not by a width that no layer has.
TEST(LayoutRelations, AWidthThatNoLayerHasChangesNothing) {
  LayoutJob job;
  job.model = {.name = "experts",
               .layers = 16,
               .hidden = 1024,
               .heads = 8,
               .feed_forward = 1024,
               .vocabulary = 32768,
               .experts = {.experts = 16, .top_k = 2, .hidden = 1024}};
  job.sequence = 2048;
  job.global_batch = 64;
  job.software = "nanotron";
  ParallelLayout layout;
  layout.pp = 4;
  const double before = pricer().predict(job, layout)->step_ms;
  job.model.feed_forward = 65536;
  EXPECT_EQ(pricer().predict(job, layout)->step_ms, before);
}

// Llama 3 8B with 131,072 tokens on 8 H100 by two programs with the same kernel: what half of the
// tokens in each of twice as many sequences saves is attention alone.
TEST(LayoutRelations, AttentionTakesAsLongByAnySoftware) {
  LayoutJob job;
  job.model = {.name = "8b",
               .layers = 32,
               .hidden = 4096,
               .heads = 32,
               .kv_heads = 8,
               .feed_forward = 14336,
               .vocabulary = 128256};
  ParallelLayout layout;
  layout.tp = 8;
  layout.sequence_parallel = true;
  const auto attention_ms = [&](const std::string& software) {
    job.software = software;
    const auto compute_ms = [&](std::int64_t sequence) {
      job.sequence = sequence;
      job.global_batch = 8 * 131072 / sequence;
      layout.micro_batch = 131072 / sequence;
      const LayoutPrediction made = pricer().predict(job, layout).value();
      EXPECT_EQ(made.attention, "cudnn");
      return made.terms_ms[static_cast<std::size_t>(LayoutTerm::kCompute)];
    };
    return compute_ms(131072) - compute_ms(65536);
  };
  const double fsdp = attention_ms("fsdp"), nemo = attention_ms("nemo");
  EXPECT_NEAR(nemo / fsdp, 1, 0.1);
  // 4 b h s s d / 2 forward and 2.5 times that backward, by half the tokens less; cuDNN reaches 0.5
  // to 0.75 of the peak.
  const double flop = 3.5 * 2 * 32.0 * 8 * 131072 * (131072 - 65536) * 4096;
  const double share = flop / 8 / 989e12 / (1e-3 * fsdp);
  EXPECT_GT(share, 0.5);
  EXPECT_LT(share, 0.75);
}

}  // namespace layout_relations_test
}  // namespace perfmodel
