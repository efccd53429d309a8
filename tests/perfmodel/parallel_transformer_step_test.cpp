#include "reference/parallel/transformer_step.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "reference/parallel/topology_costs.hpp"

namespace perfmodel::parallel {
namespace {

/// Every kernel takes the same time, whatever it does.
class ConstantModel final : public KernelModel {
 public:
  explicit ConstantModel(double us) : us_(us) {}
  Price price(const KernelWork&, const Gpu&) const override {
    Price price;
    price.time = Microseconds{us_};
    return price;
  }

 private:
  double us_;
};

const Gpu& literal_gpu() {
  static const Gpu gpu = [] {
    Gpu g;
    g.name = "literal";
    g.peak_tflop_per_s.fp16_matrix = 100;
    return g;
  }();
  return gpu;
}

/// Kernels of `kernel_us`, free host, free collectives; tests change what they look at.
StepCosts costs_with(double kernel_us) {
  static std::map<double, ConstantModel> models;
  static std::map<double, KernelModels> families;
  const auto [model, is_new] = models.try_emplace(kernel_us, kernel_us);
  if (is_new) {
    for (int i = 0; i <= static_cast<int>(KernelFamily::kSmall); ++i) {
      families[kernel_us].set(static_cast<KernelFamily>(i), &model->second);
    }
  }
  return {.gpu = &literal_gpu(),
          .models = &families[kernel_us],
          .collective_us = [](const CollectiveCall&) { return 0.0; },
          .host = {0, 0, 0, 0, 0, 0}};
}

DecoderShape shape_of(std::int64_t layers) {
  return {.hidden = 64, .heads = 4, .layers = layers, .seq = 32, .vocab = 128};
}

// Kernels per layer and microbatch: see `decoder_kernels.cpp`.
constexpr double kForward = 15, kBackward = 31, kAccumulation = 12;

TEST(TransformerStep, ParametersOfKnownModels) {
  // MPT-125M with 1024 positions.
  EXPECT_EQ(
      decoder_parameters({.hidden = 768, .heads = 12, .layers = 12, .seq = 1024, .vocab = 50368}),
      124525056);
}

TEST(TransformerStep, DeviceBoundStepIsTheSumOfItsKernels) {
  const StepCosts costs = costs_with(10);
  const MegatronPlan plan{.recompute = Recompute::kNone};
  const auto two = megatron_step(shape_of(2), plan, costs).value();
  const auto four = megatron_step(shape_of(4), plan, costs).value();
  EXPECT_DOUBLE_EQ(four.step_us - two.step_us, 2 * (kForward + kBackward) * 10);
  EXPECT_DOUBLE_EQ(two.step_us, two.kernel_us + two.optimizer_us);
  EXPECT_EQ(two.bubble_share, 0);
}

TEST(TransformerStep, HostBoundStepIsTheSumOfItsLaunches) {
  StepCosts costs = costs_with(1);
  costs.host = {.forward_op_us = 40,
                .backward_op_us = 30,
                .collective_us = 0,
                .recompute_us = 100,
                .microbatch_us = 1000,
                .launch_latency_us = 2};
  const auto one = megatron_step(shape_of(2), {}, costs).value();
  const auto three = megatron_step(shape_of(4), {}, costs).value();
  EXPECT_DOUBLE_EQ(three.host_us - one.host_us, 2 * (2 * kForward * 40 + kBackward * 30 + 100));
  // The last kernel starts after the latency.
  EXPECT_DOUBLE_EQ(one.step_us, one.host_us + 2 + 1 + one.optimizer_us);
}

TEST(TransformerStep, FullRecomputationRepeatsForward) {
  const StepCosts costs = costs_with(10);
  const auto time = [&](Recompute recompute) {
    return megatron_step(shape_of(4), {.recompute = recompute}, costs)->backward_us;
  };
  EXPECT_DOUBLE_EQ(time(Recompute::kFull) - time(Recompute::kNone), 4 * kForward * 10);
  // Scores, softmax, dropout, context, copy.
  EXPECT_DOUBLE_EQ(time(Recompute::kSelective) - time(Recompute::kNone), 4 * 5 * 10);
}

TEST(TransformerStep, MicrobatchesFollowAtAConstantPace) {
  StepCosts costs = costs_with(10);
  costs.host.forward_op_us = 25;  // forward host-bound, backward not
  costs.host.backward_op_us = 1;
  const auto time = [&](std::int64_t microbatches) {
    return megatron_step(shape_of(4), {.global_batch = microbatches}, costs)->step_us;
  };
  const double period = time(3) - time(2);
  EXPECT_NEAR(time(40), time(3) + 37 * period, 1e-6);
}

TEST(TransformerStep, GradientsAreAccumulatedFromTheSecondMicrobatchOn) {
  const StepCosts costs = costs_with(10);
  const auto kernels = [&](std::int64_t layers, std::int64_t microbatches) {
    return megatron_step(shape_of(layers), {.global_batch = microbatches}, costs)->kernel_us;
  };
  const double per_layer_one = kernels(2, 1) - kernels(1, 1);
  const double per_layer_two = (kernels(2, 2) - kernels(1, 2)) / 2;
  EXPECT_DOUBLE_EQ(per_layer_two - per_layer_one, kAccumulation * 10);
}

TEST(TransformerStep, TensorParallelLayersReduceSixTimes) {
  StepCosts costs = costs_with(1);
  costs.collective_us = [](const CollectiveCall& call) { return call.ranks == 2 ? 50.0 : 0; };
  const auto comm = [&](std::int64_t layers) {
    return megatron_step(shape_of(layers), {.tp = 2, .global_batch = 3}, costs)->tensor_comm_us;
  };
  EXPECT_DOUBLE_EQ(comm(4) - comm(2), 3 * 2 * 6 * 50);
}

TEST(TransformerStep, PipelineHasTheBubbleOfItsSchedule) {
  const StepCosts costs = costs_with(10);
  const auto step = [&](const MegatronPlan& plan) {
    return megatron_step(shape_of(64), plan, costs).value();
  };
  const auto one = step({.pp = 4, .global_batch = 8});
  // Embedding and logits unbalance 16 layers a stage by little.
  EXPECT_NEAR(one.bubble_share, 3.0 / 11, 0.03);
  const auto gpipe = step({.pp = 4, .global_batch = 8, .gpipe = true});
  EXPECT_NEAR(gpipe.step_us, one.step_us, 0.05 * one.step_us);
  const auto interleaved = step({.pp = 4, .virtual_stages = 4, .global_batch = 8});
  EXPECT_LT(interleaved.bubble_share, 0.15);
}

/// Nodes of 8 GPUs with `nics` NICs of 25 GB/s and links that are much faster.
Topology two_tiers(int nics) {
  Topology topology;
  topology.name = "literal";
  topology.gpus_per_node = 8;
  topology.generation = NcclGeneration::kAmpere;
  topology.cpu = "intel";
  topology.intra = {.kind = IntraLink::kNvswitch,
                    .gpu_bandwidth = {300e9},
                    .ring_channels = 12,
                    .channel_bandwidth = {20e9},
                    .p2p_bandwidth = {220e9},
                    .all_to_all_bandwidth = {220e9}};
  topology.nic = Topology::Nic{
      .count = nics, .bandwidth = {25e9}, .latency = Microseconds{1}, .efficiency = 1};
  return topology;
}

TEST(TopologyCosts, GroupsShareTheNicsOnce) {
  const CollectiveCall send{
      .kind = "send", .bytes = 25e6, .ranks = 2, .nodes = 2, .groups_per_node = 8};
  // 8.4 + 14 + 2 x 1 + 1 = 25.4 us and 25 MB over a NIC; with four NICs two senders share one.
  EXPECT_NEAR(topology_costs(two_tiers(8))(send), 25.4 + 1000, 1e-6);
  EXPECT_NEAR(topology_costs(two_tiers(4))(send), 25.4 + 2000, 1e-6);
}

TEST(TransformerStep, EachGpuReducesItsGradientsOverItsOwnNic) {
  // tp 8 x dp 2 on two nodes: eight pairs, one NIC each. A pair sends 2 x 1/2 of the gradients.
  StepCosts costs = costs_with(1);
  DecoderShape shape = shape_of(8);
  shape.hidden = 4096;
  shape.heads = 8;
  const MegatronPlan plan{.tp = 8, .dp = 2, .global_batch = 2};
  const auto exposed = [&](int nics) {
    costs.collective_us = topology_costs(two_tiers(nics));
    return megatron_step(shape, plan, costs)->exposed_comm_us;
  };
  const double gradients = megatron_step(shape, plan, costs_with(1))->params_per_rank * 2;
  EXPECT_NEAR(exposed(8), gradients / 25e3, 0.01 * gradients / 25e3);
  EXPECT_NEAR(exposed(4), gradients / 12.5e3, 0.01 * gradients / 12.5e3);
}

TEST(TransformerStep, StagesSendPartsAndGatherThem) {
  // One sequence of 32 tokens x 64 x 2 B; tp 8 x pp 2 on two nodes.
  const double activation = 32 * 64 * 2;
  std::vector<CollectiveCall> calls;
  StepCosts costs = costs_with(1);
  costs.collective_us = [&](const CollectiveCall& call) {
    if (call.kind != "all_reduce") calls.push_back(call);
    return 1.0;
  };
  DecoderShape shape = shape_of(2);
  shape.heads = 8;
  MegatronPlan plan{.tp = 8, .pp = 2};
  const double split = megatron_step(shape, plan, costs)->step_us;
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0].kind, "send");
  EXPECT_EQ(calls[0].bytes, activation / 8);
  EXPECT_EQ(calls[0].ranks, 2);
  EXPECT_EQ(calls[0].nodes, 2);
  EXPECT_EQ(calls[0].groups_per_node, 8);
  EXPECT_EQ(calls[1].kind, "all_gather");
  EXPECT_EQ(calls[1].bytes, activation);
  EXPECT_EQ(calls[1].ranks, 8);
  EXPECT_EQ(calls[1].nodes, 1);
  calls.clear();
  plan.split_hops = false;
  // One call less on the way there and on the way back.
  EXPECT_DOUBLE_EQ(split - megatron_step(shape, plan, costs)->step_us, 2);
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].bytes, activation);
}

