#include "record/match_collectives.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace perfmodel {
namespace match_collectives_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Ranks = std::vector<std::vector<RankCollective>>;
using Members = std::vector<std::int32_t>;

Result<CollectiveMatch> match(const Ranks& ranks, const MatchOptions& options = {}) {
  std::vector<std::string> names;
  for (std::size_t r = 0; r < ranks.size(); ++r) names.push_back("rank" + std::to_string(r));
  return match_collectives(ranks, names, options);
}

CollectiveMatch value(const Ranks& ranks, const MatchOptions& options = {}) {
  auto found = match(ranks, options);
  if (!found) {
    ADD_FAILURE() << to_string(found.error());
    return {};
  }
  return std::move(*found);
}

std::string error(const Ranks& ranks, const MatchOptions& options = {}) {
  const auto found = match(ranks, options);
  if (found) {
    ADD_FAILURE() << "expected an error";
    return {};
  }
  EXPECT_EQ(found.error().code, ErrorCode::kImpossible);
  return found.error().message;
}

RankCollective numbered(std::int64_t sequence, const std::string& group = "0",
                        const std::string& kind = "all_reduce", std::int64_t elements = 100) {
  return {.kind = kind,
          .process_group = group,
          .sequence = sequence,
          .in_elements = elements,
          .start_us = 1000.0 * static_cast<double>(sequence),
          .end_us = 1000.0 * static_cast<double>(sequence) + 100};
}

RankCollective timed(double end_us, const std::string& kind = "all_reduce") {
  return {.kind = kind, .start_us = end_us - 100, .end_us = end_us};
}

// Ends that repeat in no other distance.
std::vector<RankCollective> timed_run(double clock_us) {
  std::vector<RankCollective> made;
  double end = 10'000;
  for (int i = 0; i < 10; ++i) {
    made.push_back(timed(clock_us + end));
    end += 1'000 + 370 * i * i;
  }
  return made;
}

// ---- by number

TEST(MatchCollectives, MatchesByNumberWhateverThePosition) {
  const CollectiveMatch found =
      value({{numbered(4), numbered(5), numbered(6)}, {numbered(5), numbered(4), numbered(6)}});
  EXPECT_THAT(found.groups, ElementsAre(Members{0, 1}, Members{1, 0}, Members{2, 2}));
  EXPECT_FALSE(found.by_end_time);
  EXPECT_EQ(found.unmatched, 0u);
  EXPECT_THAT(found.clock_offset_us, ElementsAre(0, 0));
  EXPECT_THAT(found.warnings, IsEmpty());
}

TEST(MatchCollectives, OfSeveralKernelsOfOneNumberTheLastCounts) {
  const CollectiveMatch found = value({{numbered(1), numbered(1)}, {numbered(1)}});
  EXPECT_THAT(found.groups, ElementsAre(Members{1, 0}));
}

TEST(MatchCollectives, ProcessGroupsHaveTheirOwnNumbers) {
  // World "0" of all four, pairs "a" of ranks 0 and 1, "b" of ranks 2 and 3.
  const Ranks ranks{{numbered(1), numbered(1, "a")},
                    {numbered(1, "a"), numbered(1)},
                    {numbered(1), numbered(1, "b")},
                    {numbered(1), numbered(1, "b")}};
  const CollectiveMatch found = value(ranks);
  EXPECT_THAT(found.groups, UnorderedElementsAre(Members{0, 1, 0, 0}, Members{1, 0, -1, -1},
                                                 Members{-1, -1, 1, 1}));
  EXPECT_EQ(found.unmatched, 0u);
}

// A pipeline's sends and receives are numbered per rank: 0 to 1 and 1 to 2 share numbers by chance.
TEST(MatchCollectives, MessagesBetweenTwoRanksAreLeftOut) {
  const Ranks ranks{{numbered(1), numbered(2, "0", "send"), numbered(3)},
                    {numbered(1), numbered(2, "0", "recv"), numbered(3)},
                    {numbered(1), numbered(3)}};
  const CollectiveMatch found = value(ranks);
  EXPECT_THAT(found.groups, UnorderedElementsAre(Members{0, 0, 0}, Members{2, 2, 1}));
  EXPECT_THAT(found.warnings, ElementsAre(HasSubstr("2 sends and receives")));
}

