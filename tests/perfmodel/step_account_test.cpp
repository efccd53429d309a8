// How a step's time is divided among kernels and the host, and two steps compared to the sum.
#include "report/step_account.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "perfmodel/data_files.hpp"
#include "scratch.hpp"

namespace perfmodel {
namespace step_account_test {

using findings::DeviceKind;
using findings::OpFact;
using findings::StepFacts;
using report_page::account_of;
using report_page::account_of_kernel_list;
using report_page::AccountChange;
using report_page::AccountKey;
using report_page::AccountRow;
using report_page::compare_accounts;
using report_page::StepAccount;

using test_support::scratch_file;

double sum_of(const StepAccount& account) {
  return std::accumulate(account.rows.begin(), account.rows.end(), 0.0,
                         [](double sum, const AccountRow& row) { return sum + row.us; });
}

double us_of(const StepAccount& account, std::string_view part, std::string_view kernel,
             std::string_view op) {
  double us = 0;
  for (const AccountRow& row : account.rows) {
    if (row.part == part && row.kernel == kernel && row.op == op) us += row.us;
  }
  return us;
}

// 100 us: a product from 10 to 40, an all-reduce from 20 to 70, a copy from 60 to 80; the host is
// in "linear" from 0 to 50 and in "item" from 50 to 100.
StepFacts one_step() {
  StepFacts facts{.span_us = 100, .is_recorded = true};
  facts.step_begins_us = {0};
  facts.ops = {{.name = "## forward ##", .end_us = 50, .is_label = true},
               {.name = "linear", .parent = 0, .end_us = 50},
               {.name = "item", .start_us = 50, .end_us = 100}};
  facts.kernels = {
      {.name = "gemm", .family = KernelFamily::kGemm, .op = 1, .start_us = 10, .time_us = 30},
      {.name = "all_reduce",
       .family = KernelFamily::kCollective,
       .kind = DeviceKind::kCollective,
       .op = 1,
       .start_us = 20,
       .time_us = 50},
      {.name = "Memcpy DtoH",
       .family = KernelFamily::kCopy,
       .kind = DeviceKind::kCopy,
       .op = 2,
       .start_us = 60,
       .time_us = 20}};
  return facts;
}

TEST(StepAccount, ComputeHidesCollectivesAndBothHideCopies) {
  const StepAccount account = account_of(one_step(), 100);
  EXPECT_DOUBLE_EQ(us_of(account, "compute", "gemm", "linear"), 30);
  EXPECT_DOUBLE_EQ(us_of(account, "exposed communication", "all_reduce", "linear"), 30);
  EXPECT_DOUBLE_EQ(us_of(account, "exposed copies", "Memcpy DtoH", "item"), 10);
  EXPECT_DOUBLE_EQ(us_of(account, "device idle", "", "linear"), 10);
  EXPECT_DOUBLE_EQ(us_of(account, "device idle", "", "item"), 20);
  EXPECT_DOUBLE_EQ(sum_of(account), 100);
}

TEST(StepAccount, KernelsThatRunAtOnceShareTheTime) {
  StepFacts facts = one_step();
  facts.kernels.push_back({.name = "norm", .op = 1, .stream = 1, .start_us = 30, .time_us = 10});
  const StepAccount account = account_of(facts, 100);
  EXPECT_DOUBLE_EQ(us_of(account, "compute", "gemm", "linear"), 25);
  EXPECT_DOUBLE_EQ(us_of(account, "compute", "norm", "linear"), 5);
  EXPECT_DOUBLE_EQ(sum_of(account), 100);
}

TEST(StepAccount, WorkBeyondTheEndOverlapsWithTheNextStep) {
  StepFacts facts = one_step();
  facts.kernels = {{.name = "gemm", .op = 1, .start_us = 90, .time_us = 30}};
  const StepAccount account = account_of(facts, 100);
  EXPECT_DOUBLE_EQ(us_of(account, "compute", "gemm", "linear"), 30);
  EXPECT_DOUBLE_EQ(sum_of(account), 100);
}

TEST(StepAccount, FiguresArePerStep) {
  StepFacts facts = one_step();
  facts.steps = 2;
  const StepAccount account = account_of(facts, 50);
  EXPECT_DOUBLE_EQ(us_of(account, "compute", "gemm", "linear"), 15);
  EXPECT_DOUBLE_EQ(account.rows.front().count, 0.5);
  EXPECT_DOUBLE_EQ(sum_of(account), 50);
}

// A predicted label ends with its own last call; its thread is in it until the next op elsewhere.
TEST(StepAccount, ThePredictedBackwardPassIsInTheLabelOfTheThreadThatWaits) {
  StepFacts facts{.span_us = 100};
  facts.ops = {{.name = "## backward ##", .start_us = 10, .end_us = 12, .is_label = true},
               {.name = "ones_like", .parent = 0, .start_us = 10, .end_us = 12},
               {.name = "mm", .thread = 1, .start_us = 20, .end_us = 60},
               {.name = "add_", .start_us = 70, .end_us = 90},
               {.name = "late", .thread = 1, .start_us = 80, .end_us = 90}};
  const StepAccount account = account_of(facts, 100);
  for (const AccountRow& row : account.rows) {
    if (row.op != "mm" && row.op != "late") continue;
    EXPECT_EQ(row.label, row.op == "mm" ? "## backward ##" : "") << row.op;
  }
}

double change_of(const std::vector<AccountChange>& changes) {
  double sum = 0;
  for (const AccountChange& at : changes) sum += at.change_us();
  return sum;
}

TEST(CompareAccounts, RowsOfEveryKeyAddUpToTheChangeOfTheStep) {
  StepFacts faster = one_step();
  faster.kernels.erase(faster.kernels.begin());
  faster.span_us = 90;
  const StepAccount before = account_of(one_step(), 100), after = account_of(faster, 90);
  for (const AccountKey key : {AccountKey::kPart, AccountKey::kFamily, AccountKey::kKernel,
                               AccountKey::kOp, AccountKey::kLabel}) {
    EXPECT_NEAR(change_of(compare_accounts(before, after, key)), -10, 1e-9);
  }
  const auto kernels = compare_accounts(before, after, AccountKey::kKernel);
  EXPECT_EQ(kernels.front().name, "gemm");  // hid 20 us of the all-reduce
  EXPECT_DOUBLE_EQ(kernels.front().change_us(), -30);
  EXPECT_EQ(kernels.front().count_before, 1);
  EXPECT_EQ(kernels.front().count_after, 0);
}

StepAccount recorded_kernels(const std::string& point) {
  const auto data = find_data_folder();
  const auto account = account_of_kernel_list(*data / "measurements" / "h200-sxm-141gb" /
                                              (point + ".kernels.json.gz"));
  EXPECT_TRUE(account) << to_string(account.error());
  return account ? *account : StepAccount{};
}

// GPT-2 on an H200, eager and compiled.
TEST(CompareAccounts, CompiledGpt2IsExplainedToTheSum) {
  const StepAccount eager = recorded_kernels("gpt2-small-1024.bf16-b16"),
                    compiled = recorded_kernels("gpt2-small-1024.bf16-compile-b16");
  EXPECT_NEAR(eager.step_us, 156.2e3, 100);
  EXPECT_NEAR(compiled.step_us, 65.6e3, 100);
  for (const AccountKey key : {AccountKey::kPart, AccountKey::kFamily, AccountKey::kKernel}) {
    EXPECT_NEAR(change_of(compare_accounts(eager, compiled, key)), compiled.step_us - eager.step_us,
                1e-6);
  }
  const auto families = compare_accounts(eager, compiled, AccountKey::kFamily);
  EXPECT_EQ(families[0].name, "elementwise");
  EXPECT_EQ(families[1].name, "gemm");
  EXPECT_TRUE(compare_accounts(eager, compiled, AccountKey::kOp).empty());  // not in the lists
}

TEST(KernelList, WithoutItsTimesIsRefused) {
  const std::string file = scratch_file("alone.kernels.json");
  std::ofstream(file) << R"([{"name": "k", "per_step": 2, "mean_us": 3.5}])";
  const auto account = account_of_kernel_list(file);
  ASSERT_FALSE(account);
  EXPECT_EQ(account.error().file.filename(), "alone.times.json");
}

TEST(KernelList, LongerThanItsStepIsRefused) {
  const std::string file = scratch_file("long.kernels.json");
  std::ofstream(file) << R"([{"name": "k", "per_step": 2, "mean_us": 3.5}])";
  std::ofstream(scratch_file("long.times.json")) << R"({"free": {"device": [5, 6, 4]}})";
  const auto account = account_of_kernel_list(file);
  ASSERT_FALSE(account);
  EXPECT_EQ(account.error().message, "expected kernels of at most the step's 5 us, found 7 us");
}

}  // namespace step_account_test
}  // namespace perfmodel
