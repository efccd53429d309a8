#include "perfmodel/graph/rewrites/training.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "graph_comparison.hpp"
#include "ops/catalogue.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"
#include "perfmodel/predictors/detail/op_rules.hpp"
#include "perfmodel/predictors/gpu.hpp"

namespace perfmodel {
namespace rewrite_precision_test {

using Precision = PrecisionOptions::Precision;

ExecutionGraph recorded(const std::string& name) {
  auto graph = read_execution_graph(std::string(PERFMODEL_SOURCE_DIR "/tests/graph/recorded/") +
                                    name + ".json.gz");
  if (!graph) {
    ADD_FAILURE() << to_string(graph.error());
    return {};
  }
  return std::move(*graph);
}

ExecutionGraph rewritten(const ExecutionGraph& graph, Precision precision,
                         bool grad_scaler = false) {
  auto made = rewrite_precision(graph, {.precision = precision, .grad_scaler = grad_scaler});
  if (!made) {
    ADD_FAILURE() << to_string(made.error());
    return {};
  }
  return std::move(*made);
}

std::string refusal(const ExecutionGraph& graph, Precision precision, bool grad_scaler = false) {
  const auto made = rewrite_precision(graph, {.precision = precision, .grad_scaler = grad_scaler});
  return made ? "" : made.error().message;
}

// Bottom 4-6-2, two tables of dim 2, top 5-1, batch 8.
ExecutionGraph small_dlrm() {
  DlrmConfig config;
  config.bottom_mlp = {4, 6, 2};
  config.top_mlp = {5, 1};
  config.tables = {{.num_rows = 100, .dim = 2, .pooling_factor = 3},
                   {.num_rows = 7, .dim = 2, .pooling_factor = 1}};
  config.batch = 8;
  return *build_dlrm(config);
}

bool by_profiler(const ExecutionGraph& graph, const Node& node) {
  return graph.name(node).starts_with("profiler::");
}

std::size_t count(const ExecutionGraph& graph, std::string_view name) {
  std::size_t found = 0;
  for (const Node& node : graph.nodes) found += graph.name(node) == name;
  return found;
}

const Node* first(const ExecutionGraph& graph, std::string_view name) {
  for (const Node& node : graph.nodes) {
    if (graph.name(node) == name) return &node;
  }
  return nullptr;
}

DType input_type(const ExecutionGraph& graph, const Node& node, std::size_t i = 0) {
  return graph.tensors[graph.inputs(node)[i].index].dtype;
}

TEST(RewritePrecision, AutocastOfAnMlpIsTheRecordedOne) {
  const auto comparison =
      compare_graphs(recorded("mlp_bf16"), rewritten(recorded("mlp_fp32"), Precision::kBf16),
                     {.leave_out = by_profiler});
  EXPECT_TRUE(comparison.same()) << comparison;
  EXPECT_GT(comparison.equal, 200U);
}

// Kernels of CPUs convert one operand of a mixed sum through ops that the observer sees, which the
// rewrite does not write (kernels of GPUs convert on the way); strides of a cast transposed tensor
// are not kept by ExecutionGraph.
TEST(RewritePrecision, AutocastOfAnEncoderIsTheRecordedOneUpToMixedSums) {
  const auto leave_out = [](const ExecutionGraph& graph, const Node& node) {
    const bool in_sum =
        node.parent >= 0 &&
        graph.name(graph.nodes[static_cast<std::size_t>(node.parent)]) == "aten::add" &&
        graph.name(node) == "aten::to";
    return by_profiler(graph, node) || in_sum;
  };
  const auto comparison = compare_graphs(recorded("encoder_bf16"),
                                         rewritten(recorded("encoder_fp32"), Precision::kBf16),
                                         {.scalars = false, .leave_out = leave_out});
  EXPECT_TRUE(comparison.same()) << comparison;
  EXPECT_GT(comparison.equal, 1000U);
}

TEST(RewritePrecision, ProductsAreHalfAndGradientsOfParametersAreNot) {
  const ExecutionGraph before = small_dlrm();
  for (const auto& [precision, type] :
       {std::pair{Precision::kFp16, DType::kFloat16}, {Precision::kBf16, DType::kBFloat16}}) {
    const ExecutionGraph graph = rewritten(before, precision);
    std::size_t products = 0;
    for (const Node& node : graph.nodes) {
      const std::string_view name = graph.name(node);
      if (name == "aten::addmm" || name == "aten::mm" ||
          (name == "aten::bmm" && node.children_count == 0)) {
        for_each_tensor(graph, graph.inputs(node),
                        [&, type = type](const Tensor& t) { EXPECT_EQ(t.dtype, type) << node.id; });
        ++products;
      }
      if (name == "torch::autograd::AccumulateGrad") {
        EXPECT_EQ(input_type(graph, node), DType::kFloat32) << node.id;
      }
    }
    // Four layers: addmm and two mm each, the first has no gradient of its input; three bmm.
    EXPECT_EQ(products, 4 + 7 + 3U);
    // Weights and biases of four layers, both operands of bmm, the loss' input. The result of cat
    // for the top MLP is half already; autograd does not see the dense features.
    EXPECT_EQ(count(graph, "ToCopyBackward0"), 8 + 2 + 1U);
  }
}

// cuDNN's and PyTorch's batch norms take half images with fp32 weights and give half images back,
// whose gradients are half, too; their statistics stay in fp32.
TEST(RewritePrecision, BatchNormsKeepTheTypeOfTheirImages) {
  ResnetConfig config = *resnet_preset("resnet18");
  config.batch = 2;
  const ExecutionGraph made = rewritten(*build_resnet(config), Precision::kFp16);
  int norms = 0, gradients = 0;
  const auto type = [&](std::span<const Argument> arguments, std::size_t i) {
    return made.tensors[arguments[i].index].dtype;
  };
  for (const Node& node : made.nodes) {
    const std::string_view name = made.name(node);
    if (name == "aten::cudnn_batch_norm") {
      ++norms;
      EXPECT_EQ(type(made.inputs(node), 1), DType::kFloat32);
      EXPECT_EQ(type(made.outputs(node), 0), DType::kFloat16);
      EXPECT_EQ(type(made.outputs(node), 1), DType::kFloat32);
    } else if (name == "aten::cudnn_batch_norm_backward") {
      ++gradients;
      EXPECT_EQ(type(made.inputs(node), 1), DType::kFloat16);
      EXPECT_EQ(type(made.outputs(node), 0), DType::kFloat16);
      EXPECT_EQ(type(made.outputs(node), 1), DType::kFloat32);
    } else if (name == "aten::relu_" || name == "aten::max_pool2d") {
      EXPECT_EQ(type(made.outputs(node), 0), DType::kFloat16) << name;
    }
  }
  EXPECT_EQ(norms, 20);
  EXPECT_EQ(gradients, 20);
}

// cuDNN takes no images in bf16: PyTorch's own kernels do, as the backward pass knows.
TEST(RewritePrecision, BatchNormsInBf16RunInPyTorchsKernels) {
  ResnetConfig config = *resnet_preset("resnet18");
  config.batch = 2;
  const ExecutionGraph source = *build_resnet(config);
  PrecisionOptions master{.precision = Precision::kBf16, .master_weights = true};
  for (const ExecutionGraph& made :
       {rewritten(source, Precision::kBf16), rewrite_precision(source, master).value()}) {
    for (const char* name : {"aten::native_batch_norm", "aten::native_batch_norm_backward",
                             "NativeBatchNormBackward0", "aten::_batch_norm_impl_index"}) {
      EXPECT_EQ(count(made, name), 20U) << name;
    }
    for (const Node& node : made.nodes) {
      EXPECT_FALSE(made.name(node).starts_with("aten::cudnn_batch_norm"));
      if (made.name(node) == "aten::_batch_norm_impl_index") {
        EXPECT_EQ(made.outputs(node)[4].integer, 0);  // PyTorch's own
      }
      if (made.name(node) != "aten::native_batch_norm_backward") continue;
      const Tensor& gradient = made.tensors[made.inputs(node)[0].index];
      const Tensor& image = made.tensors[made.inputs(node)[1].index];
      EXPECT_TRUE(std::ranges::equal(made.shape(gradient), made.shape(image)));
      EXPECT_EQ(made.outputs(node).size(), 3U);
    }
  }
  EXPECT_EQ(count(rewritten(source, Precision::kFp16), "aten::native_batch_norm"), 0U);
}

// Lists of PyTorch 2 for GPUs: aten/src/ATen/autocast_mode.h.
TEST(RewritePrecision, OpsAreOnPyTorchsListsOfAutocast) {
  using enum AutocastPolicy;
  const std::map<AutocastPolicy, std::string> lists = {
      {kLower,
       "_convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d "
       "conv_transpose3d convolution prelu addmm addmv addr matmul einsum mv linalg_vecdot linear "
       "mm addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell "
       "_thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell "
       "_scaled_dot_product_flash_attention scaled_dot_product_attention"},
      {kFp32,
       "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow "
       "softplus layer_norm group_norm frobenius_norm nuclear_norm cosine_similarity "
       "poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div "
       "l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss "
       "soft_margin_loss triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits "
       "dist pdist cdist renorm logsumexp"},
      {kFp32Type, "prod softmax log_softmax cumprod cumsum sum"},
      {kPromote,
       "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot "
       "scatter_add"},
      {kBanned, "binary_cross_entropy"},
      {kKeep,
       "batch_norm cudnn_batch_norm native_batch_norm relu max_pool2d adaptive_avg_pool2d add mul "
       "cat dropout gelu silu sigmoid tanh embedding mean"}};
  for (const auto& [policy, names] : lists) {
    std::istringstream words(names);
    for (std::string name; words >> name;) {
      EXPECT_EQ(autocast_policy("aten::" + name, true), policy) << name;
    }
  }
}

TEST(RewritePrecision, SizeOfTheModelStays) {
  const ExecutionGraph before = small_dlrm();
  const ModelSize was = model_size(before);
  const ModelSize is = model_size(rewritten(before, Precision::kBf16));
  EXPECT_EQ(is.parameters, was.parameters);
  EXPECT_EQ(is.matrix_flop, was.matrix_flop);
}

TEST(RewritePrecision, SequenceNumbersAreUniqueAndRunBackwards) {
  const ExecutionGraph graph = rewritten(small_dlrm(), Precision::kBf16);
  const auto partners = forward_partners(graph);
  std::set<std::int64_t> seen;
  std::int64_t last = 1 << 20;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.scope != Scope::kBackward || node.seq_id < 0) continue;
    EXPECT_TRUE(seen.insert(node.seq_id).second) << node.seq_id;
    EXPECT_LT(node.seq_id, last);
    last = node.seq_id;
    ASSERT_GE(partners[i], 0) << graph.name(node);
    if (graph.name(node) == "ToCopyBackward0") {
      EXPECT_EQ(graph.name(graph.nodes[static_cast<std::size_t>(partners[i])]), "aten::_to_copy");
    }
  }
  EXPECT_EQ(*seen.begin(), 0);
}