TEST(TransformerStep, SequenceParallelGathersAndScattersInsteadOfReducing) {
  const double activation = 32 * 64 * 2;  // one sequence of 32 tokens x 64 x 2 B
  StepCosts costs = costs_with(1);
  std::set<std::string> kinds;
  costs.collective_us = [&](const CollectiveCall& call) {
    if (call.bytes == activation) kinds.insert(std::string(call.kind));
    return call.kind == "all_reduce" ? 2.0 : 1.0;
  };
  for (bool sequence_parallel : {false, true}) {
    kinds.clear();
    const auto comm_us = [&](std::int64_t layers) {
      const MegatronPlan plan{.tp = 4, .sequence_parallel = sequence_parallel};
      return megatron_step(shape_of(layers), plan, costs)->tensor_comm_us;
    };
    // Two in forward, recomputation and backward of each layer; a gather and a scatter are as long
    // as an all-reduce here.
    EXPECT_DOUBLE_EQ(comm_us(4) - comm_us(2), 2 * 6 * 2);
    EXPECT_EQ(kinds, sequence_parallel ? std::set<std::string>({"all_gather", "reduce_scatter"})
                                       : std::set<std::string>({"all_reduce"}));
  }
}

TEST(TransformerStep, SequenceParallelRanksHoldAPartOfTheSequence) {
  // A model whose kernels take the time of their bytes.
  class BytesModel final : public KernelModel {
   public:
    Price price(const KernelWork& work, const Gpu&) const override {
      Price price;
      price.time = Microseconds{work.bytes().value};
      return price;
    }
  };
  static const BytesModel model;
  static const KernelModels models = [] {
    KernelModels all;
    for (int i = 0; i <= static_cast<int>(KernelFamily::kSmall); ++i) {
      all.set(static_cast<KernelFamily>(i), &model);
    }
    return all;
  }();
  StepCosts costs = costs_with(1);
  costs.models = &models;
  const auto forward_us = [&](std::int64_t layers, bool sequence_parallel) {
    return megatron_step(
               shape_of(layers),
               {.tp = 4, .recompute = Recompute::kNone, .sequence_parallel = sequence_parallel},
               costs)
        ->forward_us;
  };
  const auto layer_us = [&](bool sequence_parallel) {
    return forward_us(2, sequence_parallel) - forward_us(1, sequence_parallel);
  };
  // x = 32 x 64 x 2 B = 4096. Two norms read and write x; twice bias, dropout and residual read 2 x
  // and write x and a mask of x / 2: 4 x + 7 x = 11 x, of which three quarters are saved.
  EXPECT_DOUBLE_EQ(layer_us(false) - layer_us(true), 0.75 * 11 * 4096);
}

