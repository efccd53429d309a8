// A plan gives the same graph as the rewrite, member by member, and never falls back to it if it
// gives a graph.
#include "rewrite/resize/size_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/training.hpp"

namespace perfmodel {
namespace size_plan_test {

// Members of the structs of a graph; floating-point numbers are never NaN here.
auto members(std::int64_t number) { return std::tuple(number); }
auto members(const Tensor& t) {
  return std::tuple(t.id, t.storage_id, t.offset, t.numel, t.item_size, t.dtype, t.device.kind,
                    t.device.index, t.shape_begin, t.rank);
}
auto members(const Argument& a) { return std::tuple(a.kind, a.index, a.count, a.integer, a.real); }
auto members(const CommRecord& r) {
  return std::tuple(r.collective, r.sequence, r.process_group, r.group_size, r.in_splits,
                    r.out_splits);
}
auto members(const ProcessGroup& g) {
  return std::tuple(g.name, g.description, g.backend, g.ranks, g.size);
}
auto members(const Node& n) {
  return std::tuple(n.id, n.parent_id, n.parent, n.name, n.rf_id, n.fw_parent, n.seq_id, n.thread,
                    n.fw_thread, n.scope, n.is_label, n.is_structural, n.is_orphan, n.inputs_begin,
                    n.inputs_count, n.outputs_begin, n.outputs_count, n.children_begin,
                    n.children_count, n.comm, n.op_schema, n.kernel_backend, n.kernel_file,
                    n.kernel_time_us, n.kernel_time_scale, n.index_zipf_exponent);
}

template <class Pool>
void expect_equal(const Pool& a, const Pool& b, const char* name) {
  ASSERT_EQ(a.size(), b.size()) << name;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(members(a[i]) == members(b[i])) << name << " " << i;
  }
}

void expect_equal(const ExecutionGraph& a, const ExecutionGraph& b) {
  EXPECT_EQ(std::tie(a.schema, a.source, a.built, a.allow_tf32, a.process_id, a.warnings),
            std::tie(b.schema, b.source, b.built, b.allow_tf32, b.process_id, b.warnings));
  ASSERT_EQ(a.names.size(), b.names.size());
  for (NameId i = 0; i < a.names.size(); ++i) ASSERT_EQ(a.names.text(i), b.names.text(i));
  EXPECT_EQ(a.child_indices, b.child_indices);
  expect_equal(a.nodes, b.nodes, "node");
  expect_equal(a.arguments, b.arguments, "argument");
  expect_equal(a.tensors, b.tensors, "tensor");
  expect_equal(a.shape_pool, b.shape_pool, "size");
  expect_equal(a.comm_records, b.comm_records, "collective");
  expect_equal(a.process_groups, b.process_groups, "group");
}

enum class What { kBatch, kSequence };

Result<SizePlan> plan_of(What what, const ExecutionGraph& graph) {
  return what == What::kBatch ? SizePlan::batch(graph) : SizePlan::sequence(graph);
}

Result<ExecutionGraph> rewritten(What what, const ExecutionGraph& graph, std::int64_t size) {
  return what == What::kBatch ? set_batch_size(graph, {.batch = size})
                              : set_sequence_length(graph, {.length = size});
}

// Large sizes follow small ones, back and forth, each twice; 0 and, for some models, the largest
// are refused.
std::vector<std::int64_t> sizes_around(std::int64_t current) {
#ifdef PERFMODEL_SANITIZED
  return {1, current, 65536, 32, 0, 32, current};
#else
  return {1,     7,      current, 2,    65536, 1, 3,    current, std::int64_t{1} << 40,
          1000,  32,     100,     2048, 7,     0, 2048, 3,       current + 1,
          65536, current};
#endif
}

std::size_t count_of_sizes() { return sizes_around(1).size(); }

// Returns how many sizes the rewrite gives a graph for; a plan must have recorded all of them.
std::size_t expect_plan_equals_rewrite(What what, const ExecutionGraph& graph) {
  const auto plan = plan_of(what, graph);
  const auto none = rewritten(what, graph, 1);
  if (!plan) {
    EXPECT_FALSE(none);
    if (!none) {
      EXPECT_EQ(plan.error().message, none.error().message);
    }
    return 0;
  }
  std::map<std::int64_t, Result<ExecutionGraph>> rewrites;
  std::size_t given = 0;
  SizePlan::Scratch scratch;
  for (const std::int64_t size : sizes_around(plan->current())) {
    SCOPED_TRACE(size);
    auto known = rewrites.find(size);
    if (known == rewrites.end()) known = rewrites.emplace(size, rewritten(what, graph, size)).first;
    const Result<ExecutionGraph>& whole = known->second;
    const auto done = plan->apply(size, scratch);
    EXPECT_EQ(plan->recorded(size), whole.has_value());
    EXPECT_EQ(done.has_value(), whole.has_value());
    if (!whole && !done) {
      EXPECT_EQ(done.error().code, whole.error().code);
      EXPECT_EQ(done.error().message, whole.error().message);
    }
    if (whole && done) {
      ++given;
      expect_equal(scratch.graph(), *whole);
    }
  }
  return given;
}

struct Model {
  std::string name;
  std::function<Result<ExecutionGraph>()> build;
  bool has_sequence = false;  // it can be changed
};

template <class Config, class Build>
Model layers(std::string name, Result<Config> config, Build build) {
  config->layers = 2;
  return {std::move(name), [config = *config, build] { return build(config); }, true};
}

template <class Config, class Build>
Model plain(std::string name, Config config, Build build) {
  return {std::move(name), [config = std::move(config), build] { return build(config); }};
}

std::vector<Model> models() {
  std::vector<Model> all;
  for (const char* preset : {"default", "mlperf", "ddp", "dcnv2"}) {
    for (const bool batched : {true, false}) {
      DlrmConfig config = dlrm_preset(preset).value();
      config.table_batched = batched;
      if (config.cross.layers > 0) config.sparse_gradients = false;
      all.push_back(
          plain(std::string(preset) + (batched ? ", batched" : ", bags"), config, build_dlrm));
    }
  }
  for (const std::int64_t batch : {1, 2, 3}) {  // coincidences in the graph itself
    DlrmConfig config = dlrm_preset("mlperf").value();
    config.batch = batch;
    config.table_batched = false;
    all.push_back(plain(std::to_string(batch) + " samples", config, build_dlrm));
  }
  TorchrecDlrmConfig torchrec = torchrec_dlrm_preset("v100-8").value();
  torchrec.batch_per_rank = 22;
  all.push_back(plain("torchrec", torchrec, build_torchrec_dlrm));
  all.push_back(layers("gpt", gpt_preset("gpt2"), build_gpt));
  all.push_back(layers("bert", bert_preset("bert-base"), build_bert));
  all.push_back(layers("llama", llama_preset("llama-7b"), build_llama));
  LlamaConfig experts = llama_preset("mixtral-8x7b").value();
  experts.layers = 1;
  experts.sequence = 128;
  all.push_back({"experts", [experts] { return build_llama(experts); }, true});
  all.push_back({"experts, fp8",
                 [experts] {
                   return rewrite_precision(build_llama(experts).value(),
                                            {.precision = PrecisionOptions::Precision::kFp8});
                 },
                 true});
  all.push_back(layers("opt", opt_preset("opt-1.3b"), build_opt));
  T5Config t5 = t5_preset("t5-small").value();
  t5.layers = t5.decoder_layers = 2;
  all.push_back(plain("t5", t5, build_t5));
  EncoderDecoderConfig translation = transformer_preset("transformer-base").value();
  translation.layers = translation.decoder_layers = 1;
  all.push_back(plain("transformer", translation, build_transformer));
  all.push_back(plain("a3c", a3c_preset("a3c").value(), build_a3c));
  LstmConfig lstm;
  lstm.batch = 20;
  all.push_back(plain("lstm", lstm, build_lstm));
  Seq2seqConfig seq2seq;
  seq2seq.source_steps = 7;
  seq2seq.target_steps = 5;
  all.push_back(plain("seq2seq", seq2seq, build_seq2seq));
  Deepspeech2Config deepspeech2;
  deepspeech2.layers = 2;
  all.push_back(plain("deepspeech2", deepspeech2, build_deepspeech2));
  all.push_back(plain("wgan", wgan_preset("wgan32").value(), build_wgan));
  all.push_back(plain("mlp", mlp_preset("mnist").value(), build_mlp));
  all.push_back(plain("resnet18", resnet_preset("resnet18").value(), build_resnet));
  all.push_back(plain("vgg11", vgg_preset("vgg11").value(), build_vgg));
  all.push_back(plain("inception", inception_preset("inception_v3").value(), build_inception));
  all.push_back(plain("faster_rcnn", faster_rcnn_preset("faster_rcnn").value(), build_faster_rcnn));
  return all;
}

TEST(SizePlan, BatchesOfModelsAreThoseOfTheRewrite) {
  for (const Model& model : models()) {
    SCOPED_TRACE(model.name);
    const auto graph = model.build();
    ASSERT_TRUE(graph) << graph.error().message;
    const std::size_t given = expect_plan_equals_rewrite(What::kBatch, *graph);
    if (model.name == "faster_rcnn") {  // ops per image
      EXPECT_EQ(given, 0U);
    } else {
      EXPECT_GE(given + 2, count_of_sizes());
    }
  }
}

TEST(SizePlan, SequencesOfModelsAreThoseOfTheRewrite) {
  for (const Model& model : models()) {
    SCOPED_TRACE(model.name);
    const std::size_t given = expect_plan_equals_rewrite(What::kSequence, model.build().value());
    if (model.has_sequence) {
      EXPECT_GE(given + 5, count_of_sizes());
    }
  }
}

TEST(SizePlan, SamplesOfRecordingsAreThoseOfTheRewrite) {
  std::size_t given = 0;
  for (const char* name :
       {"dlrm_dot_adam", "dlrm_cat_sparse", "dlrm_dcnv2_adagrad", "mlp_fp32", "mlp_bf16",
        "encoder_fp32", "encoder_bf16", "blocks_plain", "residual_checkpointed", "shared_plain",
        "convolutions_checkpointed", "regions_plain"}) {
    SCOPED_TRACE(name);
    const auto graph = read_execution_graph(std::string(PERFMODEL_SOURCE_DIR) +
                                            "/tests/graph/recorded/" + name + ".json.gz");
    ASSERT_TRUE(graph) << graph.error().message;
    for (const What what : {What::kBatch, What::kSequence}) {
      given += expect_plan_equals_rewrite(what, *graph);
    }
  }
  EXPECT_GT(given, 5 * count_of_sizes());
}

TEST(SizePlan, RecordingsAreThoseOfTheRewrite) {
  const char* data = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (!data) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA names no folder of measurements";
  for (const char* file :
       {"traces/linear_et.json.gz", "traces/resnet18_et.json.gz",
        "traces/resnet50_ddp_et_1.1.1.json.gz", "traces/dlrm_v100_rank0of8_et.json.gz",
        "traces_cpu/resblock_sgdm.et.json.gz", "traces_cpu/bert_layer_adamw.et.json.gz",
        "traces_cpu/dlrm_sparse_sgd.et.json.gz"}) {
    SCOPED_TRACE(file);
    const auto graph = read_execution_graph(std::string(data) + "/" + file);
    ASSERT_TRUE(graph) << graph.error().message;
    for (const What what : {What::kBatch, What::kSequence}) {
      expect_plan_equals_rewrite(what, *graph);
    }
  }
}

ExecutionGraph small_dlrm() { return build_dlrm(dlrm_preset("default").value()).value(); }

ExecutionGraph small_bert() {
  BertConfig config = bert_preset("bert-base").value();
  config.layers = 1;
  config.batch = 8;
  config.sequence = 512;
  return build_bert(config).value();
}

// 8 x 512 positions are 4,096 ids: a sequence of 4,096 is neither below nor above what a pass takes
// as constant before it knows better, and the recordings are of either side.
TEST(SizePlan, WholeRewriteWhereARecordingDoesNotFit) {
  const ExecutionGraph graph = small_bert();
  const SizePlan plan = SizePlan::sequence(graph).value();
  SizePlan::Scratch scratch;
  for (const std::int64_t size : {4096, 4095, 4096, 4097, 512, 4096, 64, 4096, 1}) {
    SCOPED_TRACE(size);
    EXPECT_EQ(plan.recorded(size), size != 4096);
    ASSERT_TRUE(plan.apply(size, scratch));
    expect_equal(scratch.graph(), rewritten(What::kSequence, graph, size).value());
  }
}

TEST(SizePlan, ScratchKeepsItsGraphAfterAnError) {
  const ExecutionGraph graph = small_dlrm();
  const SizePlan plan = SizePlan::batch(graph).value();
  SizePlan::Scratch scratch;
  ASSERT_TRUE(plan.apply(100, scratch));
  const auto refused = plan.apply(0, scratch);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "expected a batch from 1 to 2^40, found 0");
  expect_equal(scratch.graph(), rewritten(What::kBatch, graph, 100).value());
}

