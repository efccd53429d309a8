#include "perfmodel/sweep/run_sweep.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <sstream>
#include <thread>

#include "perfmodel/predictor.hpp"
#include "sweep/part_file.hpp"
#include "sweep/sweep_results.hpp"
#include "sweep_cases.hpp"

namespace perfmodel::sweep {
namespace sweep_run_test {

using test_support::Folder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SweepRun : public ::testing::Test {
 protected:
  void SetUp() override { read(test_support::kSmallSpec); }

  void read(const std::string& text) {
    auto spec = test_support::read_spec(folder_, text);
    ASSERT_TRUE(spec) << to_string(spec.error());
    spec_ = std::move(*spec);
  }

  SweepOptions options(const std::string& output) const {
    return {.output = folder_ / output,
            .data = test_support::data_folder(),
            .version = "test",
            .chunk_rows = 5};
  }

  SweepReport run(SweepOptions options) const {
    auto report = run_sweep(spec_, test_support::small_toolbox(), std::move(options));
    EXPECT_TRUE(report) << to_string(report.error());
    return report.value_or(SweepReport());
  }

  // Output of one run without interruptions.
  std::string undisturbed() {
    const SweepReport report = run(options("undisturbed.csv.gz"));
    EXPECT_TRUE(report.merged);
    EXPECT_EQ(report.predicted, report.rows);
    return test_support::read(folder_ / "undisturbed.csv.gz");
  }

  // Stops after so many rows.
  SweepOptions stopping(const std::string& output, int rows) const {
    SweepOptions made = options(output);
    auto left = std::make_shared<std::atomic<int>>(rows + 2);  // asked before each chunk too
    made.stop = [left] { return --*left < 0; };
    return made;
  }

  Folder folder_;
  SweepSpec spec_;
};

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

TEST_F(SweepRun, ItsReportHasTheKeysOfADocument) {
  for (GpuChoice& gpu : spec_.gpus) gpu.stand_ins.clear();
  spec_.gpus.front().stand_ins = {"a figure stands in for another"};
  const SweepReport report = run(options("keys.csv"));
  const OrderedJson json = json_object(report, kSweepReportFields);
  EXPECT_EQ(json["rows"], report.rows);
  EXPECT_EQ(json["dropped"], 0);
  EXPECT_EQ(json["merged"], true);
  EXPECT_EQ(json["warnings"], OrderedJson({"a figure stands in for another"}));
}

TEST_F(SweepRun, WritesARowForEveryCombination) {
  const SweepReport report = run(options("out.csv.gz"));
  EXPECT_EQ(report.rows, 36U);
  EXPECT_EQ(report.predicted, 36U);
  EXPECT_EQ(report.refused, 0U);
  EXPECT_TRUE(report.merged);
  EXPECT_FALSE(fs::exists(folder_ / "out.csv.gz.parts"));
  const auto rows = lines(test_support::inflated(folder_ / "out.csv.gz"));
  ASSERT_EQ(rows.size(), 37U);
  EXPECT_EQ(rows[0],
            "key,graph,batch,gpu,topology,strategy,world,e2e_us,gpu_active_us,cpu_us,"
            "exposed_communication_us,samples_per_step,samples_per_s,bound,bound_share,"
            "modelled_time_fraction,unmodelled_ops,kernels_out_of_range,samples_per_s_per_gpu,"
            "static_bytes,device_bytes,e2e_low_us,e2e_high_us,energy_j,needed_bytes,error");
  // The second row of the second batch: 8 samples on each of 2 ranks, as the Predictor has them.
  const auto predictor =
      Predictor::load({.data = test_support::data_folder(), .gpus = {"a100-sxm-80gb"}});
  ASSERT_TRUE(predictor);
  const auto graph = test_support::build_small(spec_.graphs[0]);
  const auto answer = predictor->predict(*set_batch_size(*graph, {.batch = 8}), "a100-sxm-80gb",
                                         {.world = 2, .strategy = ParallelStrategy::kDdp});
  ASSERT_TRUE(answer);
  const std::string& row = rows[1 + 6 + 1];
  EXPECT_THAT(row, HasSubstr(",small,8,a100-sxm-80gb,usual,ddp,2,"));
  std::vector<std::string> cells;
  std::istringstream in(row);
  for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
  ASSERT_GE(cells.size(), 13U);
  EXPECT_EQ(std::stod(cells[7]), answer->e2e_us);  // to the last bit
  EXPECT_EQ(std::stod(cells[8]), answer->gpu_active_us);
  EXPECT_EQ(cells[11], "16");
  EXPECT_DOUBLE_EQ(std::stod(cells[12]), 16e6 / answer->e2e_us);
  ASSERT_GE(cells.size(), 21U);
  EXPECT_DOUBLE_EQ(std::stod(cells[18]), 8e6 / answer->e2e_us);
  EXPECT_EQ(std::stod(cells[19]), answer->memory.static_bytes());
  EXPECT_EQ(std::stod(cells[20]), answer->memory.device_bytes);
  ASSERT_EQ(cells.size(), 25U);
  EXPECT_EQ(std::stod(cells[24]), answer->memory.needed_bytes());
}

TEST_F(SweepRun, ThreadsAndChunksDoNotShowInTheOutput) {
  const std::string expected = undisturbed();
  for (const std::uint64_t chunk : {1, 4, 6, 1000}) {
    SweepOptions made = options("other.csv.gz");
    made.threads = 3;
    made.chunk_rows = chunk;
    EXPECT_TRUE(run(std::move(made)).merged);
    EXPECT_EQ(test_support::read(folder_ / "other.csv.gz"), expected) << chunk;
  }
}

TEST_F(SweepRun, RefusedCombinationsAreRows) {
  read(R"({"schema": "perfmodel-sweep", "version": 1, "graphs": [{"build": "mlp"}],
    "rewrites": [{"refuse": ["same", "on"]}], "gpus": ["t4"],
    "strategies": [{"strategy": "none"}, {"strategy": "ddp", "world": [2000000]}]})");
  const SweepReport report = run(options("out.csv"));
  EXPECT_EQ(report.rows, 4U);
  EXPECT_GE(report.refused, 2U);
  const auto rows = lines(test_support::read(folder_ / "out.csv"));
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_THAT(rows[3], ::testing::EndsWith(
                           ",mlp,on,t4,usual,none,,,,,,,,,,,,,,,,,,,,\"--refuse: refused, as "
                           "\"\"asked\"\", here\""));
}

TEST_F(SweepRun, GoesOnWhereItWasStopped) {
  const std::string expected = undisturbed();
  const SweepReport first = run(stopping("out.csv.gz", 13));
  EXPECT_TRUE(first.stopped);
  EXPECT_FALSE(first.merged);
  EXPECT_GT(first.predicted, 5U);
  EXPECT_LT(first.predicted, 15U);
  EXPECT_EQ(first.missing, 36 - first.predicted);
  EXPECT_FALSE(fs::exists(folder_ / "out.csv.gz"));
  const SweepReport second = run(stopping("out.csv.gz", 3));
  EXPECT_EQ(second.finished_before, first.predicted);
  const SweepReport third = run(options("out.csv.gz"));
  EXPECT_EQ(third.predicted, 36 - first.predicted - second.predicted);
  EXPECT_EQ(third.repeated, 0U);
  EXPECT_TRUE(third.merged);
  EXPECT_EQ(test_support::read(folder_ / "out.csv.gz"), expected);
}

// A process that is killed leaves its part cut off anywhere.
TEST_F(SweepRun, GoesOnWhereItWasKilled) {
  const std::string expected = undisturbed();
  run(stopping("whole.csv.gz", 18));
  const fs::path part = "rank-0000.csv.gz";
  const std::string bytes = test_support::read(folder_ / "whole.csv.gz.parts" / part);
  for (std::size_t size = 0; size < bytes.size(); size += 211) {
    fs::create_directories(folder_ / "out.csv.gz.parts");
    test_support::write(folder_ / "out.csv.gz.parts" / part, bytes.substr(0, size));
    const SweepReport report = run(options("out.csv.gz"));
    EXPECT_EQ(report.predicted, 36 - report.finished_before);
    EXPECT_EQ(report.repeated, 0U);
    EXPECT_EQ(test_support::read(folder_ / "out.csv.gz"), expected) << size;
  }
}

TEST_F(SweepRun, ShardsAndMerge) {
  const std::string expected = undisturbed();
  for (const std::size_t shard : {2, 0, 1}) {
    SweepOptions made = options("out.csv.gz");
    made.shard = shard;
    made.shards = 3;
    const SweepReport report = run(std::move(made));
    EXPECT_GT(report.predicted, 9U);
    EXPECT_EQ(report.merged, shard == 1);
    if (shard == 2) {
      EXPECT_THAT(report.missing_shards, ElementsAre(1, 2));
    } else if (shard == 0) {
      EXPECT_THAT(report.missing_shards, ElementsAre(2));
    }
  }
  EXPECT_EQ(test_support::read(folder_ / "out.csv.gz"), expected);
}

TEST_F(SweepRun, WhoMergesWaitsForOthersAtWork) {
  SweepOptions keeping = options("out.csv.gz");
  keeping.keep_parts = true;
  EXPECT_TRUE(run(keeping).merged);
  fs::remove(folder_ / "out.csv.gz");
  std::atomic<bool> inside = false, leave = false;
  std::jthread other([&] {  // has nothing to do, but holds the folder while a shard works
    SweepOptions slow = options("out.csv.gz");
    SweepSpec more = spec_;
    more.axes[0].values.push_back(more.axes[0].values[1]);
    more.axes[0].values.back().text = "64";
    slow.keep_parts = true;
    slow.shards = 2;
    slow.stop = [&] {
      inside = true;
      while (!leave) std::this_thread::yield();
      return true;
    };
    EXPECT_TRUE(run_sweep(more, test_support::small_toolbox(), slow));
  });
  while (!inside) std::this_thread::yield();
  const SweepReport early = run(options("out.csv.gz"));
  EXPECT_TRUE(early.others_at_work);
  EXPECT_FALSE(early.merged);
  leave = true;
  other.join();
  const SweepReport late = run(options("out.csv.gz"));
  EXPECT_TRUE(late.merged);
  EXPECT_EQ(late.predicted, 0U);
}

TEST_F(SweepRun, AChangedSpecKeepsWhatStillBelongs) {
  SweepOptions keeping = options("out.csv.gz");
  keeping.keep_parts = true;
  run(keeping);
  std::string changed = test_support::kSmallSpec;
  changed.replace(changed.find("\"same\", 8, 32"), 13, "64, 32, \"same\"");
  changed.replace(changed.find("\"a100-sxm-80gb\", \"h100-sxm-80gb\""), 32,
                  "\"h100-sxm-80gb\", \"a100-sxm-80gb\"");
  read(changed);
  const SweepReport report = run(options("out.csv.gz"));
  EXPECT_EQ(report.finished_before, 24U);
  EXPECT_EQ(report.foreign, 12U);  // batch 8
  EXPECT_EQ(report.predicted, 12U);
  const std::string merged = test_support::read(folder_ / "out.csv.gz");
  EXPECT_EQ(merged, undisturbed());
}

TEST_F(SweepRun, ADryRunOnlyCounts) {
  SweepOptions dry = options("out.csv.gz");
  dry.dry_run = true;
  const SweepReport report = run(dry);
  EXPECT_EQ(report.rows, 36U);
  EXPECT_EQ(report.chunks, 12U);  // groups of 6 in pieces of 5
  EXPECT_EQ(report.missing, 36U);
  EXPECT_FALSE(fs::exists(folder_ / "out.csv.gz.parts"));
  run(stopping("out.csv.gz", 7));
  const SweepReport later = run(dry);
  EXPECT_EQ(later.finished_before + later.missing, 36U);
  EXPECT_GT(later.finished_before, 0U);
}

TEST_F(SweepRun, RefusesRowsOfOtherSettings) {
  run(stopping("out.csv.gz", 7));
  SweepOptions other = options("out.csv.gz");
  other.version = "other";
  const auto version = run_sweep(spec_, test_support::small_toolbox(), other);
  ASSERT_FALSE(version);
  EXPECT_THAT(to_string(version.error()), HasSubstr("rank-0000.csv.gz: expected rows made with"));
  spec_.models = "heuristic";
  EXPECT_FALSE(run_sweep(spec_, test_support::small_toolbox(), options("out.csv.gz")));
}

TEST_F(SweepRun, SmallSweepsHaveSmallChunks) {
  SweepOptions dry = options("out.csv.gz");
  dry.dry_run = true;
  dry.chunk_rows = 0;
  EXPECT_EQ(run(dry).chunks, 6U);  // groups of 6, at most 8 rows
}

TEST_F(SweepRun, RefusesWhatIsNoSweep) {
  SweepOptions made = options("out.csv.gz");
  made.shard = made.shards = 2;
  const auto shard = run_sweep(spec_, test_support::small_toolbox(), made);
  ASSERT_FALSE(shard);
  EXPECT_EQ(shard.error().message, "expected one of 2 shards, found number 3");
  spec_.gpus.clear();
  const auto rows = run_sweep(spec_, test_support::small_toolbox(), options("out.csv.gz"));
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.error().message, "expected at least one row, found none");
}