TEST(TransformerStep, SequenceParallelStagesSendWhatTheyHold) {
  std::vector<CollectiveCall> sends;
  StepCosts costs = costs_with(1);
  costs.collective_us = [&](const CollectiveCall& call) {
    if (call.kind == "send") sends.push_back(call);
    return 1.0;
  };
  const MegatronPlan plan{.tp = 4, .pp = 2, .sequence_parallel = true};
  ASSERT_TRUE(megatron_step(shape_of(2), plan, costs));
  ASSERT_EQ(sends.size(), 1U);
  EXPECT_EQ(sends[0].bytes, 32 * 64 * 2 / 4);
  DecoderShape odd = shape_of(2);
  odd.seq = 30;
  const auto step = megatron_step(odd, plan, costs);
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().message, "expected seq to be a multiple of tp = 4, found 30");
}

TEST(TransformerStep, OverlapHidesGradientReduction) {
  StepCosts costs = costs_with(100);
  costs.collective_us = [](const CollectiveCall& call) { return call.bytes * 1e-3; };
  MegatronPlan plan{.dp = 4, .global_batch = 4, .bucket_bytes = 1e5};
  const auto serial = megatron_step(shape_of(8), plan, costs).value();
  plan.overlap_gradients = true;
  const auto overlapped = megatron_step(shape_of(8), plan, costs).value();
  EXPECT_NEAR(serial.exposed_comm_us, serial.params_per_rank * 2e-3, 1e-9);
  EXPECT_GT(overlapped.exposed_comm_us, 0);
  EXPECT_LT(overlapped.exposed_comm_us, 0.5 * serial.exposed_comm_us);
}

