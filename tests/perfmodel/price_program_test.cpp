// The pricing stage: its questions to traces and models, and how nodes and shards change the
// answers.
#include "program/price_program.hpp"

#include <gtest/gtest.h>

#include "../predictors/graph_fixture.hpp"
#include "program/call_costs.hpp"
#include "program/given_times.hpp"
#include "program/warm_inputs.hpp"

namespace perfmodel {
namespace price_program_test {

using test_support::round_gpu;

Price price_of(double us) {
  return {.time = Microseconds(us), .low = Microseconds(us / 2), .high = Microseconds(us * 2)};
}

// Everything takes the same time.
class Constant final : public KernelModel {
 public:
  explicit Constant(double us) : us_(us) {}
  Price price(const KernelWork&, const Gpu&) const override { return price_of(us_); }

 private:
  double us_;
};

class Pricing : public ::testing::Test {
 protected:
  Pricing() { models_.set(KernelFamily::kElementwise, &ten_); }

  Price asked(const KernelQuestion& question) const {
    return asked_price(question, round_gpu(), {.models = &models_}, &hundred_);
  }

  const Constant ten_{10}, hundred_{100};
  KernelModels models_ = KernelModels::heuristic();
  const KernelWork work_{.family = KernelFamily::kElementwise};
};

TEST_F(Pricing, AsksTheModelOfTheFamily) {
  const Price price = asked({.work = work_});
  EXPECT_EQ(price.time.count(), 10);
  EXPECT_EQ(price.low.count(), 5);
  EXPECT_EQ(price.high.count(), 20);
}

TEST_F(Pricing, CountsEachTaskOfOneLaunch) {
  const Price price = asked({.work = work_, .tasks = 3});
  EXPECT_EQ(price.time.count(), 30);
  EXPECT_EQ(price.high.count(), 60);
}

TEST_F(Pricing, AsksTheJobsModelForItsCollectives) {
  EXPECT_EQ(asked({.work = work_, .of_job = true}).time.count(), 100);
}

TEST_F(Pricing, TakesTracedTimesAsTheyAre) {
  const KernelTimes::Time traced{.us = 7};
  const Price price = asked({.work = work_, .tasks = 3, .traced = &traced, .of_job = true});
  EXPECT_EQ(price.time.count(), 7);
  EXPECT_EQ(price.low.count(), 7);
  EXPECT_EQ(price.high.count(), 7);
  EXPECT_EQ(price.bound, Bound::kMeasured);
  EXPECT_EQ(price.model, "as-traced");
}

TEST_F(Pricing, ComesBeforeScalesAndThoseBeforeShares) {
  ExecutionGraph graph;
  graph.nodes.push_back({.kernel_time_scale = 2});
  LoweredProgram lowered;
  lowered.nodes_say_times = true;
  lowered.program.items.push_back({.kernels = 1});
  lowered.program.kernels.resize(1);
  lowered.questions.push_back({.work = work_, .node = 0, .share = 0.25});
  price_program(graph, round_gpu(), {.models = &models_}, lowered);
  EXPECT_EQ(lowered.program.kernels[0].price.time.count(), 10. * 2 / 4);
  EXPECT_EQ(lowered.program.kernels[0].given_scale, 2);
}

TEST(Shares, DivideTheTimeDownToTheShortestKernel) {
  const auto shared = [](double us) {
    Price price = price_of(us);
    keep_share(price, 0.25);
    return price.time.count();
  };
  EXPECT_EQ(shared(100), 25);
  EXPECT_EQ(shared(8), 2);
  EXPECT_EQ(shared(4), 2);  // not 1: no kernel takes less than 2 us
  EXPECT_EQ(shared(1), 1);  // but this one did
}

TEST(Shares, LeaveMeasuredTimes) {
  Price price = price_of(100);
  price.bound = Bound::kMeasured;
  keep_share(price, 0.25);
  EXPECT_EQ(price.time.count(), 100);
}

// Node 1 is below node 0, node 2 next to it.
class GivenTimes : public ::testing::Test {
 protected:
  GivenTimes() {
    graph_.nodes.resize(3);
    graph_.nodes[0].parent = graph_.nodes[2].parent = -1;
    graph_.nodes[1].parent = 0;
  }

  void add(std::int32_t node, double us) {
    questions_.push_back({.node = node});
    kernels_.push_back({.price = price_of(us)});
  }
  double us(std::size_t kernel) const { return kernels_[kernel].price.time.count(); }

