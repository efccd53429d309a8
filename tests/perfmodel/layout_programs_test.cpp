// Compiled layers, captured graphs, asynchronous tensor parallelism and dispatchers of experts.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "../scratch.hpp"
#include "layout/layout_names.hpp"
#include "layout/layout_rows.hpp"
#include "perfmodel/detail/decoder_models.hpp"
#include "perfmodel/layout.hpp"
#include "predictor_cases.hpp"

namespace perfmodel {
namespace layout_programs_test {

const LayoutPricer& pricer() {
  static const LayoutPricer made = [] {
    const Predictor on =
        Predictor::load({.data = test_support::source_data(), .gpus = {"h100-sxm-80gb"}}).value();
    return LayoutPricer::make(on, {.gpu = "h100-sxm-80gb"}).value();
  }();
  return made;
}

struct Asked {
  LayoutJob job;
  ParallelLayout layout;

  LayoutPrediction made() const { return pricer().predict(job, layout).value(); }
  double term(LayoutTerm which) const { return made().terms_ms[static_cast<std::size_t>(which)]; }
  std::string refusal() const {
    const auto made = pricer().predict(job, layout);
    return made ? "none" : made.error().message;
  }
};

Asked asked(const std::string& model, std::int64_t batch) {
  auto named = find_decoder(model).value();
  Asked made;
  made.job.model = named.model;
  made.job.sequence = 4096;
  made.job.global_batch = batch;
  made.layout.dp = 8;
  return made;
}

// Pointwise kernels and norms become fewer and read less: faster, the products as they are.
TEST(LayoutPrograms, CompiledLayersAreFaster) {
  Asked of = asked("llama3-8b", 16);
  of.layout.zero = Sharding::kFsdp;
  of.job.software = "torchtitan";
  const LayoutPrediction eager = of.made();
  of.job.compiled = true;
  const LayoutPrediction compiled = of.made();
  EXPECT_LT(compiled.step_ms, 0.97 * eager.step_ms);
  EXPECT_GT(compiled.step_ms, 0.75 * eager.step_ms);
  EXPECT_LE(compiled.activation_bytes, 1.01 * eager.activation_bytes);
  of.job.software.clear();
  EXPECT_EQ(of.made().software, "torchtitan");
  of = asked("gpt2-xl", 16);
  of.job.compiled = true;
  of.layout = {.dp = 1, .tp = 5};
  EXPECT_NE(of.refusal().find("compiled: expected tp of 1"), std::string::npos);
}

// The host waits for nothing that a graph replays; the device's time stays.
TEST(LayoutPrograms, GraphsTakeTheHostAway) {
  Asked of = asked("qwen3-30b-a3b", 64);
  of.layout.ep = 8;
  of.job.software = "nemo";
  const double compute_ms = of.term(LayoutTerm::kCompute);
  double before = of.term(LayoutTerm::kHost);
  for (const char* scopes : {"attention", "attention+router", "attention,router,preprocess"}) {
    of.job.cuda_graphs = parse_cuda_graphs(scopes).value();
    const double host_ms = of.term(LayoutTerm::kHost);
    EXPECT_LT(host_ms, before) << scopes;
    EXPECT_NEAR(of.term(LayoutTerm::kCompute), compute_ms, 1e-6 * compute_ms);
    before = host_ms;
  }
  of.job.cuda_graphs = LayoutJob::kFullGraph;
  EXPECT_LE(of.term(LayoutTerm::kHost), before);
  EXPECT_EQ(of.made().warnings.size(), 1U);
  of.job.cuda_graphs = LayoutJob::kPreprocessGraph;
  EXPECT_EQ(of.refusal(),
            "cuda_graphs: expected router together with preprocess, found preprocess");
  of = asked("llama3-8b", 64);
  of.job.cuda_graphs = LayoutJob::kRouterGraph;
  EXPECT_EQ(of.refusal(),
            "cuda_graphs: expected none, attention or full of dense models, found router");
}

// (tp - 1) / tp of the products hide gathers and scatters.
TEST(LayoutPrograms, AsynchronousTensorParallelism) {
  Asked of = asked("llama3-8b", 16);
  of.job.software = "fsdp";
  of.layout = {.dp = 2, .tp = 4, .sequence_parallel = true};
  const double waits_ms = of.term(LayoutTerm::kTensorParallel);
  of.layout.async_tp = true;
  EXPECT_LT(of.term(LayoutTerm::kTensorParallel), 0.2 * waits_ms);
  of.layout.dispatcher = Dispatcher::kDeepEp;
  EXPECT_EQ(of.refusal(), "dispatcher: expected a model with experts, found deepep");
  of.layout.dispatcher.reset();
  of.layout.sequence_parallel = false;
  EXPECT_EQ(of.refusal(),
            "async_tp: expected tp above 1 with sequence parallelism, found tp 4 without");
}

// A token takes 8 experts from 4 of 8 groups, which are 8 nodes, so it reaches
// 4 (1 - C(96, 8) / C(128, 8)) = 3.63 nodes, not 8 ranks, and in fp8 goes there by half its bytes.
TEST(LayoutPrograms, TokensGoOncePerNode) {
  Asked of = asked("deepseek-v3", 1024);
  of.job.software = "nemo";
  of.layout = {.dp = 64, .ep = 64};
  const auto exchange_ms = [&](Dispatcher dispatcher) {
    of.layout.dispatcher = dispatcher;
    return of.term(LayoutTerm::kExpertParallel);
  };
  const double rows_ms = exchange_ms(Dispatcher::kAllToAll);
  EXPECT_NEAR(exchange_ms(Dispatcher::kDeepEp) / rows_ms, 3.63 / 8, 0.05);
  of.job.precision = LayoutJob::Precision::kFp8;
  EXPECT_NEAR(exchange_ms(Dispatcher::kDeepEp) / exchange_ms(Dispatcher::kAllToAll),
              3.63 / 8 * (1 + 0.516) / 2, 0.05);
}

// Kernels of another microbatch hide the exchange, except for the 20 SMs that DeepEP takes.
TEST(LayoutPrograms, DualPipeHidesTheExchange) {
  Asked of = asked("deepseek-v3", 2048);
  of.job.software = "nemo";
  of.job.precision = LayoutJob::Precision::kFp8;
  of.layout = {.dp = 64, .pp = 8, .ep = 64, .vp = 2, .order = PipelineOrder::kZbV};
  of.layout.overlap_experts = false;
  const double open_ms = of.term(LayoutTerm::kExpertParallel);
  of.layout.overlap_experts.reset();
  of.layout.order = PipelineOrder::kDualPipe;
  const double deepep_ms = of.term(LayoutTerm::kExpertParallel);
  EXPECT_LT(deepep_ms, 0.6 * open_ms);
  of.layout.dispatcher = Dispatcher::kHybridEp;
  EXPECT_LT(of.term(LayoutTerm::kExpertParallel), deepep_ms);
}

TEST(LayoutPrograms, WordsComeBack) {
  for (const char* words :
       {"none", "selective", "full", "op", "2", "block:4", "uniform:3",
        "core_attn+moe_act+layernorm", "mla_up_proj", "mlp+moe+shared_experts"}) {
    EXPECT_EQ(to_string(parse_recompute(words).value()), words);
  }
  for (const char* words : {"0", "1.5", "block:", "mlp+", "+mlp", "every:2", ""}) {
    EXPECT_FALSE(parse_recompute(words)) << words;
  }
  EXPECT_EQ(cuda_graph_words(parse_cuda_graphs("router,attention").value()), "attention+router");
  EXPECT_FALSE(parse_cuda_graphs("attention,moe"));
  EXPECT_EQ(to_string(parse_dispatcher("hybridep").value()), "hybridep");
}

// An empty cell says nothing.
TEST(LayoutPrograms, TablesHaveTheirColumns) {
  const auto file = test_support::scratch() / "layout-programs-table.csv";
  std::ofstream(file)
      << "model,global_batch,tp,recompute,compiled,cuda_graphs,dispatcher,async_tp\n"
         "llama3-8b,64,2,block:3,1,full,deepep,1\n"
         "llama3-8b,64,2,mlp+layernorm,,,,\n";
  auto rows = CsvFile::open(file).value();
  LayoutInputs inputs;
  inputs.precision = "bf16";
  inputs.attention = "flash";
  inputs.optimizer = "adamw";
  inputs.grad_dtype = "fp32";
  ASSERT_TRUE(rows.next());
  LayoutRowReader first(rows);
  LayoutJob job = job_of(first, inputs);
  ParallelLayout layout = row_layout(first);
  EXPECT_FALSE(first.error());
  EXPECT_TRUE(job.compiled);
  EXPECT_EQ(job.cuda_graphs, LayoutJob::kFullGraph);
  EXPECT_EQ(to_string(layout.recompute), "block:3");
  EXPECT_EQ(layout.dispatcher, Dispatcher::kDeepEp);
  EXPECT_TRUE(layout.async_tp);
  ASSERT_TRUE(rows.next());
  LayoutRowReader second(rows);
  job = job_of(second, inputs);
  layout = row_layout(second);
  EXPECT_FALSE(second.error());
  EXPECT_FALSE(job.compiled);
  EXPECT_EQ(job.cuda_graphs, 0);
  EXPECT_EQ(to_string(layout.recompute), "layernorm+mlp");
  EXPECT_FALSE(layout.dispatcher);
  EXPECT_FALSE(layout.async_tp);
}

// A search tries the named dispatchers, and takes the expert tensor parallelism that is asked for.
TEST(LayoutPrograms, SearchesTryDispatchers) {
  Asked of = asked("qwen3-30b-a3b", 64);
  LayoutSpace space{.tp = {1},
                    .pp = {1},
                    .micro_batch = {1},
                    .cp = {1},
                    .ep = {8, 16},
                    .zero = {Sharding::kZero1},
                    .recompute = {LayoutRecompute::kFull}};
  const auto usual = rank_layouts(pricer(), of.job, 32, space);
  space.dispatcher = {Dispatcher::kAllToAll, Dispatcher::kDeepEp};
  space.common.etp = 2;
  const auto both = rank_layouts(pricer(), of.job, 32, space);
  ASSERT_TRUE(usual);
  ASSERT_TRUE(both);
  EXPECT_EQ(both->considered, 2 * usual->considered);
  for (const RankedLayout& one : both->best) EXPECT_EQ(one.layout.etp, 2);
}

}  // namespace layout_programs_test
}  // namespace perfmodel
