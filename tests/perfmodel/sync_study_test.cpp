// The question of `sync` and its answers, without a command.
#include "sync/sync_study.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "sync/sync_results.hpp"

namespace perfmodel::sync {
namespace sync_study_test {

using ::testing::HasSubstr;

SyncQuestion two_workers() {
  SyncQuestion question;
  question.workers = "fast:1:100:10,slow:1:200:10";
  question.target_updates = 20;
  return question;
}

Result<SyncReport> compared(const SyncQuestion& question) {
  const auto plan = plan_of(question);
  if (!plan) return Unexpected{plan.error()};
  auto planned = plan_sync_job(*plan, nullptr);
  if (!planned) return Unexpected{planned.error()};
  return compare_schemes(question, std::move(*planned), {});
}

std::string refusal(const SyncQuestion& question) {
  const auto report = compared(question);
  return report ? "" : report.error().message;
}

TEST(SyncStudy, RunsEverySchemeAndItsSlowedVariants) {
  SyncQuestion question = two_workers();
  question.slowdowns = {1, 2};
  const auto report = compared(question);
  ASSERT_TRUE(report) << to_string(report.error());
  ASSERT_EQ(report->schemes.size(), scheme_names().size());
  EXPECT_DOUBLE_EQ(report->schemes[0].run.step_mean_us, 210);  // BSP: the slow one and its commit
  ASSERT_EQ(report->sweep.size(), 2U);
  EXPECT_DOUBLE_EQ(report->sweep[0].schemes[0].run.step_mean_us, 210);
  EXPECT_DOUBLE_EQ(report->sweep[1].schemes[0].run.step_mean_us, 410);
}

TEST(SyncStudy, ValuesOfRanksNeedOneEach) {
  SyncQuestion question = two_workers();
  question.host_scale = {1, 2};
  const auto plan = plan_of(question);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->groups[1].host_scale, 2);
  question.host_scale = {1, 2, 3};
  EXPECT_EQ(refusal(question), "expected one value of --host-scale or one per rank (2), found 3");
}

TEST(SyncStudy, ServersNeedTheirExchange) {
  SyncQuestion question = two_workers();
  question.servers = 2;
  EXPECT_EQ(refusal(question), "expected --exchange servers with flags of servers, found direct");
  question.exchange = "servers";
  EXPECT_EQ(refusal(question), "");
}

TEST(SyncStudy, StalenessIsAWholeNumberOrInf) {
  SyncQuestion question = two_workers();
  question.schemes = {"ssp"};
  EXPECT_EQ(compared(question)->schemes[0].settings.staleness, 3);
  question.staleness = "inf";
  EXPECT_FALSE(compared(question)->schemes[0].settings.staleness);
  for (const char* const text : {"", "-1", "1.5", "two"}) {
    question.staleness = text;
    EXPECT_THAT(refusal(question), HasSubstr("expected --staleness inf or a whole number from 0"));
  }
}

TEST(SyncStudy, SchemesThatDoNotMeetHaveNoAllReduce) {
  SyncQuestion question = two_workers();
  question.exchange = "all-reduce";
  const auto report = compared(question);
  ASSERT_TRUE(report) << to_string(report.error());
  EXPECT_EQ(report->schemes.size(), 3U);
  EXPECT_THAT(report->notes.back(), HasSubstr("asp, ssp and adsp have no all-reduce"));
}

TEST(SyncStudy, AnErrorNamesItsCase) {
  const auto answers = answer_cases({{.id = "empty", .target = {.rounds = 1}}}, {});
  ASSERT_FALSE(answers);
  EXPECT_THAT(answers.error().message, HasSubstr("case \"empty\": expected at least one worker"));
}

TEST(SyncStudy, ADocumentAndATableShareTheirFigures) {
  SyncQuestion question = two_workers();
  question.schemes = {"bsp"};
  const auto report = compared(question);
  ASSERT_TRUE(report);
  const OrderedJson json = sync_json(*report);
  const OrderedJson& scheme = json["schemes"][0];
  EXPECT_EQ(scheme["scheme"], "bsp");
  EXPECT_EQ(scheme["step_mean_us"], 210);
  EXPECT_EQ(scheme["workers"][0]["waiting_share"], 0.47619);  // 100 of 210 us
  EXPECT_EQ(scheme["workers"][1]["name"], "slow");
  const auto cell = [&](std::string_view name) {
    return named_field(kSchemeFields, name).text(report->schemes[0]);
  };
  EXPECT_EQ(cell("scheme"), "bsp");
  EXPECT_EQ(cell("step_mean_us"), "210 us");
  EXPECT_EQ(cell("waiting_share"), "0 to 48 %");
}

TEST(SyncStudy, TitlesAndDurations) {
  EXPECT_EQ(scheme_title({.scheme = Scheme::kSsp, .staleness = 3}), "ssp, s = 3");
  EXPECT_EQ(scheme_title({.scheme = Scheme::kAdsp, .period_us = 60e6, .commits_per_period = {4}}),
            "adsp, 4 per 60 s");
  EXPECT_EQ(duration_text(12500), "12.5 ms");
  EXPECT_EQ(duration_text(std::numeric_limits<double>::infinity()), "never");
}

TEST(SyncStudy, EveryFieldHasAHelp) {
  for (const SyncField& field : sync_fields()) {
    EXPECT_FALSE(field.help.empty()) << field.name;
    EXPECT_FALSE(field.takes.empty()) << field.name;
  }
}

}  // namespace sync_study_test
}  // namespace perfmodel::sync