TEST_F(SweepRun, AGraphThatCannotBeMadeEndsIt) {
  test_support::write(folder_ / "broken.json", "{\"nodes\": [");
  read(R"({"schema": "perfmodel-sweep", "version": 1, "graphs": [{"build": "mlp"}, "broken.json"],
    "gpus": ["t4"]})");
  SweepOptions made = options("out.csv");
  made.chunk_rows = 1;
  const auto report = run_sweep(spec_, test_support::small_toolbox(), made);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().file, folder_ / "broken.json");
  EXPECT_FALSE(fs::exists(folder_ / "out.csv"));
  EXPECT_TRUE(fs::exists(folder_ / "out.csv.parts"));  // the row of the other graph
}

TEST_F(SweepRun, AFolderThatCannotBeWrittenIsAnError) {
  test_support::write(folder_ / "out.csv.parts", "a file");
  const auto report = run_sweep(spec_, test_support::small_toolbox(), options("out.csv"));
  ASSERT_FALSE(report);
  EXPECT_THAT(to_string(report.error()), HasSubstr("out.csv.parts"));
}

// Ranks that are threads of one process.
class Ranks {
 public:
  explicit Ranks(std::size_t count)
      : all_(count), answers_(count), together_(static_cast<long>(count)) {}

  class Member final : public Team {
   public:
    Member(Ranks& ranks, std::size_t rank) : ranks_(ranks), rank_(rank) {}
    ~Member() override { ranks_.together_.arrive_and_wait(); }
    std::size_t rank() const override { return rank_; }
    std::size_t size() const override { return ranks_.all_.size(); }
    Words gather(std::uint64_t mine) override {
      ranks_.all_[rank_] = mine;
      ranks_.together_.arrive_and_wait();
      Words all = ranks_.all_;
      ranks_.together_.arrive_and_wait();
      return all;
    }
    Words ask(std::span<const std::uint64_t> words) override {
      const std::lock_guard turn(turn_);
      std::unique_lock lock(ranks_.mutex_);
      ranks_.questions_.push_back({rank_, {words.begin(), words.end()}});
      auto& answer = ranks_.answers_[rank_];
      ranks_.changed_.wait(lock, [&] { return answer.has_value(); });
      Words taken = std::move(*answer);
      answer.reset();
      return taken;
    }
    std::optional<Message> receive() override {
      const std::lock_guard lock(ranks_.mutex_);
      if (ranks_.questions_.empty()) return std::nullopt;
      Message first = std::move(ranks_.questions_.front());
      ranks_.questions_.pop_front();
      return first;
    }
    void answer(std::size_t rank, std::span<const std::uint64_t> words) override {
      const std::lock_guard lock(ranks_.mutex_);
      ranks_.answers_[rank] = Words(words.begin(), words.end());
      ranks_.changed_.notify_all();
    }

