#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <numeric>

#include "memory/step_memory.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/memory.hpp"
#include "predictor_cases.hpp"
#include "rewrite/memory/shortened_step.hpp"

namespace perfmodel {
namespace step_memory_test {

constexpr double kMib = 1 << 20, kGib = 1 << 30;

ExecutionGraph gpt_of(int layers, std::int64_t batch,
                      TrainingOptions::Optimizer optimizer = TrainingOptions::Optimizer::kAdamW) {
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = layers;
  config.batch = batch;
  config.sequence = 256;
  config.training.optimizer = optimizer;
  return build_gpt(config).value();
}

Gpu gpu_named(const char* name) {
  return find_gpu(name, test_support::source_data() / "gpus").value();
}

TEST(StepMemory, PurposesAddUpToWhatIsNeeded) {
  const ExecutionGraph graph = gpt_of(4, 8);
  const Gpu gpu = gpu_named("a100-sxm-40gb");
  const PredictedMemory memory = memory_report(graph, &gpu).memory;
  const double sum = std::accumulate(memory.by_purpose.begin(), memory.by_purpose.end(), 0.0);
  EXPECT_NEAR(sum, memory.needed_bytes(), 1);
  EXPECT_EQ(memory.needed_bytes(), memory.peak_reserved_bytes + memory.context_bytes);
  // Two BLAS handles: the main thread's and autograd's.
  EXPECT_EQ(at(memory.by_purpose, MemoryPurpose::kWorkspace),
            2.0 * static_cast<double>(gpu.architecture.blas_workspace_bytes));
  EXPECT_GE(memory.peak_reserved_bytes, memory.peak_allocated_bytes);
  EXPECT_LE(memory.low_bytes(), memory.needed_bytes());
  EXPECT_GE(memory.high_bytes(), memory.needed_bytes());
  EXPECT_EQ(memory.device_bytes, gpu.usable_memory().value);
}

// Layers that are cut out are gone whole: no weights, no gradients, no state of the
// optimizer.
TEST(ShortenedStep, HasTheMemoryOfAModelWithFewLayers) {
  using Optimizer = TrainingOptions::Optimizer;
  for (const auto optimizer : {Optimizer::kAdamW, Optimizer::kSgd, Optimizer::kMomentum}) {
    const auto shortened = shortened_step(gpt_of(12, 8, optimizer));
    ASSERT_TRUE(shortened);
    EXPECT_EQ(shortened->layers, 12);
    for (const auto& [cut, layers] :
         {std::pair{&shortened->with_three, 3}, std::pair{&shortened->with_four, 4}}) {
      const ExecutionGraph built = gpt_of(layers, 8, optimizer);
      EXPECT_EQ(cut->nodes.size(), built.nodes.size());
      const MemoryReport expected = memory_report(built, nullptr);
      EXPECT_EQ(memory_report(*cut, nullptr).each_peak, expected.each_peak);
    }
  }
  EXPECT_FALSE(shortened_step(gpt_of(4, 8))) << "too few to be worth it";
}

// No purpose takes less at its own peak than at the common one, and weights, optimizer state and
// gradients are 4, 8 and 4 bytes per parameter.
TEST(StepMemory, AdamHoldsSixteenBytesPerParameter) {
  const ExecutionGraph graph = gpt_of(2, 4);
  const MemoryReport report = memory_report(graph, nullptr);
  const double weights = at(report.each_peak, MemoryPurpose::kWeights);
  // Masks of positions are weights without gradient: 2 layers of 1024 x 1024 bytes.
  const double parameters = weights - 2 * kMib;
  EXPECT_NEAR(at(report.each_peak, MemoryPurpose::kGradients), parameters, 1e-3 * parameters);
  EXPECT_NEAR(at(report.each_peak, MemoryPurpose::kOptimizer), 2 * parameters, 1e-3 * parameters);
  for (std::size_t i = 0; i < kMemoryPurposes; ++i) {
    if (i == static_cast<std::size_t>(MemoryPurpose::kReserve)) continue;
    EXPECT_GE(report.each_peak[i], report.memory.by_purpose[i]) << i;
  }
}

TEST(StepMemory, TheCurvePeaksWhereTheReportSays) {
  const ExecutionGraph graph = gpt_of(3, 8);
  const MemoryReport report = memory_report(graph, nullptr, {.curve = true});
  ASSERT_FALSE(report.curve.empty());
  double most = 0;
  for (const MemoryPoint& point : report.curve) {
    most = std::max(most, std::accumulate(point.bytes.begin(), point.bytes.end(), 0.0));
    for (double bytes : point.bytes) EXPECT_GE(bytes, 0);
  }
  // Blocks may be larger than their storages by the rest that is not split off.
  EXPECT_LE(most, report.memory.peak_allocated_bytes);
  EXPECT_GE(most, 0.97 * report.memory.peak_allocated_bytes);
  // A step ends with the bytes that it began with.
  const MemoryByPurpose& end = report.curve.back().bytes;
  EXPECT_EQ(at(end, MemoryPurpose::kActivations), 0);
  EXPECT_EQ(at(end, MemoryPurpose::kTemporaries), 0);
  // The largest come first, and are alive at the peak.
  ASSERT_EQ(report.largest.size(), 10U);
  for (std::size_t i = 1; i < report.largest.size(); ++i) {
    EXPECT_GE(report.largest[i - 1].bytes, report.largest[i].bytes);
  }
}

TEST(StepMemory, ForwardPassAloneKeepsWhatTrainingKeeps) {
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = 2;
  config.batch = 4;
  config.sequence = 128;
  const double training = memory_report(build_gpt(config).value(), nullptr).memory.activation_bytes;
  config.training.phase = TrainingOptions::Phase::kForward;
  const double forward = memory_report(build_gpt(config).value(), nullptr).memory.activation_bytes;
  EXPECT_NEAR(forward, training, 0.02 * training);
}

double beyond_allocated(const ExecutionGraph& graph, bool expandable_segments) {
  const PredictedMemory memory =
      memory_report(graph, nullptr, {.expandable_segments = expandable_segments}).memory;
  return memory.peak_reserved_bytes - memory.peak_allocated_bytes;
}

TEST(StepMemory, ExpandableSegmentsReserveLittleMoreThanPages) {
  // A page of 20 MiB and one of 2 MiB are begun; holes between blocks are small.
  const ExecutionGraph resnet = build_resnet(resnet_preset("resnet18").value()).value();
  EXPECT_LE(beyond_allocated(resnet, true), 64 * kMib);
  EXPECT_GE(beyond_allocated(resnet, false), 100 * kMib);
}

// The logits of all tokens, 412 MB, and those that have a next token, 410 MB: in the second step
// smaller blocks lie where these were, and a third one needs new pages.
TEST(StepMemory, ExpandableSegmentsAreTornByLargeBlocks) {
  const ExecutionGraph gpt = gpt_of(6, 8);
  EXPECT_LE(beyond_allocated(gpt, true), beyond_allocated(gpt, false));
  EXPECT_GE(beyond_allocated(gpt, true), 200 * kMib);
}

// Buckets hold all gradients once more, unless gradients are pieces of them.
TEST(StepMemory, GradientsThatAreViewsOfBucketsTakeNothingElse) {
  const ExecutionGraph alone = gpt_of(4, 2);
  const auto needed = [](const ExecutionGraph& graph) {
    const MemoryReport report = memory_report(graph, nullptr);
    return at(report.each_peak, MemoryPurpose::kGradients) +
           at(report.each_peak, MemoryPurpose::kCommunication);
  };
  const double gradients = needed(alone);
  const auto copied = rewrite_data_parallel(alone, {.world_size = 4});
  const auto views =
      rewrite_data_parallel(alone, {.world_size = 4, .gradient_as_bucket_view = true});
  ASSERT_TRUE(copied && views);
  EXPECT_NEAR(needed(*copied), 2 * gradients, 1e-3 * gradients);
  EXPECT_NEAR(needed(*views), gradients, 1e-3 * gradients);
}

#ifndef PERFMODEL_SANITIZED
double milliseconds_of_report(const ExecutionGraph& graph, const Gpu& gpu) {
  double least = 1e9;
  for (int i = 0; i < 5; ++i) {
    const std::clock_t begin = std::clock();  // only this process: others may run in parallel
    EXPECT_GT(memory_report(graph, &gpu).memory.peak_allocated_bytes, 0);
    least = std::min(least, 1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return least;
}

TEST(StepMemory, IsFast) {
  const Gpu gpu = gpu_named("h100-sxm-80gb");
  const double dlrm = milliseconds_of_report(build_dlrm(dlrm_preset("ddp").value()).value(), gpu);
  GptConfig config = gpt_preset("gpt3-175b").value();
  config.training.optimizer = TrainingOptions::Optimizer::kAdam;
  config.training.implementation = TrainingOptions::Implementation::kLoop;
  config.layers = 170;
  const ExecutionGraph gpt3 = build_gpt(config).value();
  EXPECT_GE(gpt3.nodes.size(), 100'000U);
  const double large = milliseconds_of_report(gpt3, gpu);
  std::printf("memory of a DLRM: %.2f ms, of %zu nodes: %.1f ms\n", dlrm, gpt3.nodes.size(), large);
  EXPECT_LT(dlrm, 2);
  EXPECT_LT(large, 150);
}
#endif

struct EdgeCase {
  const char* name;
  ExecutionGraph graph;
};

std::vector<EdgeCase> edge_cases() {
  std::vector<EdgeCase> cases;
  cases.push_back({"gpt", gpt_of(12, 3)});
  cases.push_back({"gpt, too large", gpt_of(12, 4096)});
  cases.push_back({"dlrm", build_dlrm(dlrm_preset("ddp").value()).value()});
  cases.push_back({"mlp", build_mlp(mlp_preset("mnist").value()).value()});
  return cases;
}

TEST(LargestBatch, IsTheEdge) {
  for (const char* name : {"t4", "a100-sxm-40gb", "h200-sxm-141gb"}) {
    const Gpu gpu = gpu_named(name);
    for (const EdgeCase& each : edge_cases()) {
      SCOPED_TRACE(std::string(name) + ", " + each.name);
      const auto most = largest_batch(each.graph, gpu);
      ASSERT_TRUE(most) << to_string(most.error());
      EXPECT_LE(most->rewrites, 12);
      std::printf("%-16s %-16s batch %9lld of %6.2f GiB, %d rewrites\n", name, each.name,
                  static_cast<long long>(most->batch), most->memory.needed_bytes() / kGib,
                  most->rewrites);
      ASSERT_GT(most->batch, 0);
      const auto fits = [&](std::int64_t batch) {
        const auto graph = set_batch_size(each.graph, {.batch = batch}).value();
        return memory_report(graph, &gpu).memory.fits();
      };
      EXPECT_TRUE(fits(most->batch));
      EXPECT_FALSE(fits(most->batch + 1));
    }
  }
}

TEST(LargestBatch, IsThatOfTheSameAllocator) {
  const Gpu gpu = gpu_named("t4");
  const ExecutionGraph graph = gpt_of(12, 3);
  const auto most = largest_batch(graph, gpu, true);
  ASSERT_TRUE(most) << to_string(most.error());
  for (const std::int64_t more : {0, 1}) {
    const auto resized = set_batch_size(graph, {.batch = most->batch + more}).value();
    const MemoryReport report = memory_report(resized, &gpu, {.expandable_segments = true});
    EXPECT_EQ(report.memory.fits(), more == 0) << more;
  }
}

TEST(LargestBatch, IsNoneWhereOneSampleIsTooMuch) {
  const auto most = largest_batch(gpt_of(200, 8), gpu_named("t4"));
  ASSERT_TRUE(most);
  EXPECT_EQ(most->batch, 0);
  EXPECT_FALSE(most->next.fits());
}

TEST(BytesPerSample, AreThoseOfTheActivationsOfOneSample) {
  const ExecutionGraph eight = gpt_of(4, 8), nine = gpt_of(4, 9);
  const double each = bytes_per_sample(eight, 8).value();
  const auto in_use = [](const ExecutionGraph& graph) {
    const PredictedMemory memory = memory_report(graph, nullptr).memory;
    return std::accumulate(memory.by_purpose.begin(), memory.by_purpose.end(), 0.0) -
           at(memory.by_purpose, MemoryPurpose::kReserve);
  };
  EXPECT_NEAR(each, in_use(nine) - in_use(eight), 0.01 * each);
}

}  // namespace step_memory_test
}  // namespace perfmodel