TEST(SizePlan, PlansMayShareAScratch) {
  const SizePlan dlrm = SizePlan::batch(small_dlrm()).value();
  const SizePlan bert = SizePlan::sequence(small_bert()).value();
  SizePlan::Scratch scratch;
  for (const std::int64_t size : {64, 4096, 3}) {
    ASSERT_TRUE(dlrm.apply(size, scratch));
    expect_equal(scratch.graph(), rewritten(What::kBatch, dlrm.graph(), size).value());
    ASSERT_TRUE(bert.apply(size, scratch));
    expect_equal(scratch.graph(), rewritten(What::kSequence, bert.graph(), size).value());
  }
}

TEST(SizePlan, OutlivesItsGraphAndItself) {
  SizePlan::Scratch scratch;
  {
    const SizePlan copy = [] { return SizePlan::batch(small_dlrm()).value(); }();
    EXPECT_EQ(copy.current(), batch_size(small_dlrm()).value());
    expect_equal(copy.graph(), small_dlrm());
    ASSERT_TRUE(copy.apply(33, scratch));
  }
  expect_equal(scratch.graph(), rewritten(What::kBatch, small_dlrm(), 33).value());
  // Another plan, where the first one may have been in memory.
  const SizePlan next = SizePlan::batch(small_dlrm()).value();
  ASSERT_TRUE(next.apply(34, scratch));
  expect_equal(scratch.graph(), rewritten(What::kBatch, small_dlrm(), 34).value());
}