   private:
    Ranks& ranks_;
    std::size_t rank_;
    std::mutex turn_;
  };

 private:
  Team::Words all_;
  std::deque<Team::Message> questions_;
  std::vector<std::optional<Team::Words>> answers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::barrier<> together_;
};

TEST_F(SweepRun, RanksGiveTheSameFile) {
  const std::string expected = undisturbed();
  Ranks ranks(4);
  std::vector<Result<SweepReport>> reports(4, Result<SweepReport>(SweepReport()));
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < 4; ++rank) {
      threads.emplace_back([&, rank] {
        SweepOptions made = options("out.csv.gz");
        made.chunk_rows = 2;
        made.threads = rank == 1 ? 2 : 1;
        made.team = std::make_shared<Ranks::Member>(ranks, rank);
        reports[rank] = run_sweep(spec_, test_support::small_toolbox(), std::move(made));
      });
    }
  }
  for (const auto& report : reports) ASSERT_TRUE(report) << to_string(report.error());
  EXPECT_EQ(reports[0]->predicted, 36U);
  EXPECT_EQ(reports[0]->repeated, 0U);
  EXPECT_TRUE(reports[0]->merged);
  EXPECT_FALSE(reports[3]->merged);
  EXPECT_EQ(test_support::read(folder_ / "out.csv.gz"), expected);
}