TEST(RewritePrecision, LookupsKeepTheirType) {
  const ExecutionGraph graph = rewritten(small_dlrm(), Precision::kFp16);
  const Node* lookup = first(graph, "fbgemm::split_embedding_codegen_lookup_sgd_function");
  ASSERT_NE(lookup, nullptr);
  EXPECT_EQ(graph.tensors[graph.outputs(*lookup)[0].index].dtype, DType::kFloat32);
  const Node* cat = first(graph, "aten::cat");  // half from the bottom MLP, fp32 from the lookup
  EXPECT_EQ(graph.tensors[graph.outputs(*cat)[0].index].dtype, DType::kFloat32);
}

TEST(RewritePrecision, Fp32IsTheSameFile) {
  const ExecutionGraph graph = small_dlrm();
  EXPECT_EQ(execution_graph_json(rewritten(graph, Precision::kFp32)), execution_graph_json(graph));
}

TEST(RewritePrecision, Tf32IsAKeyOfTheFileAndGoesAway) {
  const ExecutionGraph graph = small_dlrm(), tf32 = rewritten(graph, Precision::kTf32);
  const std::string text = execution_graph_json(tf32);
  EXPECT_NE(text.find("\"allow_tf32\": true"), std::string::npos);
  EXPECT_EQ(execution_graph_json(graph).find("allow_tf32"), std::string::npos);
  EXPECT_EQ(execution_graph_json(rewritten(tf32, Precision::kFp32)), execution_graph_json(graph));
}

