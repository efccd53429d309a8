// One row per op: whoever asks for what it knows gets the same ops.
#include "ops/catalogue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ops/rows.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/retarget.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictors/detail/lower.hpp"
#include "perfmodel/predictors/detail/op_rules.hpp"
#include "rewrite/resize/call.hpp"

namespace perfmodel {
namespace op_catalogue_test {

using testing::Contains;
using testing::IsEmpty;
using testing::Not;

ExecutionGraph mlp(bool on_gpu = true) {
  MlpConfig config = mlp_preset("mnist").value();
  if (!on_gpu) config.training.pytorch.device = {.kind = Device::Kind::kCpu};
  return build_mlp(config).value();
}

ExecutionGraph dlrm() {
  DlrmConfig config;
  config.bottom_mlp = {13, 64, 16};
  config.top_mlp = {64, 1};
  for (std::int64_t rows : {1000, 2000}) {
    config.tables.push_back({.num_rows = rows, .dim = 16, .pooling_factor = 8});
  }
  config.batch = 64;
  config.table_batched = false;
  return build_dlrm(config).value();
}

ExecutionGraph gpt() {
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = 1;
  config.batch = 3;
  config.sequence = 32;
  return build_gpt(config).value();
}

ExecutionGraph resnet() {
  ResnetConfig config = resnet_preset("resnet18").value();
  config.batch = 3;
  config.resolution = 64;
  return build_resnet(config).value();
}

const std::vector<ExecutionGraph>& models() {
  static const std::vector<ExecutionGraph> kModels = {mlp(), dlrm(), gpt(), resnet()};
  return kModels;
}

std::string_view base_of(std::string_view name_with_overload) {
  const std::size_t space = name_with_overload.find("::");
  return name_with_overload.substr(0, name_with_overload.find('.', space));
}

TEST(OpCatalogue, EveryNamedRuleExists) {  // find_rule stops the program where one does not
  for (const Op& op : op_catalogue()) {
    SCOPED_TRACE(op.name);
    EXPECT_EQ(OpRuleRegistry::builtin().find(op.name) != nullptr, !price_rule(op).empty());
    EXPECT_EQ(resize::find_rule(op.name) != nullptr, !size_rule(op).empty());
    if (!op.in_place) continue;
    const std::string in_place = std::string(op.name) + "_";
    EXPECT_EQ(find_op(in_place), &op);
    EXPECT_EQ(OpRuleRegistry::builtin().find(in_place) != nullptr, !price_rule(op).empty());
    EXPECT_EQ(resize::find_rule(in_place), resize::find_rule(op.name));
  }
}

TEST(OpCatalogue, EverySchemaIsOfARow) {
  for (const OpRow& row : op_rows()) {
    EXPECT_NE(find_op(base_of(row.name)), nullptr) << row.name;
  }
}

// Ops that are priced, but whose results no rule follows when a size changes: `rewrite --batch`
// refuses them by name where they meet the size.
const std::map<std::string_view, std::set<std::string_view>> kUnsized = {
    {"the numbers that are its sizes would have to change too",
     {"aten::upsample_nearest2d_backward",
      "aten::upsample_bilinear2d_backward",
      "aten::upsample_bicubic2d_backward",
      "aten::im2col",
      "aten::col2im",
      "aten::native_group_norm_backward",
      "aten::cudnn_convolution_backward_input",
      "aten::miopen_convolution_backward_input",
      "aten::miopen_rnn",
      "aten::miopen_rnn_backward",
      "aten::upsample_nearest1d",
      "aten::upsample_nearest1d_backward",
      "aten::upsample_nearest3d",
      "aten::upsample_nearest3d_backward",
      "aten::upsample_linear1d",
      "aten::upsample_linear1d_backward",
      "aten::upsample_trilinear3d",
      "aten::upsample_trilinear3d_backward",
      "aten::_upsample_nearest_exact1d",
      "aten::_upsample_nearest_exact1d_backward",
      "aten::_upsample_nearest_exact2d",
      "aten::_upsample_nearest_exact2d_backward",
      "aten::_upsample_nearest_exact3d",
      "aten::_upsample_nearest_exact3d_backward",
      "aten::_upsample_bilinear2d_aa",
      "aten::_upsample_bilinear2d_aa_backward",
      "aten::_upsample_bicubic2d_aa",
      "aten::_upsample_bicubic2d_aa_backward",
      "aten::affine_grid_generator",
      "aten::max_unpool2d",
      "aten::max_unpool3d",
      "aten::unfold_backward"}},
    {"gradients in an order of arguments that only old recordings have",
     {"aten::cudnn_convolution_backward", "aten::cudnn_convolution_backward_weight",
      "aten::miopen_convolution_backward", "aten::miopen_convolution_backward_weight"}},
    {"parts of its input go to places of their own",
     {"aten::glu",
      "aten::glu_backward",
      "aten::_prelu_kernel_backward",
      "aten::pixel_shuffle",
      "aten::grid_sampler_2d",
      "aten::grid_sampler_2d_backward",
      "aten::addbmm",
      "aten::addmv",
      "aten::ger",
      "aten::addr",
      "aten::take",
      "aten::take_along_dim",
      "aten::diag_embed",
      "aten::diag",
      "aten::_cdist_forward",
      "aten::_cdist_backward",
      "aten::_pdist_forward",
      "aten::segment_reduce",
      "aten::_segment_reduce_backward",
      "aten::repeat_interleave",
      "aten::bucketize",
      "aten::searchsorted",
      "aten::isin",
      "aten::_chunk_cat",
      "fsdp::split_with_sizes_copy",
      "fsdp::chunk_cat",
      "fsdp::all_gather_copy_in",
      "aten::mode",
      "aten::kthvalue",
      "aten::_cummax_helper",
      "aten::_cummin_helper",
      "aten::embedding_renorm_",
      "torchvision::roi_align",
      "torchvision::_roi_align_backward",
      "aten::linalg_cross",
      "aten::rrelu_with_noise",
      "aten::prelu_backward",
      "aten::channel_shuffle",
      "aten::_weight_norm_interface",
      "aten::_weight_norm_interface_backward",
      "aten::grid_sampler_3d",
      "aten::grid_sampler_3d_backward",
      "aten::pixel_unshuffle",
      "aten::reflection_pad3d",
      "aten::replication_pad1d",
      "aten::replication_pad3d",
      "aten::multi_margin_loss",
      "aten::multilabel_margin_loss_forward"}},
    {"how many results there are depends on the values",
     {"aten::nonzero", "aten::argwhere", "aten::masked_select", "aten::_unique2", "aten::_unique",
      "aten::unique_consecutive", "aten::unique_dim", "aten::unique_dim_consecutive",
      "aten::bincount", "torchvision::nms"}},
    {"is written after changes of sizes",
     {"hashed::addmm", "hashed::embedding", "hashed::embedding_bag", "hashed::embedding_gradient",
      "hashed::mm", "hashed::weight_gradient", "liger::cross_entropy", "liger::scale_gradient_"}},
    {"its copies are padded", {"torchao::triton_to_mxfp8_dim0", "torchao::triton_to_mxfp8_dim1"}},
    {"makes a tensor of a size that is a number of the program",
     {"aten::range", "aten::linspace", "aten::logspace", "aten::eye", "aten::tril_indices",
      "aten::triu_indices", "aten::randperm", "aten::multinomial"}},
    {"has no result, or one number",
     {"aten::equal", "aten::_local_scalar_dense", "aten::_amp_update_scale",
      "aten::_fused_moving_avg_obs_fq_helper", "aten::_copy_from", "aten::_copy_from_and_resize"}},
};

bool is_named_as_unsized(std::string_view name) {
  for (const auto& [why, names] : kUnsized) {
    if (names.contains(name)) return true;
  }
  return false;
}

TEST(OpCatalogue, WhatIsPricedCanBeResizedOrSaysWhyNot) {
  for (const Op& op : op_catalogue()) {
    const std::string_view rule = price_rule(op);
    const bool works_on_lists = op.kind == OpKind::kForeach || op.kind == OpKind::kOptimizer ||
                                op.name == "aten::_foreach_cat";  // parameters, which stay
    const bool is_library = op.name.starts_with("fbgemm::") || op.name.starts_with("fb::");
    if (rule.empty() || rule == "nothing" || rule == "collective.by_name" || op.is_prefix ||
        works_on_lists || is_library || op.kind == OpKind::kTriton) {
      continue;
    }
    EXPECT_EQ(size_rule(op).empty(), is_named_as_unsized(op.name)) << op.name;
  }
}

// A row with the same rules is another op of the same behaviour: either may replace the other in a
// graph, and every stage treats both alike.
bool alike(const Op& a, const Op& b) {
  return a.kind == b.kind && price_rule(a) == price_rule(b) && size_rule(a) == size_rule(b) &&
         retarget_rule(a) == retarget_rule(b) && a.autocast == b.autocast &&
         a.fusible == b.fusible && a.is_prefix == b.is_prefix;
}

// Names of ops in the graph, without what a wrapper calls under the same name.
std::set<std::string> names_in(const ExecutionGraph& graph) {
  std::set<std::string> names;
  for (const Node& node : graph.nodes) {
    if (!node.is_label && node.children_count == 0) names.insert(std::string(graph.name(node)));
  }
  return names;
}

ExecutionGraph renamed(const ExecutionGraph& graph, std::string_view from, std::string_view to) {
  ExecutionGraph made = graph;
  const NameId id = made.names.intern(to);
  for (Node& node : made.nodes) {
    if (made.name(node) == from) {
      node.name = id;
      node.op_schema = 0;
    }
  }
  return made;
}

// Everything but names.
std::vector<std::int64_t> shape_of(const ExecutionGraph& graph) {
  std::vector<std::int64_t> all;
  for (const Node& node : graph.nodes) {
    all.push_back(node.parent);
    for (const auto arguments : {graph.inputs(node), graph.outputs(node)}) {
      all.push_back(std::ssize(arguments));
      for_each_tensor(graph, arguments, [&](const Tensor& tensor) {
        for (std::int64_t size : graph.shape(tensor)) all.push_back(size);
        all.push_back(static_cast<std::int64_t>(tensor.dtype));
      });
    }
  }
  return all;
}

class RenamedOps : public testing::Test {
 protected:
  RenamedOps() {
    const std::filesystem::path data = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data";
    table_ = read_overheads(data / "overheads" / "reference.json").value();
    gpu_ = find_gpu("a100-sxm-80gb", data / "gpus").value();
  }

