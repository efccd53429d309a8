#include "rewrites/rewrite_options.hpp"

#include <gtest/gtest.h>

#include <set>

#include "rewrites/rewrite_texts.hpp"

namespace perfmodel {
namespace {

TEST(RewriteOptions, FlagsDifferAndAreFoundWithAndWithoutDashes) {
  std::set<std::string> flags;
  for (const RewriteOption& option : rewrite_options()) {
    EXPECT_TRUE(flags.insert(option.flag).second) << option.flag;
    EXPECT_EQ(find_rewrite_option(option.flag), &option);
    EXPECT_EQ(find_rewrite_option(option.flag.substr(2)), &option);
    EXPECT_FALSE(option.help.empty());
  }
  EXPECT_EQ(find_rewrite_option("--no-such-rewrite"), nullptr);
}

TEST(RewriteOptions, ARewriteIsNamedAsACommandLineSaysIt) {
  EXPECT_EQ(named_rewrite(*find_rewrite_option("batch"), "1024")->name, "--batch 1024");
  EXPECT_EQ(named_rewrite(*find_rewrite_option("channels-last"), "")->name, "--channels-last");
  EXPECT_EQ(named_rewrite(*find_rewrite_option("compiled"), "")->launching, Launching::kCompiled);
  EXPECT_EQ(named_rewrite(*find_rewrite_option("batch"), "0").error().message,
            "expected a size of at least 1, or OLD=NEW, found 0");
}

TEST(RewriteOptions, DetailsFollowTheValue) {
  const RewriteOption& option = *find_rewrite_option("hash-weights");
  const std::string value = with_detail("aten::linear", option.details.front(), "50");
  EXPECT_EQ(value, "aten::linear:compression=50");
  const auto options = read_hashed_weights(value + ":scheme=robe");
  ASSERT_TRUE(options.has_value());
  EXPECT_EQ(options->pattern, "aten::linear");
  EXPECT_EQ(options->compression, 50);
  EXPECT_EQ(options->scheme, HashedWeightOptions::Scheme::kRobe);
}

TEST(RewriteTexts, Sizes) {
  const auto batch = read_batch_size("512=1024@545:0+557:1");
  ASSERT_TRUE(batch.has_value());
  EXPECT_EQ(batch->batch, 1024);
  EXPECT_EQ(batch->current, 512);
  ASSERT_EQ(batch->inputs.size(), 2U);
  EXPECT_EQ(batch->inputs[1].dim, 1);
  EXPECT_FALSE(read_batch_size("8@545").has_value());
  EXPECT_EQ(read_sequence_length("128")->length, 128);
  EXPECT_FALSE(read_sequence_length("=128").has_value());
}

TEST(RewriteTexts, PatternsWithAValue) {
  const auto time = read_kernel_time("a=b=12.5");
  ASSERT_TRUE(time.has_value());
  EXPECT_EQ(time->pattern, "a=b");
  EXPECT_EQ(time->value, 12.5);
  EXPECT_FALSE(read_kernel_time("aten::mm").has_value());
  EXPECT_FALSE(read_kernel_scale("aten::mm=1e7").has_value());
  EXPECT_FALSE(read_pattern("").has_value());
}

TEST(RewriteTexts, Optimizers) {
  EXPECT_FALSE(read_optimizer("adam")->implementation.has_value());
  EXPECT_FALSE(read_optimizer("fused")->optimizer.has_value());
  const auto both = read_optimizer("adam/8bit");
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->optimizer, TrainingOptions::Optimizer::kAdam);
  EXPECT_EQ(both->implementation, TrainingOptions::Implementation::kEightBit);
  EXPECT_FALSE(read_optimizer("fused/adam").has_value());
}

TEST(RewriteTexts, DataParallel) {
  const auto rewrite = read_data_parallel("8,cap=50,split=2,views");
  ASSERT_TRUE(rewrite.has_value());
  EXPECT_EQ(rewrite->world_size, 8);
  EXPECT_EQ(rewrite->bucket_cap_bytes, 50 << 20);
  EXPECT_EQ(rewrite->split_bytes, 2 << 20);
  EXPECT_TRUE(rewrite->gradient_as_bucket_view);
  for (const char* text : {"", "0", "8,", "8,cap=0", "views"}) {
    EXPECT_EQ(read_data_parallel(text).has_value(), std::string_view(text) == "8,") << text;
  }
}

TEST(RewriteTexts, LayersThatAreCounted) {
  EXPECT_EQ(read_recomputation("attention:12")->layers.count, 12);
  EXPECT_FALSE(read_recomputation("none:12").has_value());
  EXPECT_FALSE(read_recomputation("full:0").has_value());
  EXPECT_EQ(read_in_place("gelu+layernorm:3")->layer_norm->count, 3);
  EXPECT_FALSE(read_in_place("gelu,gelu").has_value());
  EXPECT_EQ(read_checkpointing("4,masks")->every, 4);
  EXPECT_TRUE(read_checkpointing("4,masks")->keep_masks);
  EXPECT_EQ(read_checkpointing("layer")->label, "layer");
  EXPECT_FALSE(read_checkpointing("-1").has_value());
}

}  // namespace
}  // namespace perfmodel