TEST(RewritePrecision, Tf32TurnsOnTheSwitchOfConvolutions) {
  const std::filesystem::path folder = PERFMODEL_SOURCE_DIR "/data/measurements/h200-sxm-141gb";
  const ExecutionGraph recorded =
      read_execution_graph(folder / "resnet50-b16.et.json.gz").value();  // fp32 in cuDNN, too
  const auto allowed = [](const ExecutionGraph& graph) {
    return std::ranges::count_if(graph.nodes, [&](const Node& node) {
      return graph.name(node) == "aten::cudnn_convolution" &&
             graph.inputs(node).back().integer == 1;
    });
  };
  EXPECT_EQ(allowed(recorded), 0);
  EXPECT_EQ(allowed(rewritten(recorded, Precision::kTf32)), 53);
}

TEST(RewritePrecision, Tf32ReachesProductsOfGpusThatHaveIt) {
  ExecutionGraph graph = small_dlrm();
  const Node& product = *first(graph, "aten::addmm");
  Gpu gpu{.name = "test", .peak_tflop_per_s = {.fp32 = 10, .tf32_matrix = 80}};
  const OpRule* rule = OpRuleRegistry::builtin().find("aten::addmm");
  ASSERT_NE(rule, nullptr);
  const auto on_matrix_units = [&] {
    std::vector<KernelWork> kernels;
    EXPECT_TRUE(rule->lower({.graph = graph, .node = product}, gpu, kernels));
    return !kernels.empty() && kernels.front().matrix_units;
  };
  EXPECT_FALSE(on_matrix_units());
  graph.allow_tf32 = true;
  EXPECT_TRUE(on_matrix_units());
  gpu.peak_tflop_per_s.tf32_matrix.reset();
  EXPECT_FALSE(on_matrix_units());
}

