#include "perfmodel/what_if.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include "perfmodel/graph/build_recommenders.hpp"

namespace perfmodel {
namespace what_if_test {

class WhatIf : public ::testing::Test {
 protected:
  WhatIf() {
    DlrmConfig config = dlrm_preset("ddp").value();
    config.batch = 256;
    graph_ = build_dlrm(config).value();
    const std::filesystem::path data = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data";
    table_ = read_overheads(data / "overheads" / "reference.json").value();
    for (const char* name : {"a100-sxm-40gb", "v100-sxm2-16gb"}) {
      targets_.push_back({.gpu = find_gpu(name, data / "gpus").value(), .overheads = &table_});
    }
  }

  // The same DLRM with another batch.
  static Variant batch(std::int64_t samples) {
    const auto rewrite = [samples](const ExecutionGraph&) {
      DlrmConfig config = dlrm_preset("ddp").value();
      config.batch = samples;
      return build_dlrm(config);
    };
    return {.name = std::to_string(samples), .rewrites = {{"--batch", rewrite}}};
  }

  static Variant refused() {
    const auto rewrite = [](const ExecutionGraph&) -> Result<ExecutionGraph> {
      return fail(ErrorCode::kImpossible, "expected something else");
    };
    return {.name = "refused", .rewrites = {{"--refuse", rewrite}}};
  }

  ExecutionGraph graph_;
  OverheadTable table_;
  std::vector<WhatIfTarget> targets_;
};

TEST_F(WhatIf, AnswersAreThoseOfPredict) {
  const std::vector<Variant> variants = {{.name = "as it is"}, batch(4096)};
  const auto answers = what_if(graph_, variants, targets_);
  ASSERT_EQ(answers.size(), 4U);
  for (const WhatIfAnswer& answer : answers) {
    ASSERT_FALSE(answer.error);
    const ExecutionGraph asked =
        answer.variant == 0 ? graph_ : variants[1].rewrites[0].apply(graph_).value();
    const auto expected = predict(asked, targets_[answer.target].gpu, table_).value();
    EXPECT_EQ(answer.e2e_us, expected.e2e_us);
    EXPECT_EQ(answer.gpu_active_us, expected.gpu_active_us);
    EXPECT_EQ(answer.ops, expected.ops.size());
    EXPECT_FALSE(answer.bound.empty());
    EXPECT_GT(answer.bound_share, 0);
    EXPECT_LE(answer.bound_share, 1 + 1e-9);
  }
  EXPECT_EQ(answers[1].target, 1U);
  EXPECT_EQ(answers[2].variant, 1U);
  EXPECT_GT(answers[2].gpu_active_us, answers[0].gpu_active_us);
}

TEST_F(WhatIf, StepsThatDoNotFitAreNotPriced) {
  const std::vector<Variant> variants = {batch(256), batch(16'777'216)};
  const auto all = what_if(graph_, variants, targets_);
  const auto fitting = what_if(graph_, variants, targets_, {.only_fitting = true});
  ASSERT_EQ(fitting.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].memory.fits(), i < 2);
    EXPECT_EQ(fitting[i].memory.needed_bytes(), all[i].memory.needed_bytes());
    EXPECT_EQ(fitting[i].e2e_us, all[i].memory.fits() ? all[i].e2e_us : 0);
    EXPECT_EQ(fitting[i].batch.has_value(), all[i].memory.fits());
  }
}

// Their ranks hold other parts of the step than one rank alone.
TEST_F(WhatIf, ScaledOutStepsArePricedWhetherTheyFitOrNot) {
  for (WhatIfTarget& target : targets_) {
    target.options.scale_out =
        ScaleOut{.world = 8, .strategy = ParallelStrategy::kDdp, .topology = nullptr};
  }
  const std::vector<Variant> variants = {batch(16'777'216)};
  const auto all = what_if(graph_, variants, targets_);
  const auto fitting = what_if(graph_, variants, targets_, {.only_fitting = true});
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_FALSE(all[i].error) << to_string(*all[i].error);
    EXPECT_GT(fitting[i].e2e_us, 0);
    EXPECT_EQ(fitting[i].e2e_us, all[i].e2e_us);
  }
}