TEST_F(SweepRun, ARankThatCannotWriteLeavesTheRestToARestart) {
  Ranks ranks(2);
  fs::create_directories(folder_ / "out.csv.gz.parts/rank-0001.csv.gz");  // no file can be there
  std::vector<Result<SweepReport>> reports(2, Result<SweepReport>(SweepReport()));
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        SweepOptions made = options("out.csv.gz");
        made.team = std::make_shared<Ranks::Member>(ranks, rank);
        reports[rank] = run_sweep(spec_, test_support::small_toolbox(), std::move(made));
      });
    }
  }
  EXPECT_FALSE(reports[0]);
  EXPECT_FALSE(reports[1]);
  fs::remove(folder_ / "out.csv.gz.parts/rank-0001.csv.gz");
  EXPECT_TRUE(run(options("out.csv.gz")).merged);
}

TEST_F(SweepRun, RanksMustHaveTheSameSpec) {
  Ranks ranks(2);
  SweepSpec other = spec_;
  other.graphs[1].identity = "00000000";
  std::vector<Result<SweepReport>> reports(2, Result<SweepReport>(SweepReport()));
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        SweepOptions made = options("out.csv.gz");
        made.team = std::make_shared<Ranks::Member>(ranks, rank);
        reports[rank] =
            run_sweep(rank == 0 ? spec_ : other, test_support::small_toolbox(), std::move(made));
      });
    }
  }
  ASSERT_FALSE(reports[0]);
  EXPECT_THAT(to_string(reports[0].error()), HasSubstr("found others on rank 1"));
  ASSERT_FALSE(reports[1]);
  EXPECT_EQ(reports[1].error().code, ErrorCode::kCancelled);
}

}  // namespace sweep_run_test
}  // namespace perfmodel::sweep