TEST(RewritePrecision, ScalerScalesTheLossAndChecksTheGradients) {
  const ExecutionGraph graph = rewritten(small_dlrm(), Precision::kFp16, true);
  std::map<std::string, std::int64_t, std::less<>> at;  // first node of a name
  for (const Node& node : graph.nodes) at.emplace(graph.name(node), node.id);
  EXPECT_LT(at["aten::mul"], at["aten::ones_like"]);
  EXPECT_LT(at["MulBackward0"], at["BinaryCrossEntropyBackward0"]);
  EXPECT_LT(at["aten::_amp_foreach_non_finite_check_and_unscale_"], at["Optimizer.step#SGD.step"]);
  EXPECT_LT(at["Optimizer.step#SGD.step"], at["aten::_amp_update_scale_"]);
  const Node& check = *first(graph, "aten::_amp_foreach_non_finite_check_and_unscale_");
  EXPECT_EQ(graph.elements(graph.inputs(check)[0]).size(), 8U);  // parameters of the MLPs
  // The gradient of the loss passes through the product.
  const Node& loss = *first(graph, "BinaryCrossEntropyBackward0");
  const Node& scale = *first(graph, "MulBackward0");
  EXPECT_EQ(scale.seq_id, loss.seq_id + 1);
  EXPECT_NE(graph.tensors[graph.inputs(loss)[0].index].id,
            graph.tensors[graph.inputs(scale)[0].index].id);
}

// Both biases of an LSTM cell have the same shape and one gradient.
TEST(RewritePrecision, EachBiasOfACellHasItsGradient) {
  const Seq2seqConfig config{.source_vocabulary = 20,
                             .target_vocabulary = 20,
                             .embedding = 8,
                             .hidden = 8,
                             .attention = 8,
                             .encoder_layers = 1,
                             .decoder_layers = 1,
                             .batch = 2,
                             .source_steps = 2,
                             .target_steps = 2};
  const ExecutionGraph before = *build_seq2seq(config);
  const ExecutionGraph graph = rewritten(before, Precision::kBf16);
  EXPECT_EQ(count(graph, "torch::autograd::AccumulateGrad"),
            count(before, "torch::autograd::AccumulateGrad"));
}

