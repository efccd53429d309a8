// Collectives that ranks enter together, and the time that they agree on.
#include "predict/meet_collectives.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perfmodel {
namespace meet_collectives_test {

using ::testing::HasSubstr;

Price price_of(double us, Bound bound = Bound::kLink) {
  return {.time = Microseconds(us),
          .low = Microseconds(us - 1),
          .high = Microseconds(us + 1),
          .bound = bound};
}

TEST(Meetings, OfPredictionsTakeAsLongAsTheLongest) {
  Price short_one = price_of(5), long_one = price_of(7);
  agree_on_time(std::vector{&short_one, &long_one});
  EXPECT_EQ(short_one.time.count(), 7);
  EXPECT_EQ(short_one.low.count(), 4);
  EXPECT_EQ(short_one.high.count(), 7);  // not 6: the range holds the time
  EXPECT_EQ(long_one.time.count(), 7);
  EXPECT_EQ(long_one.high.count(), 8);
}

TEST(Meetings, OfTracesTakeAsLongAsTheShortest) {
  Price late = price_of(6, Bound::kMeasured), early = price_of(9, Bound::kMeasured),
        predicted = price_of(50);
  agree_on_time(std::vector{&late, &early, &predicted});
  for (const Price& price : {late, early, predicted}) {
    EXPECT_EQ(price.time.count(), 6);
    EXPECT_EQ(price.high.count(), 6);
  }
  EXPECT_EQ(early.low.count(), 6);  // was 8
}

// A rank whose program has only all-reduces with these numbers and times.
RankProgram rank_with(const ExecutionGraph& graph,
                      const std::vector<std::pair<std::int64_t, double>>& all_reduces) {
  RankProgram made{.rank = {.graph = &graph}};
  made.program.items.resize(1);
  for (const auto& [sequence, us] : all_reduces) {
    Launch launch{.term = Term::kCollective,
                  .kernel = static_cast<std::int32_t>(made.program.kernels.size()),
                  .collective = made.program.add({.sequence = sequence})};
    made.program.kernels.push_back({.name = "nccl:all_reduce", .price = price_of(us)});
    made.program.instructions.push_back({.what = std::move(launch)});
  }
  return made;
}

std::int32_t meeting(const RankProgram& rank, std::size_t instruction) {
  return rank.program.collective(*launch_of(rank.program.instructions[instruction])).meeting;
}

class MeetingRanks : public ::testing::Test {
 protected:
  ExecutionGraph graph_;
  std::vector<RankProgram> ranks_;
  std::vector<std::string> warnings_;
};

TEST_F(MeetingRanks, AreFoundByNumber) {
  ranks_.push_back(rank_with(graph_, {{1, 5}, {2, 20}}));
  ranks_.push_back(rank_with(graph_, {{1, 7}, {2, 10}}));
  ASSERT_EQ(meet_collectives(ranks_, false, warnings_).value(), 2);
  for (const RankProgram& rank : ranks_) {
    EXPECT_EQ(meeting(rank, 0), 0);
    EXPECT_EQ(meeting(rank, 1), 1);
    EXPECT_EQ(rank.program.kernels[0].price.time.count(), 7);
    EXPECT_EQ(rank.program.kernels[1].price.time.count(), 20);
  }
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(MeetingRanks, LeaveWhatOnlyOneHas) {
  ranks_.push_back(rank_with(graph_, {{1, 5}, {2, 20}}));
  ranks_.push_back(rank_with(graph_, {{1, 7}}));
  const auto strict = meet_collectives(ranks_, false, warnings_);
  ASSERT_FALSE(strict);
  EXPECT_THAT(strict.error().message, HasSubstr("rank 1 lacks all_reduce 2"));
  ASSERT_EQ(meet_collectives(ranks_, true, warnings_).value(), 1);
  EXPECT_EQ(meeting(ranks_[0], 1), -1);
  EXPECT_EQ(ranks_[0].program.kernels[1].price.time.count(), 20);
}

TEST_F(MeetingRanks, NeedAnotherRank) {
  ranks_.push_back(rank_with(graph_, {{1, 5}}));
  EXPECT_EQ(meet_collectives(ranks_, false, warnings_).value(), 0);
  EXPECT_EQ(meeting(ranks_[0], 0), -1);
}

}  // namespace meet_collectives_test
}  // namespace perfmodel