// Two programs on one host: a few ends meet by chance, whatever the offset.
TEST(MatchCollectives, AFewEndsTogetherMakeNoJob) {
  std::vector<RankCollective> one, other;
  for (int i = 0; i < 20; ++i) {
    one.push_back(timed(10'000 + 1'000 * i * i));
    other.push_back(timed(10'000 + 7'777 * i));
  }
  EXPECT_THAT(error({one, other}), HasSubstr("expected ranks of one job, found that of 20"));
  EXPECT_TRUE(match({one, other}, {.missing_ranks = true}));
}

TEST(MatchCollectives, AFirstOrLastCollectiveMissingLiesOutsideOfTheWindow) {
  const CollectiveMatch found =
      value({{numbered(1), numbered(2), numbered(3)}, {numbered(2), numbered(3), numbered(4)}});
  EXPECT_THAT(found.groups,
              ElementsAre(Members{0, -1}, Members{1, 0}, Members{2, 1}, Members{-1, 2}));
  EXPECT_EQ(found.unmatched, 2u);
  EXPECT_THAT(found.warnings, IsEmpty());
}

TEST(MatchCollectives, OneMissingInTheMiddleIsAnErrorThatNamesItAndTheRank) {
  const Ranks ranks{{numbered(1), numbered(2), numbered(3)}, {numbered(1), numbered(3)}};
  const std::string message = error(ranks);
  EXPECT_THAT(message, HasSubstr("rank1 lacks all_reduce 2 of process group \"0\" of rank0"));
  const CollectiveMatch found = value(ranks, {.missing_ranks = true});
  EXPECT_THAT(found.groups, ElementsAre(Members{0, 0}, Members{1, -1}, Members{2, 1}));
  EXPECT_THAT(found.warnings, ElementsAre(HasSubstr("rank1 lacks all_reduce 2")));
  EXPECT_EQ(found.unmatched, 1u);
}

TEST(MatchCollectives, OneMissingOnTheFirstRankIsFoundToo) {
  EXPECT_THAT(error({{numbered(1), numbered(3)}, {numbered(1), numbered(2), numbered(3)}}),
              HasSubstr("rank0 lacks all_reduce 2"));
}

TEST(MatchCollectives, KindsThatDifferUnderOneNumberAreAnError) {
  const std::string message = error({{numbered(7)}, {numbered(7, "0", "all_gather")}});
  EXPECT_THAT(message, HasSubstr("collective 7 of process group \"0\""));
  EXPECT_THAT(message, HasSubstr("all_reduce in rank0 and all_gather in rank1"));
}

TEST(MatchCollectives, SizesThatDifferAreAnError) {
  const std::string message = error(
      {{numbered(7)}, {numbered(7, "0", "all_reduce", 100)}, {numbered(7, "0", "all_reduce", 64)}});
  EXPECT_THAT(message, HasSubstr("all_reduce 7 of process group \"0\""));
  EXPECT_THAT(message, HasSubstr("100 elements in rank0 and 64 in rank2"));
}

TEST(MatchCollectives, SizesThatDifferWithinASubgroupAreAnError) {
  EXPECT_THAT(error({{numbered(1)},
                     {numbered(1), numbered(1, "a")},
                     {numbered(1), numbered(1, "a", "all_reduce", 64)}}),
              HasSubstr("100 elements in rank1 and 64 in rank2"));
}

TEST(MatchCollectives, AnAllToAllMayGiveEachRankAnotherShare) {
  const CollectiveMatch found =
      value({{numbered(7, "0", "all_to_all", 100)}, {numbered(7, "0", "all_to_all", 64)}});
  EXPECT_THAT(found.groups, ElementsAre(Members{0, 0}));
}