// A recording gives the id of a freed tensor to the result that a function has kept.
TEST(RewritePrecision, KeptResultsStayInTheirStorage) {
  const ExecutionGraph before = recorded("blocks_plain");
  const ExecutionGraph graph = rewritten(before, Precision::kBf16);
  const auto kept_storage = [](const ExecutionGraph& of) {
    const Node& gradient = *first(of, "aten::threshold_backward");
    return of.tensors[of.inputs(gradient)[1].index].storage_id;
  };
  const auto result_storage = [](const ExecutionGraph& of) {
    std::int64_t last = 0;
    for (const Node& node : of.nodes) {
      if (of.name(node) == "aten::relu") last = of.tensors[of.outputs(node)[0].index].storage_id;
    }
    return last;
  };
  EXPECT_EQ(kept_storage(before), result_storage(before));
  EXPECT_EQ(kept_storage(graph), result_storage(graph));
}

// The op that makes the first gradient has no tensor that could be the loss.
TEST(RewritePrecision, NoLossIsScaledWhereNoneIsKnown) {
  ExecutionGraph source = small_dlrm();
  const Node& ones = *first(source, "aten::ones_like");
  source.arguments[ones.inputs_begin].kind = Argument::Kind::kNone;
  const ExecutionGraph graph = rewritten(source, Precision::kFp16, true);
  EXPECT_EQ(first(graph, "MulBackward0"), nullptr);
  EXPECT_NE(first(graph, "aten::ones_like"), nullptr);
}

// Every node is written once, whatever scope a recording gives the nodes around functions.
TEST(RewritePrecision, NodesAroundBackwardFunctionsMayBeLabels) {
  ExecutionGraph graph = small_dlrm();
  const ExecutionGraph made = rewritten(graph, Precision::kBf16);
  for (Node& node : graph.nodes) {
    if (graph.name(node).starts_with("autograd::engine::evaluate_function")) {
      node.scope = Scope::kUser;
    }
  }
  index_graph(graph);
  const ExecutionGraph labelled = rewritten(graph, Precision::kBf16);
  ASSERT_EQ(labelled.nodes.size(), made.nodes.size());
  for (std::size_t i = 0; i < made.nodes.size(); ++i) {
    EXPECT_EQ(labelled.name(labelled.nodes[i]), made.name(made.nodes[i]));
    EXPECT_EQ(labelled.nodes[i].parent, made.nodes[i].parent);
  }
}

TEST(RewritePrecision, ATensorThatIsReadInAnotherTypeThanItWasGivenIsNamed) {
  ExecutionGraph graph = small_dlrm();
  const Node& function = *first(graph, "ReluBackward0");
  Tensor& gradient = graph.tensors[graph.inputs(function)[0].index];
  gradient.dtype = DType::kComplex64;
  EXPECT_EQ(refusal(graph, Precision::kBf16),
            fmt::format("precision: expected tensor {} as fp32, as it was given, found "
                        "ReluBackward0 of complex64 (node {})",
                        gradient.id, function.id));
}

TEST(RewritePrecision, RefusesWithAReason) {
  const ExecutionGraph dlrm = small_dlrm();
  EXPECT_EQ(refusal(rewritten(dlrm, Precision::kBf16), Precision::kFp16),
            "precision: expected an fp32 graph, found aten::linear of bfloat16 tensors (node 33)");
  EXPECT_EQ(refusal(recorded("mlp_fp32"), Precision::kFp16),
            "precision: expected tensors on a GPU, found none: autocast on CPUs knows bfloat16 "
            "only");
  EXPECT_EQ(refusal(recorded("mlp_fp32"), Precision::kTf32),
            "precision: expected tensors on a GPU for TF32, found none");
  EXPECT_EQ(refusal(dlrm, Precision::kBf16, true),
            "precision: expected fp16 for a gradient scaler, found another precision");
  EXPECT_NE(refusal(recorded("blocks_checkpointed"), Precision::kBf16).find("CheckpointFunction"),
            std::string::npos);
  EXPECT_EQ(refusal(ExecutionGraph{}, Precision::kBf16),
            "precision: expected ops that autocast runs in half precision (linear, mm, bmm, "
            "convolution, ...), found none in the forward pass");
}

}  // namespace rewrite_precision_test
}  // namespace perfmodel
