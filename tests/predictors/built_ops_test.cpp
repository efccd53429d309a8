#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "graph_fixture.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/predictors/detail/lower.hpp"

namespace perfmodel {
namespace built_ops_test {

template <class Config>
ExecutionGraph built(Result<ExecutionGraph> (*build)(const Config&), Config config) {
  config.batch = 2;
  auto graph = build(config);
  EXPECT_TRUE(graph) << to_string(graph.error());
  return std::move(*graph);
}

std::vector<ExecutionGraph> models() {
  DlrmConfig dlrm = *dlrm_preset("default");
  dlrm.table_batched = false;
  DlrmConfig dense_dlrm = dlrm;
  dense_dlrm.sparse_gradients = false;
  T5Config experts = *t5_preset("t5-small");
  experts.experts = 4;
  std::vector<ExecutionGraph> result;
  result.push_back(built(build_dlrm, dlrm));
  result.push_back(built(build_dlrm, dense_dlrm));
  result.push_back(built(build_t5, experts));
  LlamaConfig grouped = *llama_preset("llama-small");
  grouped.layers = 1;
  grouped.sequence = 64;
  grouped.experts = {.experts = 4, .shared = 1, .balance_loss = 0.01};
  result.push_back(built(build_llama, grouped));
  result.push_back(
      *rewrite_precision(result.back(), {.precision = PrecisionOptions::Precision::kFp8}));
  result.push_back(built(build_resnet, ResnetConfig{}));
  result.push_back(built(build_faster_rcnn, FasterRcnnConfig{}));
  result.push_back(built(build_faster_rcnn, *faster_rcnn_preset("fasterrcnn_resnet50_fpn")));
  result.push_back(built(build_seq2seq, Seq2seqConfig{}));
  result.push_back(built(build_transformer, *transformer_preset("transformer-base")));
  result.push_back(built(build_a3c, *a3c_preset("a3c-lstm")));
  result.push_back(built(build_deepspeech2, Deepspeech2Config{}));
  return result;
}

/// Ops with kernels of their own, below which other ops launch kernels, too.
std::set<std::string> ops_beside_children(const ExecutionGraph& graph, const Gpu& gpu) {
  std::set<std::string> result;
  Lowering lowering(graph, gpu, nullptr);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto node = static_cast<std::int32_t>(i);
    bool own = false, below = false;
    for (const LoweredCall& call : lowering.lower(node).calls) {
      if (call.work >= 0) (call.node == node ? own : below) = true;
    }
    if (own && below) result.emplace(graph.name(graph.nodes[i]));
  }
  return result;
}

// An op with a rule that only calls another op would be paid twice. These ops do launch kernels in
// addition to their children's: fills of their outputs, sorts of indices, sums.
TEST(BuiltOps, NoWrapperIsPaidBesideWhatItCalls) {
  std::set<std::string> found;
  const Gpu gpu = test_support::round_gpu();
  for (const ExecutionGraph& graph : models()) found.merge(ops_beside_children(graph, gpu));
  EXPECT_THAT(found,
              ::testing::ElementsAre(
                  "aten::_ctc_loss", "aten::_ctc_loss_backward", "aten::_cudnn_rnn_backward",
                  "aten::_embedding_bag_dense_backward", "aten::_index_put_impl_",
                  "aten::_softmax_backward_data", "aten::_thnn_fused_lstm_cell_backward_impl",
                  "aten::binary_cross_entropy", "aten::binary_cross_entropy_backward",
                  "aten::convolution_backward", "aten::embedding_dense_backward", "aten::index",
                  "aten::max_pool2d_with_indices_backward", "aten::nll_loss_backward",
                  "aten::smooth_l1_loss", "torchvision::_roi_align_backward", "torchvision::nms",
                  "torchvision::roi_align"));
}

}  // namespace built_ops_test
}  // namespace perfmodel