TEST(SizePlan, NamedSizeOrNone) {
  const ExecutionGraph graph = small_dlrm();
  const auto other = SizePlan::batch(graph, 77);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message,
            set_batch_size(graph, {.batch = 8, .current = 77}).error().message);
  const std::int64_t current = batch_size(graph).value();
  const auto named = SizePlan::batch(graph, current);
  ASSERT_TRUE(named);
  SizePlan::Scratch scratch;
  ASSERT_TRUE(named->apply(9, scratch));
  expect_equal(scratch.graph(), set_batch_size(graph, {.batch = 9, .current = current}).value());
  EXPECT_FALSE(SizePlan::sequence(build_mlp(mlp_preset("mnist").value()).value()));
}

TEST(SizePlan, ThreadsShareOnePlan) {
  const SizePlan plan = SizePlan::batch(small_dlrm()).value();
  constexpr std::array<std::int64_t, 6> kSizes = {1, 512, 1000, 7, 65536, 96};
  std::vector<ExecutionGraph> expected;
  for (const std::int64_t size : kSizes) {
    expected.push_back(rewritten(What::kBatch, plan.graph(), size).value());
  }
  const auto ask = [&](std::size_t step) {
    SizePlan::Scratch scratch;
    for (std::size_t i = 0; i < 600; ++i) {
      const std::size_t at = i * step % kSizes.size();
      ASSERT_TRUE(plan.apply(kSizes[at], scratch));
      ASSERT_EQ(scratch.graph().shape_pool, expected[at].shape_pool);
      if (i % 100 == 0) expect_equal(scratch.graph(), expected[at]);
    }
  };
  std::thread one(ask, 1), other(ask, 5);
  one.join();
  other.join();
}

}  // namespace size_plan_test
}  // namespace perfmodel