TEST(TransformerStep, ShardingTrafficFollowsTheStage) {
  // One unit of time per gather or scatter: what is gathered again in backward shows.
  StepCosts costs = costs_with(0);
  costs.collective_us = [](const CollectiveCall&) { return 1.0; };
  FsdpPlan plan{.gpus = 8, .microbatches = 3};
  const double layers = 6;
  const auto full = fsdp_step(shape_of(6), plan, costs).value();
  // Gathers: root and layers; in backward all layers but the last, which is kept. Scatters: all.
  EXPECT_DOUBLE_EQ(full.step_us - full.optimizer_us, 3 * (2 * (layers + 1) + layers - 1));
  plan.fsdp.reshard_after_forward = false;
  const auto zero2 = fsdp_step(shape_of(6), plan, costs).value();
  EXPECT_DOUBLE_EQ(zero2.step_us - zero2.optimizer_us, 3 * 2 * (layers + 1));
}

TEST(TransformerStep, ComputeHidesShardingTraffic) {
  StepCosts costs = costs_with(10);
  costs.collective_us = [](const CollectiveCall&) { return 1.0; };
  const auto step = fsdp_step(shape_of(6), {.gpus = 8}, costs).value();
  EXPECT_DOUBLE_EQ(step.exposed_comm_us, 2);  // first gather, last scatter
  EXPECT_DOUBLE_EQ(step.step_us, step.kernel_us + 2 + step.optimizer_us);
}

TEST(TransformerStep, ImpossibleRequestsAreErrors) {
  const StepCosts costs = costs_with(1);
  const auto message = [&](const DecoderShape& shape, const MegatronPlan& plan) {
    const auto step = megatron_step(shape, plan, costs);
    return step ? std::string("no error") : step.error().message;
  };
  EXPECT_EQ(message(shape_of(4), {}), "no error");
  EXPECT_EQ(message(shape_of(4), {.tp = 3}), "expected heads to be a multiple of tp = 3, found 4");
  EXPECT_EQ(message(shape_of(4), {.pp = 3}),
            "expected layers to be a multiple of pp virtual_stages = 3, found 4");
  EXPECT_EQ(message(shape_of(4), {.dp = 2, .micro_batch = 2, .global_batch = 6}),
            "expected global_batch to be a multiple of dp micro_batch = 4, found 6");
  EXPECT_EQ(message(shape_of(0), {}), "expected layers >= 1, found 0");
  EXPECT_EQ(message(shape_of(4), {.pp = 2, .virtual_stages = 2, .global_batch = 3}),
            "expected microbatches to be a multiple of the 2 stages of an interleaved pipeline, "
            "found 3");
  StepCosts broken = costs;
  broken.gpu = nullptr;
  EXPECT_FALSE(megatron_step(shape_of(4), {}, broken));
  EXPECT_FALSE(fsdp_step(shape_of(4), {}, broken));
  broken = costs;
  broken.collective_us = nullptr;
  EXPECT_FALSE(fsdp_step(shape_of(4), {}, broken));
  broken = costs;
  broken.host.forward_op_us = -1;
  EXPECT_FALSE(megatron_step(shape_of(4), {}, broken));
  broken = costs;
  broken.collective_us = [](const CollectiveCall&) {
    return std::numeric_limits<double>::quiet_NaN();
  };
  EXPECT_FALSE(megatron_step(shape_of(4), {.tp = 2}, broken));
  EXPECT_FALSE(megatron_step(shape_of(4), {.pp = 2}, broken));
  EXPECT_FALSE(megatron_step(shape_of(4), {.dp = 2, .global_batch = 2}, broken));
  EXPECT_FALSE(fsdp_step(shape_of(4), {.gpus = 2}, broken));
  EXPECT_FALSE(fsdp_step(shape_of(4), {.gpus = 0}, costs));
}

}  // namespace
}  // namespace perfmodel::parallel