  ExecutionGraph graph_;
  std::vector<KernelQuestion> questions_;
  std::vector<PredictedKernel> kernels_;
};

TEST_F(GivenTimes, ScalesOfNestedNodesMultiply) {
  graph_.nodes[0].kernel_time_scale = 2;
  graph_.nodes[1].kernel_time_scale = 3;
  add(0, 10);
  add(1, 10);
  add(2, 10);
  scale_as_told(graph_, questions_, kernels_);
  EXPECT_EQ(us(0), 20);
  EXPECT_EQ(us(1), 60);
  EXPECT_EQ(us(2), 10);
  EXPECT_EQ(kernels_[1].given_scale, 6);
  EXPECT_EQ(kernels_[1].price.low.count(), 30);
}

TEST_F(GivenTimes, AreDividedAsPredicted) {
  graph_.nodes[0].kernel_time_us = 12;
  add(0, 10);
  add(1, 30);
  add(2, 5);
  give_times(graph_, questions_, kernels_);
  EXPECT_EQ(us(0), 3);  // 12 us * 10 / 40
  EXPECT_EQ(us(1), 9);
  EXPECT_EQ(us(2), 5);
  EXPECT_EQ(kernels_[0].price.bound, Bound::kMeasured);
  EXPECT_EQ(kernels_[0].price.model, "given");
  EXPECT_EQ(kernels_[2].price.model, "");
}

TEST_F(GivenTimes, AreDividedEquallyWherePricesAreNothing) {
  graph_.nodes[0].kernel_time_us = 12;
  add(0, 0);
  add(1, 0);
  give_times(graph_, questions_, kernels_);
  EXPECT_EQ(us(0), 6);
  EXPECT_EQ(us(1), 6);
}

TEST_F(GivenTimes, OfTheOutermostNodeCount) {
  graph_.nodes[0].kernel_time_us = 12;
  graph_.nodes[1].kernel_time_us = 99;
  EXPECT_EQ(giver_of_time(graph_, 1), 0);
  EXPECT_EQ(giver_of_time(graph_, 2), -1);
  add(1, 10);
  give_times(graph_, questions_, kernels_);
  EXPECT_EQ(us(0), 12);
}

// A tensor is written and read again, with another kernel between.
class WarmInputs : public ::testing::Test {
 protected:
  WarmInputs() {
    gpu_.architecture = test_support::architecture("hopper");
    gpu_.l2_size = {10e6};
  }

  // Time of the reader of `bytes`, 100 us otherwise.
  double reader_us(double bytes, double bytes_between = 0, const KernelWork& like = {}) const {
    test_support::GraphFixture made;
    const auto tensor = [&](double size) {
      return made.tensor({static_cast<std::int64_t>(size / 4)});
    };
    const Argument between = tensor(bytes_between), mine = tensor(bytes);
    made.node("aten::relu", {tensor(bytes)}, {mine});
    made.node("aten::relu", {between}, {tensor(bytes_between)});
    made.node("aten::relu", {mine}, {tensor(bytes)});
    std::vector<KernelQuestion> questions(3, {.work = like});
    const double sizes[] = {bytes, bytes_between, bytes};
    for (std::int32_t i = 0; i < 3; ++i) {
      questions[i].node = i;
      questions[i].work.bytes_read = questions[i].work.bytes_written = {sizes[i]};
    }
    std::vector<PredictedKernel> kernels(3, {.price = price_of(100)});
    take_warm_inputs(made.graph(), questions, gpu_, kernels);
    EXPECT_EQ(kernels[0].price.time.count(), 100);
    EXPECT_DOUBLE_EQ(kernels[2].price.high.count(), 2 * kernels[2].price.time.count());
    return kernels[2].price.time.count();
  }

  Gpu gpu_ = round_gpu();
  const KernelWork relu_{.family = KernelFamily::kElementwise};
};

TEST_F(WarmInputs, SaveTheirShareOfTheTimeAboveAnEmptyKernels) {
  EXPECT_DOUBLE_EQ(reader_us(1e6, 0, relu_), 100 - 0.88 / 2 * (100 - 1.6));
  EXPECT_DOUBLE_EQ(reader_us(1e6, 1e6, relu_), reader_us(1e6, 0, relu_));
}

TEST_F(WarmInputs, LeaveTheCacheAsOtherBytesAreTouched) {
  double before = 0;
  for (const double between : {0., 1.5e6, 2e6, 3e6, 4e6, 5e6}) {
    const double us = reader_us(1e6, between, relu_);
    EXPECT_GE(us, before);
    before = us;
  }
  EXPECT_EQ(before, 100);
  EXPECT_EQ(reader_us(6e6, 0, relu_), 100);  // larger than the cache itself
}

TEST_F(WarmInputs, CountWhereTheyWereMeasured) {
  KernelWork product{.family = KernelFamily::kGemm};
  EXPECT_EQ(reader_us(1e6, 0, product), 100);
  KernelWork backward{.family = KernelFamily::kNorm, .shape = RowShape{.is_channel = true}};
  EXPECT_EQ(reader_us(1e6, 0, backward), 100);
  gpu_.architecture = test_support::architecture("ampere");
  EXPECT_EQ(reader_us(1e6, 0, relu_), 100);
}

TEST(SyncCosts, AreTheShorterTimeAndWhatWakingAdds) {
  OverheadTable table;
  table.t4["sync idle"].mean_us = 2;
  table.t4["sync wake"].mean_us = 5;
  const SyncCost cost = sync_cost(table, "sync");
  EXPECT_EQ(cost.host_us, 2);
  EXPECT_EQ(cost.latency_us, 3);
  table.t4["sync idle"].mean_us = 6;  // an idle call that polls
  EXPECT_EQ(sync_cost(table, "sync").host_us, 5);
  EXPECT_EQ(sync_cost(table, "sync").latency_us, 0);
}

}  // namespace price_program_test
}  // namespace perfmodel