TEST(MatchCollectives, UnknownSizesFitAll) {
  const CollectiveMatch found = value({{numbered(7)}, {numbered(7, "0", "all_reduce", -1)}});
  EXPECT_THAT(found.groups, ElementsAre(Members{0, 0}));
}

TEST(MatchCollectives, RanksOfDifferentJobsAreAnError) {
  EXPECT_THAT(error({{numbered(1), numbered(2)}, {numbered(8), numbered(9)}}),
              HasSubstr("ranks of one job"));
  EXPECT_THAT(error({{numbered(1), numbered(2)}, {}}), HasSubstr("ranks of one job"));
}

TEST(MatchCollectives, OneRankOfAnotherJobAmongSeveralIsAnErrorThatNamesIt) {
  const std::string message = error({{numbered(1)}, {numbered(1)}, {numbered(1, "other job")}});
  EXPECT_THAT(message, HasSubstr("between rank2 and the others"));
}

TEST(MatchCollectives, RanksWithoutCollectivesDoNotWaitForEachOther) {
  const CollectiveMatch found = value({{}, {}});
  EXPECT_THAT(found.groups, IsEmpty());
  EXPECT_THAT(found.warnings, ElementsAre(HasSubstr("no rank has collectives")));
}

TEST(MatchCollectives, NumberedRanksWithShiftedClocksAreAligned) {
  Ranks ranks{{numbered(1), numbered(2), numbered(3)}, {numbered(1), numbered(2), numbered(3)}};
  for (RankCollective& collective : ranks[1]) {
    collective.start_us -= 5'000'000;
    collective.end_us -= 5'000'000;
  }
  ranks[1][2].end_us += 90;  // a median is not moved by one
  const CollectiveMatch found = value(ranks);
  EXPECT_THAT(found.clock_offset_us, ElementsAre(0, -5'000'000));
  EXPECT_THAT(found.warnings, ElementsAre(HasSubstr("clock of rank1")));
}

TEST(MatchCollectives, ClocksWithinTheSpreadOfTheEndsStayAsTheyAre) {
  for (const double shift : {50.0, 51.0}) {
    Ranks ranks{{numbered(1)}, {numbered(1)}};
    ranks[1][0].end_us += shift;
    EXPECT_THAT(value(ranks).clock_offset_us, ElementsAre(0, shift > 50 ? shift : 0));
  }
}

// ---- by end time

