#include <gtest/gtest.h>

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "../scratch.hpp"
#include "graph_comparison.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"

namespace perfmodel {
namespace build_transformer_test {

TransformerConfig recorded_layer() {
  TransformerConfig config;
  config.batch = 4;
  config.sequence = 64;
  config.layers = 1;
  config.hidden = 128;
  config.heads = 4;
  config.feed_forward = 512;
  config.vocabulary = 1000;
  config.training.pytorch = {.major = 1, .minor = 13, .device = {.kind = Device::Kind::kCpu}};
  config.training.pytorch.mkl = false;
  config.training.resident_input = true;
  config.training.regions = TrainingOptions::Regions::kLossInForward;
  config.training.step_label.clear();
  return config;
}

TEST(BuiltTorchEncoder, EqualsTheRecordingOpByOp) {
  const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (folder == nullptr) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const auto recorded = read_execution_graph(std::filesystem::path(folder) /
                                             "traces_cpu/bert_layer_adamw.et.json.gz");
  ASSERT_TRUE(recorded) << to_string(recorded.error());
  const auto built = build_torch_encoder(recorded_layer());
  ASSERT_TRUE(built) << to_string(built.error());
  ComparisonOptions options;
  options.leave_out = [](const ExecutionGraph& graph, const Node& node) {
    return graph.name(node).starts_with("Optimizer.step#");  // compared by its own test
  };
  const GraphComparison comparison = compare_graphs(*recorded, *built, options);
  EXPECT_TRUE(comparison.same()) << comparison;
  EXPECT_GT(comparison.equal, 1000U);
}

template <class Config>
Config without_optimizer(Config config) {
  config.training.optimizer = TrainingOptions::Optimizer::kNoOptimizer;
  return config;
}

// A tiny batch: parameters do not depend on it.
template <class Config>
Config small_batch(Config config) {
  config = without_optimizer(config);
  config.batch = 1;
  config.sequence = 8;
  return config;
}

std::int64_t parameters(const Result<ExecutionGraph>& graph) {
  EXPECT_TRUE(graph) << to_string(graph.error());
  return graph ? model_size(*graph).parameters : 0;
}

TEST(TransformerParameters, Bert) {
  // Embeddings (V + P + 2 + 2) H; a layer 4 (H^2 + H) + 2 H F + F + H + 4 H; pooler H^2 + H.
  const auto model = [](std::int64_t layers, std::int64_t h, std::int64_t f) {
    return (30522 + 512 + 2 + 2) * h + layers * (4 * (h * h + h) + 2 * h * f + f + h + 4 * h);
  };
  struct Case {
    const char* preset;
    BertConfig::Head head;
    std::int64_t expected;
  };
  const std::int64_t base = model(12, 768, 3072), large = model(24, 1024, 4096);
  const auto transform = [](std::int64_t h) { return h * h + h + 2 * h + 30522; };
  using Head = BertConfig::Head;
  const std::vector<Case> cases = {
      {"bert-base", Head::kPooler, 109482240},
      {"bert-base", Head::kMaskedLm, 109514298},
      {"bert-large", Head::kPooler, 335141888},
      {"bert-large", Head::kMaskedLm, 335174458},
      {"bert-large", Head::kPreTraining, 336226108},
      {"bert-base", Head::kPooler, base + 768 * 768 + 768},
      {"bert-large", Head::kCausalLm, large + transform(1024)},
      {"bert-large", Head::kClassifier, large + 1024 * 1024 + 1024 + 2 * 1024 + 2},
  };
  for (const Case& each : cases) {
    auto config = small_batch(*bert_preset(each.preset));
    config.head = each.head;
    const auto graph = build_bert(config);
    // Pretraining and MLM leave out nothing; a language model alone does not train the pooler.
    EXPECT_EQ(parameters(graph), each.expected) << each.preset;
  }
}

TEST(TransformerParameters, Gpt) {
  const std::map<std::string, std::int64_t> expected = {{"gpt2", 124439808},
                                                        {"gpt2-medium", 354823168},
                                                        {"gpt2-large", 774030080},
                                                        {"gpt2-xl", 1557611200}};
  for (const auto& [name, count] : expected) {
    EXPECT_EQ(parameters(build_gpt(small_batch(*gpt_preset(name)))), count) << name;
  }
  // (V + P) H + L (12 H^2 + 13 H) + 2 H
  for (const std::string_view name : gpt_presets()) {
    const GptConfig config = *gpt_preset(name);
    const std::int64_t h = config.hidden;
    EXPECT_EQ(parameters(build_gpt(small_batch(config))),
              (50257 + config.positions) * h + config.layers * (12 * h * h + 13 * h) + 2 * h)
        << name;
  }
}

TEST(TransformerParameters, TheTableOfPositionsGrowsWithTheSequence) {
  GptConfig config = small_batch(*gpt_preset("gpt2"));
  const std::int64_t parameters_of_preset = parameters(build_gpt(config));
  set_sequence(config, 512);
  EXPECT_EQ(config.sequence, 512);
  EXPECT_EQ(config.positions, 1024);
  set_sequence(config, 4096);
  EXPECT_EQ(config.positions, 4096);
  EXPECT_EQ(parameters(build_gpt(config)), parameters_of_preset + (4096 - 1024) * 768);
  // The same by name.
  const auto built = build_model({.family = "gpt", .batch = config.batch, .sequence = 4096});
  EXPECT_EQ(parameters(built), parameters_of_preset + (4096 - 1024) * 768);
}

// Ops of one name, children of other ops not counted.
std::size_t count_ops(const ExecutionGraph& graph, std::string_view name) {
  const auto named = [&](const Node& node) { return graph.name(node) == name; };
  return static_cast<std::size_t>(std::ranges::count_if(graph.nodes, named));
}

TEST(BuiltTransformers, GptsActivationIsOneOpOrEight) {
  using Activation = GptConfig::Activation;
  GptConfig config = without_optimizer(*gpt_preset("gpt2"));
  config.layers = 2;
  const ExecutionGraph eight = *build_gpt(config);
  EXPECT_EQ(count_ops(eight, "aten::gelu"), 0U);
  EXPECT_EQ(count_ops(eight, "aten::tanh"), 2U);
  EXPECT_EQ(count_ops(eight, "aten::pow"), 2U + 2U);  // forward and in its backward function
  const std::pair<Activation, const char*> kinds[] = {{Activation::kGelu, "aten::gelu"},
                                                      {Activation::kGeluTanh, "aten::gelu"},
                                                      {Activation::kRelu, "aten::relu"},
                                                      {Activation::kSilu, "aten::silu"}};
  for (const auto& [activation, op] : kinds) {
    config.activation = activation;
    const ExecutionGraph one = *build_gpt(config);
    EXPECT_EQ(count_ops(one, op), 2U) << op;
    EXPECT_EQ(count_ops(one, "aten::tanh"), 0U) << op;
    EXPECT_EQ(model_size(one).matrix_flop, model_size(eight).matrix_flop) << op;
    EXPECT_EQ(model_size(one).parameters, model_size(eight).parameters) << op;
    for (const Node& node : one.nodes) {
      if (one.name(node) != "aten::gelu") continue;
      const auto inputs = one.inputs(node);
      EXPECT_EQ(one.names.text(inputs[1].index),
                activation == Activation::kGeluTanh ? "tanh" : "none");
    }
  }
}

TEST(TransformerParameters, Opt) {
  EXPECT_EQ(parameters(build_opt(small_batch(*opt_preset("opt-125m")))), 125239296);
  EXPECT_EQ(parameters(build_opt(small_batch(*opt_preset("opt-1.3b")))), 1315758080);
  EXPECT_EQ(parameters(build_opt(small_batch(*opt_preset("opt-6.7b")))), 6658473984);
}

TEST(TransformerParameters, Llama) {
  EXPECT_EQ(parameters(build_llama(small_batch(*llama_preset("llama-7b")))), 6738415616);
  EXPECT_EQ(parameters(build_llama(small_batch(*llama_preset("llama2-13b")))), 13015864320);
  EXPECT_EQ(parameters(build_llama(small_batch(*llama_preset("llama3-8b")))), 8030261248);
  EXPECT_EQ(parameters(build_llama(small_batch(*llama_preset("tinyllama-1.1b")))), 1100048384);
}

TEST(TransformerParameters, T5) {
  for (const auto& [name, count] :
       std::map<std::string, std::int64_t>{{"t5-small", 60506624},
                                           {"t5-base", 222903552},
                                           {"t5-large", 737668096},
                                           {"flan-t5-base", 247577856}}) {
    T5Config config = small_batch(*t5_preset(name));
    config.target_sequence = 4;
    EXPECT_EQ(parameters(build_t5(config)), count) << name;
  }
  // A sparse layer has a router and one feed-forward layer per expert.
  T5Config config = small_batch(*t5_preset("t5-small"));
  const std::int64_t dense = parameters(build_t5(config));
  config.experts = 4;
  EXPECT_EQ(parameters(build_t5(config)) - dense, 6 * (4 * 512 + 3 * 2 * 512 * 2048));
}

// Products of forward and backward pass: 6 FLOP per weight and token, where the output layer counts
// as weights and the lookups do not; besides, each layer multiplies Q K^T and P V, which is 4 S H
// per token forward and twice that backward.
template <class Config>
double expected_flop(const Config& config, double weights) {
  const double tokens = static_cast<double>(config.batch * config.sequence);
  const double attention = 12.0 * static_cast<double>(config.layers) * tokens *
                           static_cast<double>(config.sequence * config.hidden);
  return 6 * weights * tokens + attention;
}

TEST(TransformerFlop, GptFollowsTheRule) {
  for (const char* name : {"gpt2-xl", "gpt3-2.7b", "gpt3-175b"}) {
    const GptConfig config = without_optimizer(*gpt_preset(name));
    const double h = static_cast<double>(config.hidden);
    const double layers = static_cast<double>(config.layers) * 12 * h * h;
    const double flop = model_size(*build_gpt(config)).matrix_flop;
    // All products; exactly.
    EXPECT_DOUBLE_EQ(flop / expected_flop(config, layers + 50257 * h), 1) << name;
    // 6 N per token as it is used, N without position embeddings.
    const double tokens = static_cast<double>(config.batch * config.sequence);
    const double attention = 12.0 * static_cast<double>(config.layers) * tokens *
                             static_cast<double>(config.sequence) * h;
    const double all = layers + static_cast<double>(config.layers) * 13 * h + 2 * h + 50257 * h;
    EXPECT_NEAR((flop - attention) / (6 * all * tokens), 1, 0.02) << name;
  }
}

TEST(TransformerFlop, FusedAttentionCountsAsItsProducts) {
  GptConfig config = without_optimizer(*gpt_preset("gpt2"));
  const double eager = model_size(*build_gpt(config)).matrix_flop;
  config.attention = TransformerConfig::Attention::kEfficient;
  const double efficient = model_size(*build_gpt(config)).matrix_flop;
  config.attention = TransformerConfig::Attention::kFlash;
  const double flash = model_size(*build_gpt(config)).matrix_flop;
  EXPECT_DOUBLE_EQ(efficient, flash);
  // Forward 2 products, backward 4 and Q K^T once more; a causal kernel does half of each.
  const double all = 12.0 * 12 * 1024 * 1024 * 768;
  EXPECT_DOUBLE_EQ(eager - efficient, all - (4.0 + 10.0) / 2 * 12 * 1024 * 1024 * 768);
}

// NeuSight's list of the kernels of each model: which matrix products run how often.
struct Product {
  bool batched = false;
  std::int64_t b = 1, m = 0, n = 0, k = 0;
  friend auto operator<=>(const Product&, const Product&) = default;
};
using Products = std::map<Product, std::int64_t>;

std::ostream& operator<<(std::ostream& out, const Product& product) {
  return out << (product.batched ? "bmm " : "mm ") << product.b << " x " << product.m << " x "
             << product.n << " x " << product.k;
}

std::string differences(const Products& expected, const Products& found) {
  std::ostringstream text;
  Products all = expected;
  all.insert(found.begin(), found.end());
  for (const auto& [product, unused] : all) {
    const auto a = expected.find(product), b = found.find(product);
    const std::int64_t times_a = a == expected.end() ? 0 : a->second;
    const std::int64_t times_b = b == found.end() ? 0 : b->second;
    if (times_a != times_b) text << product << ": " << times_a << " / " << times_b << '\n';
  }
  return text.str();
}

std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> made;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');) made.push_back(cell);
  return made;
}

std::map<std::string, Products> read_neusight(const std::filesystem::path& file) {
  std::map<std::string, Products> graphs;
  gzFile in = gzopen(file.c_str(), "rb");
  std::array<char, 4096> buffer;
  while (in != nullptr && gzgets(in, buffer.data(), buffer.size()) != nullptr) {
    const auto row = cells(buffer.data());
    if (row.size() < 12 || (row[7] != "linear" && row[7] != "bmm") || row[8].empty()) continue;
    const Product product = {row[7] == "bmm", std::stoll(row[8]), std::stoll(row[9]),
                             std::stoll(row[10]), std::stoll(row[11])};
    graphs[row[0]][product] += std::stoll(row[6]);
  }
  if (in != nullptr) gzclose(in);
  return graphs;
}

Products products_of(const ExecutionGraph& graph) {
  Products products;
  for (const Node& node : graph.nodes) {
    const std::string_view name = graph.name(node);
    const bool batched = name == "aten::bmm", added = name == "aten::addmm";
    if (!batched && !added && name != "aten::mm") continue;
    const auto left = graph.shape(graph.tensors[graph.inputs(node)[added ? 1 : 0].index]);
    const auto out = graph.shape(graph.tensors[graph.outputs(node)[0].index]);
    const Product product = {batched, batched ? out[0] : 1, out[out.size() - 2], out.back(),
                             left.back()};
    ++products[product];
  }
  return products;
}

class NeuSight : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
    if (folder == nullptr) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
    graphs_ = read_neusight(std::filesystem::path(folder) / "neusight/opgraphs.csv.gz");
    ASSERT_FALSE(graphs_.empty());
  }

  template <class Config>
  static Config configured(Config config, bool training, std::int64_t sequence,
                           std::int64_t batch) {
    config = without_optimizer(config);
    if (!training) config.training.phase = TrainingOptions::Phase::kForward;
    config.sequence = sequence;
    config.batch = batch;
    return config;
  }

  void expect(const std::string& name, const Products& built) {
    ASSERT_TRUE(graphs_.contains(name));
    EXPECT_EQ(differences(graphs_[name], built), "") << name;
  }

  std::map<std::string, Products> graphs_;
};