  std::vector<std::string> unmodelled(const ExecutionGraph& graph) const {
    const auto prediction = predict(graph, gpu_, table_);
    if (!prediction) return {to_string(prediction.error())};
    std::vector<std::string> names;
    for (const auto& op : prediction->coverage.unmodelled_ops) names.push_back(op.op);
    return names;
  }

  // Calls `check` with each op of the catalogue and a graph in which it stands for another one.
  void for_each_stand_in(
      const std::vector<ExecutionGraph>& graphs,
      const std::function<void(const ExecutionGraph& before, const ExecutionGraph& after)>& check) {
    std::size_t checked = 0;
    for (const Op& op : op_catalogue()) {
      bool done = false;
      for (std::size_t g = 0; g < graphs.size() && !done; ++g) {
        for (const std::string& name : names_in(graphs[g])) {
          const Op* known = find_op(name);
          if (!known || known == &op || known->name != name || !alike(*known, op)) continue;
          SCOPED_TRACE(name + " becomes " + std::string(op.name));
          check(graphs[g], renamed(graphs[g], name, op.name));
          done = true;
          ++checked;
          break;
        }
      }
    }
    EXPECT_GT(checked, 200u);
  }

  OverheadTable table_;
  Gpu gpu_;
};

TEST_F(RenamedOps, ArePricedLikeTheirKind) {
  for_each_stand_in(models(), [&](const ExecutionGraph& before, const ExecutionGraph& after) {
    EXPECT_EQ(unmodelled(after), unmodelled(before));
  });
}

TEST_F(RenamedOps, TakeAnotherBatch) {
  for_each_stand_in(models(), [&](const ExecutionGraph& before, const ExecutionGraph& after) {
    const auto expected = set_batch_size(before, {.batch = 40});
    const auto found = set_batch_size(after, {.batch = 40});
    ASSERT_TRUE(expected) << expected.error().message;
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(shape_of(*found), shape_of(*expected));
  });
}

TEST_F(RenamedOps, TakeAnotherPrecision) {
  for_each_stand_in(models(), [&](const ExecutionGraph& before, const ExecutionGraph& after) {
    const auto expected =
        rewrite_precision(before, {.precision = PrecisionOptions::Precision::kBf16});
    const auto found = rewrite_precision(after, {.precision = PrecisionOptions::Precision::kBf16});
    ASSERT_EQ(static_cast<bool>(found), static_cast<bool>(expected));
    if (found) {
      EXPECT_EQ(shape_of(*found), shape_of(*expected));
    }
  });
}

TEST_F(RenamedOps, FuseAlike) {
  for_each_stand_in(models(), [&](const ExecutionGraph& before, const ExecutionGraph& after) {
    const auto expected = rewrite_elementwise_fusion(before);
    const auto found = rewrite_elementwise_fusion(after);
    ASSERT_TRUE(expected && found);
    EXPECT_EQ(shape_of(*found), shape_of(*expected));
  });
}

TEST(RetargetedOps, MoveToAGpuAlike) {
  const ExecutionGraph cpu = mlp(false);
  const auto expected = retarget(cpu);
  ASSERT_TRUE(expected) << expected.error().message;
  std::size_t checked = 0;
  for (const Op& op : op_catalogue()) {
    if (op.kind != OpKind::kPointwise || !alike(op, *find_op("aten::tanh"))) continue;
    for (const std::string& name : names_in(cpu)) {
      const Op* known = find_op(name);
      if (!known || known->name != name || !alike(*known, op)) continue;
      const auto found = retarget(renamed(cpu, name, op.name));
      ASSERT_TRUE(found) << op.name << ": " << found.error().message;
      EXPECT_EQ(shape_of(*found), shape_of(*expected)) << op.name;
      ++checked;
      break;
    }
  }
  EXPECT_GT(checked, 30u);
}

// The arguments of a forward op that its backward function reads are among those that the row
// keeps.
TEST(OpCatalogue, KeepsWhatTheBackwardPassReads) {
  std::size_t read = 0;
  std::set<std::string> wrong;
  for (const ExecutionGraph& graph : models()) {
    const auto partners = forward_partners(graph);
    const auto id_of = [&](const Argument& argument) {
      return argument.kind == Argument::Kind::kTensor ? graph.tensors[argument.index].id : -1;
    };
    const std::function<void(std::int32_t, const Node&)> visit = [&](std::int32_t at,
                                                                     const Node& forward) {
      const Node& node = graph.nodes[static_cast<std::size_t>(at)];
      const Op* op = find_op(graph.name(forward));
      if (op && price_rule(*op) != "nothing" && !price_rule(*op).empty()) {
        std::set<std::int64_t> used;
        for_each_tensor(graph, graph.inputs(node),
                        [&](const Tensor& tensor) { used.insert(tensor.id); });
        // In place, an argument is the result as well.
        for (std::size_t i = 0; i < graph.outputs(forward).size(); ++i) {
          if (op->keeps_results.has(i)) used.erase(id_of(graph.outputs(forward)[i]));
        }
        const auto look = [&](std::span<const Argument> arguments, Positions keeps) {
          for (std::size_t i = 0; i < arguments.size(); ++i) {
            const std::int64_t id = id_of(arguments[i]);
            if (id < 0 || !used.contains(id)) continue;
            ++read;
            if (!keeps.has(i)) wrong.insert(std::string(op->name) + " " + std::to_string(i));
          }
        };
        look(graph.inputs(forward), op->keeps_inputs);
        look(graph.outputs(forward), op->keeps_results);
      }
      for (std::int32_t child : graph.children(node)) visit(child, forward);
    };
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      if (partners[i] < 0 || graph.nodes[i].is_label) continue;
      for (std::int32_t child : graph.children(graph.nodes[i])) {
        visit(child, graph.nodes[static_cast<std::size_t>(partners[i])]);
      }
    }
  }
  EXPECT_THAT(wrong, IsEmpty());
  EXPECT_GT(read, 50u);
}

// The names of ops that launch kernels themselves, and of those that the lowering lists as having
// no model.
struct Launching {
  std::set<std::string> names, unmodelled;
};

Launching lowered(const ExecutionGraph& graph, const Gpu& gpu) {
  Launching made;
  Lowering lowering(graph, gpu, nullptr);
  const auto name = [&](std::int32_t node) {
    return std::string(graph.name(graph.nodes[static_cast<std::size_t>(node)]));
  };
  for (const std::int32_t op : top_level_ops(graph)) {
    for (const LoweredCall& call : lowering.lower(op).calls) {
      if (call.call->kind != TemplateCall::Kind::kSync) made.names.insert(name(call.node));
    }
  }
  for (const std::int32_t node : lowering.stats().unmodelled) made.unmodelled.insert(name(node));
  return made;
}

TEST(OpCatalogue, RenamedOpsThatLaunchKernelsAreNamed) {
  const Gpu gpu =
      find_gpu("a100-sxm-80gb", std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus")
          .value();
  std::size_t named = 0;
  for (const ExecutionGraph& graph : models()) {
    const Launching known = lowered(graph, gpu);
    EXPECT_THAT(known.unmodelled, IsEmpty());
    for (const std::string& name : known.names) {
      const std::string other = "library::my_" + name.substr(name.rfind(':') + 1);
      EXPECT_THAT(lowered(renamed(graph, name, other), gpu).unmodelled, Contains(other)) << name;
      ++named;
    }
  }
  EXPECT_GT(named, 60u);
}

}  // namespace op_catalogue_test
}  // namespace perfmodel