// The share belongs to what is named, and is one of the step for all: host busy, or its kernels.
TEST_F(WhatIf, TheShareIsThatOfTheNamedBound) {
  const std::vector<Variant> variants = {batch(64), batch(4096), batch(32'768), batch(262'144)};
  const auto answers = what_if(graph_, variants, targets_);
  std::set<std::string> bounds;
  for (const WhatIfAnswer& answer : answers) {
    ASSERT_FALSE(answer.error);
    const ExecutionGraph asked = variants[answer.variant].rewrites[0].apply(graph_).value();
    const auto predicted = predict(asked, targets_[answer.target].gpu, table_).value();
    double works_us = answer.bound == "host" ? predicted.cpu_us : 0;
    for (const PredictedOp& op : predicted.ops) {
      for (const PredictedKernel& kernel : op.kernels) {
        if (to_string(kernel.family) == answer.bound) works_us += kernel.price.time.count();
      }
    }
    EXPECT_NEAR(answer.bound_share, std::min(1.0, works_us / predicted.e2e_us), 1e-9)
        << answer.bound;
    if (answer.bound != "host") {  // where both keep up with each other, the path decides
      EXPECT_GT(predicted.gpu_active_us, 0.95 * predicted.cpu_us) << answer.bound;
    }
    bounds.insert(answer.bound);
  }
  EXPECT_TRUE(bounds.contains("host"));
  EXPECT_GT(bounds.size(), 1U);
}

TEST_F(WhatIf, TheBatchOfEachVariantIsKnown) {
  const std::vector<Variant> variants = {{.name = "as it is"}, batch(4096)};
  const auto answers = what_if(graph_, variants, targets_);
  EXPECT_EQ(answers[0].batch, 256);
  EXPECT_EQ(answers[3].batch, 4096);
  EXPECT_DOUBLE_EQ(answers[3].samples_per_s().value(), 4096e6 / answers[3].e2e_us);
}

TEST_F(WhatIf, SharedRewritesAreAppliedOnce) {
  int applied = 0;
  Variant counted = batch(512);
  counted.rewrites[0].apply = [&, apply = counted.rewrites[0].apply](const ExecutionGraph& graph) {
    ++applied;
    return apply(graph);
  };
  Variant longer = counted, parted = batch(1024);
  longer.rewrites.push_back(batch(2048).rewrites[0]);
  longer.shared = 1;
  Variant again = longer;  // shares nothing with the one before it
  again.shared = 0;
  Variant refusal = counted;
  refusal.rewrites.push_back(refused().rewrites[0]);
  refusal.shared = 1;
  const std::vector<Variant> variants = {counted, longer, refusal, longer, parted, again};
  const auto answers = what_if(graph_, variants, targets_, {.threads = 1});
  EXPECT_EQ(applied, 2);
  std::vector<std::int64_t> batches;
  for (std::size_t i = 0; i < answers.size(); i += targets_.size()) {
    batches.push_back(answers[i].error ? 0 : answers[i].batch.value());
  }
  EXPECT_THAT(batches, ::testing::ElementsAre(512, 2048, 0, 2048, 1024, 2048));
}

TEST_F(WhatIf, ARefusalIsAnAnswerAndLeavesTheOthersAlone) {
  const std::vector<Variant> variants = {{.name = "as it is"}, refused(), batch(512)};
  const auto answers = what_if(graph_, variants, targets_);
  ASSERT_EQ(answers.size(), 6U);
  for (const WhatIfAnswer& answer : answers)
    EXPECT_EQ(answer.error.has_value(), answer.variant == 1);
  EXPECT_THAT(to_string(*answers[2].error), ::testing::HasSubstr("expected something else"));
}

TEST_F(WhatIf, ThreadsChangeNothing) {
  std::vector<Variant> variants;
  for (int i = 1; i <= 12; ++i) variants.push_back(batch(64 * i));
  const auto one = what_if(graph_, variants, targets_, {.threads = 1});
  std::size_t calls = 0, last = 0;
  const auto four =
      what_if(graph_, variants, targets_, {.threads = 4, .progress = [&](std::size_t done) {
                                             ++calls;
                                             EXPECT_EQ(done, ++last);
                                           }});
  EXPECT_EQ(calls, variants.size());
  ASSERT_EQ(one.size(), four.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one[i].variant, four[i].variant);
    EXPECT_EQ(one[i].target, four[i].target);
    EXPECT_EQ(one[i].e2e_us, four[i].e2e_us);
    EXPECT_EQ(one[i].bound, four[i].bound);
  }
}

}  // namespace what_if_test
}  // namespace perfmodel