// The weight gradient of a Conv1D is x^T times the gradient; NeuSight takes it for nn.Linear's.
Products as_linear(Products products, const GptConfig& config) {
  Products made;
  for (const auto& [product, count] : products) {
    Product turned = product;
    const bool of_weight = !product.batched && product.k == config.batch * config.sequence &&
                           product.m != config.vocabulary;
    if (of_weight && product.m != product.k) std::swap(turned.m, turned.n);
    made[turned] += count;
  }
  return made;
}

TEST_F(NeuSight, Bert) {
  for (const std::int64_t batch : {8, 16}) {
    auto config = configured(*bert_preset("bert-large"), false, 512, batch);
    config.head = BertConfig::Head::kClassifier;
    expect("bert_large-inf-512-" + std::to_string(batch), products_of(*build_bert(config)));
  }
  for (const std::int64_t batch : {2, 8}) {
    auto config = configured(*bert_preset("bert-large"), true, 512, batch);
    config.head = BertConfig::Head::kPreTraining;
    expect("bert_large-train-512-" + std::to_string(batch), products_of(*build_bert(config)));
  }
}

TEST_F(NeuSight, Gpt) {
  struct Case {
    std::string graph, preset;
    bool training;
    std::int64_t sequence, batch;
  };
  const std::vector<Case> cases = {{"gpt2_large-inf-1024-4", "gpt2-large", false, 1024, 4},
                                   {"gpt2_large-inf-1024-8", "gpt2-large", false, 1024, 8},
                                   {"gpt2_large-train-1024-1", "gpt2-large", true, 1024, 1},
                                   {"gpt2_large-train-1024-4", "gpt2-large", true, 1024, 4},
                                   {"gpt3_xl-inf-2048-2", "gpt3-xl", false, 2048, 2},
                                   {"gpt3_xl-inf-2048-8", "gpt3-xl", false, 2048, 8},
                                   {"gpt3_xl-train-2048-1", "gpt3-xl", true, 2048, 1},
                                   {"gpt3_xl-train-2048-2", "gpt3-xl", true, 2048, 2},
                                   {"gpt3_27-inf-2048-2", "gpt3-2.7b", false, 2048, 2},
                                   {"gpt3_27-inf-2048-8", "gpt3-2.7b", false, 2048, 8},
                                   {"gpt3_27-train-2048-1", "gpt3-2.7b", true, 2048, 1},
                                   {"gpt3_27-train-2048-2", "gpt3-2.7b", true, 2048, 2}};
  for (const Case& each : cases) {
    const auto config =
        configured(*gpt_preset(each.preset), each.training, each.sequence, each.batch);
    expect(each.graph, as_linear(products_of(*build_gpt(config)), config));
  }
}