TEST(MatchCollectives, WithoutNumbersTheEndsDecide) {
  // The second rank has another order of the pair in the middle, and its last one ends 300 us
  // later.
  const CollectiveMatch found =
      value({{timed(1'000), timed(5'000), timed(5'100, "all_gather"), timed(9'000)},
             {timed(5'050, "all_gather"), timed(5'200), timed(9'300)}});
  EXPECT_TRUE(found.by_end_time);
  EXPECT_THAT(found.groups,
              UnorderedElementsAre(Members{0, -1}, Members{1, 1}, Members{2, 0}, Members{3, 2}));
  EXPECT_EQ(found.unmatched, 1u);
}

TEST(MatchCollectives, EndsFurtherApartDoNotMeet) {
  const Ranks ranks{{timed(1'000), timed(3'000), timed(5'000), timed(9'000)},
                    {timed(1'000), timed(3'000), timed(5'000), timed(9'301)}};
  EXPECT_THAT(error(ranks), HasSubstr("rank1 lacks all_reduce at 8900 us of rank0"));
  const CollectiveMatch found = value(ranks, {.missing_ranks = true});
  EXPECT_THAT(found.groups, UnorderedElementsAre(Members{0, 0}, Members{1, 1}, Members{2, 2},
                                                 Members{3, -1}, Members{-1, 3}));
}

TEST(MatchCollectives, AClockOffsetIsFoundAndTakenOff) {
  const CollectiveMatch found = value({timed_run(0), timed_run(5'000'000), timed_run(-40'000'000)});
  EXPECT_THAT(found.clock_offset_us, ElementsAre(0, 5'000'000, -40'000'000));
  ASSERT_EQ(found.groups.size(), 10u);
  for (std::int32_t i = 0; i < 10; ++i) {
    EXPECT_THAT(found.groups[static_cast<std::size_t>(i)], ElementsAre(i, i, i));
  }
  EXPECT_EQ(found.warnings.size(), 2u);
}

TEST(MatchCollectives, AnOffsetIsFoundThoughTheFirstCollectiveLiesOutsideOfTheWindow) {
  Ranks ranks{timed_run(0), timed_run(5'000'000)};
  ranks[1].erase(ranks[1].begin());
  const CollectiveMatch found = value(ranks);
  EXPECT_THAT(found.clock_offset_us, ElementsAre(0, 5'000'000));
  EXPECT_THAT(found.groups[0], ElementsAre(0, -1));
  EXPECT_THAT(found.groups[1], ElementsAre(1, 0));
  EXPECT_EQ(found.unmatched, 1u);
}

TEST(MatchCollectives, OneMissingInTheMiddleIsAnErrorByEndTimeToo) {
  Ranks ranks{timed_run(0), timed_run(5'000'000)};
  ranks[1].erase(ranks[1].begin() + 5);
  EXPECT_THAT(error(ranks), HasSubstr("rank1 lacks all_reduce at "));
  EXPECT_EQ(value(ranks, {.missing_ranks = true}).unmatched, 1u);
}

TEST(MatchCollectives, OneWithoutNumberTurnsAllToTheEnds) {
  Ranks ranks{{numbered(1), numbered(2)}, {numbered(8), numbered(9)}};
  for (std::size_t i = 0; i < 2; ++i) ranks[1][i].end_us = ranks[0][i].end_us;
  ranks[1][1].sequence = -1;
  const CollectiveMatch found = value(ranks);
  EXPECT_TRUE(found.by_end_time);
  EXPECT_THAT(found.groups, ElementsAre(Members{0, 0}, Members{1, 1}));
}

// ---- by order

TEST(MatchCollectives, UntimedOnesMatchByTheirOrderWithinKindAndGroup) {
  const RankCollective reduce{.kind = "all_reduce"}, gather{.kind = "all_gather"};
  const RankCollective other{.kind = "all_reduce", .process_group = "1"};
  const CollectiveMatch found =
      value({{reduce, gather, reduce, other}, {other, reduce, reduce, gather}}, {.timed = false});
  EXPECT_FALSE(found.by_end_time);
  EXPECT_THAT(found.groups,
              UnorderedElementsAre(Members{0, 1}, Members{2, 2}, Members{1, 3}, Members{3, 0}));
  EXPECT_THAT(found.clock_offset_us, ElementsAre(0, 0));
}

TEST(MatchCollectives, UntimedSizesThatDifferAreAnErrorToo) {
  EXPECT_THAT(error({{{.kind = "all_reduce", .in_elements = 8}},
                     {{.kind = "all_reduce", .in_elements = 9}}},
                    {.timed = false}),
              HasSubstr("8 elements in rank0 and 9 in rank1"));
}

// ---- names

TEST(CollectiveKind, KnowsTheNamesOfKernelsAndRecords) {
  EXPECT_EQ(canonical_collective("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWork)"), "all_reduce");
  EXPECT_EQ(canonical_collective("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)"),
            "reduce_scatter");
  EXPECT_EQ(canonical_collective("_allgather_base"), "all_gather");
  EXPECT_EQ(canonical_collective("all_to_allv"), "all_to_all");
  EXPECT_EQ(canonical_collective("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"),
            "all_to_all");
  EXPECT_EQ(canonical_collective("broadcast"), "broadcast");
  EXPECT_EQ(canonical_collective("ncclDevKernel_Reduce_Sum_f32_RING_LL(x)"), "reduce");
  EXPECT_EQ(canonical_collective("something(allreduce)"), "collective");
}

}  // namespace match_collectives_test
}  // namespace perfmodel