TEST_F(NeuSight, Opt) {
  for (const std::int64_t batch : {2, 8}) {
    expect("opt_13-inf-2048-" + std::to_string(batch),
           products_of(*build_opt(configured(*opt_preset("opt-1.3b"), false, 2048, batch))));
  }
  for (const std::int64_t batch : {1, 2}) {
    expect("opt_13-train-2048-" + std::to_string(batch),
           products_of(*build_opt(configured(*opt_preset("opt-1.3b"), true, 2048, batch))));
  }
}

// NeuSight's tracer took a few of the batched products of attention (sides 512 and 128) for linear
// layers of all rows: the same work, written down as 1 x (batch * rows), and the gradient of what
// it took for a weight the other way round.
Products batched_again(const Products& products, std::int64_t batch) {
  const auto of_head = [](std::int64_t a, std::int64_t b) {
    return std::min(a, b) == 128 && std::max(a, b) == 512;
  };
  Products made;
  for (const auto& [product, count] : products) {
    Product turned = product;
    if (!product.batched && product.m == batch * 512 && of_head(product.n, product.k)) {
      turned = {true, batch, 512, product.n, product.k};
    } else if (!product.batched && product.k == batch * 512 && of_head(product.m, product.n)) {
      turned = {true, batch, product.n, product.m, 512};
    }
    made[turned] += count;
  }
  return made;
}

TEST_F(NeuSight, Switch) {
  for (const bool training : {false, true}) {
    for (const std::int64_t batch : {1, 2}) {
      const auto config = configured(*t5_preset("switchxl4"), training, 512, batch);
      const std::string name = std::string("switchxl4-") + (training ? "train" : "inf") + "-512-" +
                               std::to_string(batch);
      graphs_[name] = batched_again(graphs_[name], batch * 32);
      expect(name, products_of(*build_t5(config)));
    }
  }
}

TEST(BuiltTransformers, WrittenAndReadBackAreTheSame) {
  GptConfig gpt = *gpt_preset("gpt2");
  gpt.layers = 2;
  LlamaConfig llama = *llama_preset("llama-small");
  llama.layers = 1;
  llama.kv_heads = 4;
  T5Config t5 = *t5_preset("t5-small");
  t5.experts = 2;
  BertConfig bert = *bert_preset("bert-base");
  bert.head = BertConfig::Head::kPreTraining;
  OptConfig opt = *opt_preset("opt-125m");
  for (auto attention :
       {TransformerConfig::Attention::kEager, TransformerConfig::Attention::kEfficient}) {
    gpt.attention = llama.attention = bert.attention = opt.attention = attention;
    for (const auto& built :
         {build_gpt(gpt), build_llama(llama), build_bert(bert), build_opt(opt), build_t5(t5)}) {
      ASSERT_TRUE(built) << to_string(built.error());
      const std::string file = test_support::scratch_file("built_transformer.json");
      ASSERT_TRUE(write_execution_graph(*built, file, {.generator = "test"}));
      const auto read = read_execution_graph(file);
      ASSERT_TRUE(read) << to_string(read.error());
      const GraphComparison comparison = compare_graphs(*built, *read);
      EXPECT_TRUE(comparison.same()) << comparison;
    }
  }
}

// Every backward function names a forward op by its number.
TEST(BuiltTransformers, BackwardFunctionsHavePartners) {
  const auto graph = build_t5(without_optimizer(*t5_preset("t5-small")));
  ASSERT_TRUE(graph);
  const auto partners = forward_partners(*graph);
  for (std::size_t i = 0; i < graph->nodes.size(); ++i) {
    const Node& node = graph->nodes[i];
    if (node.scope == Scope::kBackward && node.seq_id >= 0) {
      EXPECT_GE(partners[i], 0) << graph->name(node) << " " << node.seq_id;
    }
  }
}

template <class Config, class Build>
void expect_refused(Config config, Build build, const std::string& message) {
  const auto graph = build(config);
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().message, message);
}

TEST(BuiltTransformers, ImpossibleSizesAreRefused) {
  BertConfig bert = *bert_preset("bert-base");
  bert.sequence = 513;
  expect_refused(bert, build_bert, "sequence: expected at most the 512 positions, found 513");
  bert = *bert_preset("bert-base");
  bert.heads = 7;
  expect_refused(bert, build_bert, "hidden: expected a multiple of the 7 heads, found 768");
  GptConfig gpt = *gpt_preset("gpt2");
  gpt.batch = 0;
  expect_refused(gpt, build_gpt, "batch: expected at least 1, found 0");
  gpt = *gpt_preset("gpt2");
  gpt.batch = std::int64_t{1} << 50;
  expect_refused(gpt, build_gpt, "sizes: expected tensors of less than 2^60 elements, found more");
  gpt = *gpt_preset("gpt2");
  gpt.sequence = 1025;  // without set_sequence()
  expect_refused(gpt, build_gpt, "sequence: expected at most the 1024 positions, found 1025");
  gpt = *gpt_preset("gpt2");
  gpt.positions = std::int64_t{1} << 31;
  EXPECT_FALSE(build_gpt(gpt));
  gpt = *gpt_preset("gpt2");
  gpt.dropout = 1;
  expect_refused(gpt, build_gpt, "dropout: expected at least 0 and less than 1, found 1");
  LlamaConfig llama = *llama_preset("llama3-8b");
  llama.kv_heads = 5;
  expect_refused(llama, build_llama,
                 "heads: expected a multiple of the 5 heads of keys and values, found 32");
  T5Config t5 = *t5_preset("t5-small");
  t5.decoder_layers = 0;
  expect_refused(t5, build_t5, "decoder layers: expected at least 1, found 0");
  t5 = *t5_preset("t5-small");
  t5.attention = TransformerConfig::Attention::kFlash;
  EXPECT_FALSE(build_t5(t5));
}

TEST(BuiltTransformers, UnknownPresetsListTheKnownOnes) {
  EXPECT_EQ(bert_preset("bert-larg").error().message,
            "expected a BERT preset (bert-base, bert-large), found \"bert-larg\"");
  EXPECT_EQ(opt_preset("opt").error().code, ErrorCode::kUnknownName);
  EXPECT_EQ(llama_preset("llama").error().code, ErrorCode::kUnknownName);
  EXPECT_NE(gpt_preset("gpt4").error().message.find("gpt3-175b"), std::string::npos);
  EXPECT_NE(t5_preset("t5").error().message.find("t5-base"), std::string::npos);
}

}  // namespace build_transformer_test
}  // namespace perfmodel
