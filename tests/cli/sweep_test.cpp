#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include "program.hpp"

namespace perfmodel::test_support {
namespace sweep_test {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string inflated(const fs::path& file) {
  std::string text;
  const gzFile in = gzopen(file.c_str(), "rb");
  char buffer[65536];
  for (int size = 0; in && (size = gzread(in, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(size));
  }
  if (in) gzclose(in);
  return text;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

// 2 graphs x batches x 2 x 3 GPUs x 2 rows.
std::string crossing(const std::string& batches) {
  return R"({"schema": "perfmodel-sweep", "version": 1,
    "graphs": [{"name": "dlrm", "build": "dlrm", "options": {"preset": "ddp", "batch": 512}},
               {"build": "mlp", "options": {"preset": "mnist"}}],
    "rewrites": [{"batch": [)" +
         batches + R"(]}, {"precision": ["same", "bf16"]}],
    "gpus": ["t4", "a100-sxm-80gb", "h100-sxm-80gb"],
    "strategies": [{"strategy": "none"}, {"strategy": "ddp", "world": 8}]})";
}

std::string small_spec() { return written("small.json", crossing("64, 128")); }  // 48 rows

// More than is done before somebody can stop it.
std::string large_spec(int batches) {
  std::string list = "16";
  for (int i = 2; i <= batches; ++i) list += ", " + std::to_string(16 * i);
  return written("large.json", crossing(list));
}

Json swept(const Words& more) { return json_of(with({"sweep"}, more)); }

// A process that the test can stop.
class Started {
 public:
  explicit Started(const Words& words, const std::string& errors = "/dev/null") {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      const int nowhere = open("/dev/null", O_WRONLY);
      dup2(nowhere, 1);
      dup2(open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), 2);
      execv(arguments.front(), arguments.data());
      _exit(127);
    }
  }
  pid_t pid() const { return pid_; }
  int wait() const {
    int status = 0;
    waitpid(pid_, &status, 0);
    return status;
  }

 private:
  pid_t pid_ = -1;
};

std::uintmax_t bytes_in(const fs::path& folder) {
  std::uintmax_t bytes = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    bytes += entry.file_size(ignored);
  }
  return bytes;
}

// Waits until rows have been written, in addition to the heads of so many parts.
void wait_for_rows(const fs::path& folder, int parts) {
  using namespace std::chrono_literals;
  for (int i = 0; i < 6000 && bytes_in(folder) < static_cast<std::uintmax_t>(parts) * 1000; ++i) {
    std::this_thread::sleep_for(10ms);
  }
}

TEST(SweepCommand, PredictsWhatPredictSays) {
  const Json report = swept({small_spec(), "-o", scratch_file("a.csv.gz")});
  EXPECT_EQ(report["schema"], "perfmodel-sweep-report");
  EXPECT_EQ(report["rows"], 48);
  EXPECT_EQ(report["predicted"], 48);
  EXPECT_EQ(report["missing"], 0);
  EXPECT_EQ(report["merged"], true);
  EXPECT_EQ(report["output"], "a.csv.gz");
  EXPECT_FALSE(fs::exists(scratch_file("a.csv.gz.parts")));
  const auto rows = lines(inflated(scratch_file("a.csv.gz")));
  ASSERT_EQ(rows.size(), 49U);
  EXPECT_THAT(rows[0], StartsWith("key,graph,batch,precision,gpu,topology,strategy,world,e2e_us,"));
  const std::string graph = scratch_file("dlrm.json"), changed = scratch_file("changed.json");
  ASSERT_EQ(run({"build", "dlrm", "--preset", "ddp", "--batch", "512", "-o", graph}).status, 0);
  ASSERT_EQ(run({"rewrite", graph, "--batch", "64", "--precision", "bf16", "-o", changed}).status,
            0);
  const auto predicted =
      run({"predict", changed, "--gpu", "t4", "--world", "8", "--strategy", "ddp", "--json"});
  ASSERT_EQ(predicted.status, 0) << predicted.err;
  const std::string& row = rows[8];
  const std::string front = ",dlrm,64,bf16,t4,usual,ddp,8,";
  EXPECT_THAT(row, HasSubstr(front));
  EXPECT_NEAR(std::stod(row.substr(row.find(front) + front.size())),
              Json::parse(predicted.out)["e2e_us"].get<double>(), 1e-3);
}

TEST(SweepCommand, ThreadsAndShardsGiveTheSameFile) {
  swept({small_spec(), "-o", scratch_file("one.csv.gz"), "--threads", "1"});
  const std::string expected = read(scratch_file("one.csv.gz"));
  ASSERT_FALSE(expected.empty());
  swept({small_spec(), "-o", scratch_file("three.csv.gz"), "--threads", "3", "--chunk", "5"});
  EXPECT_EQ(read(scratch_file("three.csv.gz")), expected);
  const Json first =
      swept({small_spec(), "-o", scratch_file("shards.csv.gz"), "--shard", "2/2", "--chunk", "7"});
  EXPECT_EQ(first["merged"], false);
  EXPECT_EQ(first["missing_shards"], Json({1}));
  const Json dry = swept({small_spec(), "-o", scratch_file("shards.csv.gz"), "--dry-run"});
  EXPECT_EQ(dry["missing"], first["missing"]);
  const auto second = run({"sweep", small_spec(), "-o", scratch_file("shards.csv.gz"), "--shard",
                           "1/2", "--chunk", "7"});
  EXPECT_EQ(second.status, 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr("shards.csv.gz"));
  EXPECT_EQ(read(scratch_file("shards.csv.gz")), expected);
}

TEST(SweepCommand, AKilledProcessLosesAtMostItsChunk) {
  const std::string file = large_spec(40);  // 960 rows
  swept({file, "-o", scratch_file("whole.csv.gz")});
  Started process({PERFPREDICT_PROGRAM, "sweep", file, "-o", scratch_file("killed.csv.gz"),
                   "--threads", "1", "--chunk", "6"});
  wait_for_rows(scratch_file("killed.csv.gz.parts"), 1);
  kill(process.pid(), SIGKILL);
  process.wait();
  ASSERT_FALSE(fs::exists(scratch_file("killed.csv.gz")));
  const Json report = swept({file, "-o", scratch_file("killed.csv.gz")});
  EXPECT_GT(report["finished_before"].get<int>(), 0);
  EXPECT_EQ(report["predicted"].get<int>() + report["finished_before"].get<int>(), 960);
  EXPECT_EQ(report["made_twice"], 0);
  EXPECT_EQ(read(scratch_file("killed.csv.gz")), read(scratch_file("whole.csv.gz")));
}

TEST(SweepCommand, StopsWhenItIsAsked) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const std::string file = large_spec(2000);  // 48,000 rows
    const std::string errors = scratch_file("errors.txt");
    fs::remove_all(scratch_file("stopped.csv.parts"));
    Started process(
        {PERFPREDICT_PROGRAM, "sweep", file, "-o", scratch_file("stopped.csv"), "--chunk", "6"},
        errors);
    wait_for_rows(scratch_file("stopped.csv.parts"), 1);
    kill(process.pid(), signal);
    const int status = process.wait();
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 1);
    EXPECT_THAT(read(errors), HasSubstr("of 48000 rows finished: the same command goes on"));
    EXPECT_EQ(lines(read(errors)).size(), 1U);
    const Json later = swept({file, "-o", scratch_file("stopped.csv"), "--dry-run"});
    EXPECT_GT(later["finished_before"].get<int>(), 0);
    EXPECT_EQ(later["torn_bytes"], 0);
  }
}

TEST(SweepCommand, TheExampleIsAPossibleSweep) {
  const std::string example = PERFMODEL_SOURCE_DIR "/examples/sweep.json";
  const Json report = swept({example, "-o", scratch_file("example.csv.gz"), "--dry-run"});
  EXPECT_EQ(report["rows"], 2 * 4 * 2 * 3 * 3);
}

TEST(SweepCommand, FilesAmongTheOptionsBelongToTheSpec) {
  std::ofstream(scratch() / "tables.csv") << "rows,dim,pooling\n1000,16,2\n2000,16,1\n";
  const std::string file = written("tables.json", R"({"schema": "perfmodel-sweep", "version": 1,
    "graphs": [{"name": "mine", "build": "dlrm", "options": {"tables": "tables.csv",
      "bottom": "13-32-16", "top": "32-1", "batch": 64, "table-batched": false}}],
    "gpus": ["t4"]})");
  swept({file, "-o", scratch_file("tables.csv.out.csv")});
  const std::string first = read(scratch_file("tables.csv.out.csv"));
  std::ofstream(scratch() / "tables.csv") << "rows,dim,pooling\n1000,16,2\n3000,16,1\n";
  swept({file, "-o", scratch_file("tables.csv.out.csv")});
  const std::string second = read(scratch_file("tables.csv.out.csv"));
  const auto key = [](const std::string& text) { return lines(text).at(1).substr(0, 20); };
  EXPECT_THAT(key(first), StartsWith("graph=mine@"));
  EXPECT_NE(key(first), key(second));
}

TEST(SweepCommand, MistakesAreOneLine) {
  const std::string good = small_spec();
  expect_error({"sweep", good}, 2, "--output");
  expect_error({"sweep", good, "-o", scratch_file("x.txt")}, 2, "ends in .csv or .csv.gz, found");
  for (const char* shard : {"0/2", "3/2", "1", "1/", "/2", "1/2x", "-1/2"}) {
    expect_error({"sweep", good, "-o", scratch_file("x.csv"), std::string("--shard=") + shard}, 2,
                 "expected I/N");
  }
  expect_error({"sweep", good, "-o", scratch_file("x.csv"), "--chunk", "0"}, 2, "--chunk");
  expect_error({"sweep", scratch_file("none.json"), "-o", scratch_file("x.csv")}, 1,
               "expected a readable sweep spec");
  const auto wrong = [&](const std::string& change, const std::string& into,
                         const std::string& text) {
    std::string changed = crossing("64");
    const auto place = changed.find(change);
    ASSERT_NE(place, std::string::npos) << change;
    changed.replace(place, change.size(), into);
    expect_error({"sweep", written("wrong.json", changed), "-o", scratch_file("x.csv")}, 1, text);
  };
  wrong("\"ddp\"", "\"dpp\"", "wrong.json:2:");  // a preset
  wrong("\"build\": \"mlp\"", "\"build\": \"mlpp\"",
        "/graphs/1/build: expected a builder, found \"mlpp\" (nearest: \"mlp\")");
  wrong("\"batch\": 512", "\"bacth\": 512",
        "/graphs/0/options/bacth: expected an option of `perfpredict build dlrm`, found \"bacth\" "
        "(nearest: \"batch\")");
  wrong("\"batch\": 512", "\"output\": \"x\"", "/graphs/0/options/output: expected an option");
  wrong("\"batch\": 512", "\"batch\": \"many\"",
        "/graphs/0/options: expected what `perfpredict build");
  wrong("\"batch\": [64]", "\"batch\": [\"many\"]",
        "/rewrites/0/batch/0: expected a size of at least 1");
  wrong("\"bf16\"", "\"bf61\"", "/rewrites/1/precision/1: ");
  EXPECT_FALSE(fs::exists(scratch_file("x.csv.parts")));
  // Started by mpirun, without the module next to the program.
  fs::create_directories(scratch() / "a/b/c");
  const fs::path alone = scratch() / "a/b/c/perfpredict";
  fs::copy_file(PERFPREDICT_PROGRAM, alone, fs::copy_options::overwrite_existing);
  const std::string errors = scratch_file("errors.txt");
  setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
  const int status =
      Started({alone.string(), "sweep", good, "-o", scratch_file("x.csv")}, errors).wait();
  unsetenv("OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(read(errors), StartsWith("expected to talk to the other ranks of this job (4), found "
                                       "no libperfpredict_mpi.so beside the program"));
}

#ifdef PERFMODEL_MPIRUN

Words mpirun(int ranks, const Words& words) {
  Words all = {PERFMODEL_MPIRUN,      "--allow-run-as-root", "--oversubscribe", "-n",
               std::to_string(ranks), PERFPREDICT_PROGRAM};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

std::vector<pid_t> children(pid_t parent) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (!std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c); })) continue;
    const std::string stat = read(entry.path() / "stat");  // pid (name) state parent ...
    std::istringstream rest(stat.substr(std::min(stat.rfind(')') + 1, stat.size())));
    std::string state;
    pid_t its_parent = 0;
    if (rest >> state >> its_parent && its_parent == parent) found.push_back(std::stoi(name));
  }
  return found;
}

TEST(SweepMpi, RanksGiveTheSameFile) {
  swept({small_spec(), "-o", scratch_file("alone.csv.gz")});
  for (const int ranks : {1, 4}) {
    const std::string file = scratch_file("ranks.csv.gz"), errors = scratch_file("errors.txt");
    fs::remove(file);
    const int status =
        Started(mpirun(ranks, {"sweep", small_spec(), "-o", file, "--chunk", "5"}), errors).wait();
    ASSERT_EQ(WEXITSTATUS(status), 0) << read(errors);
    EXPECT_EQ(read(file), read(scratch_file("alone.csv.gz"))) << ranks;
    EXPECT_FALSE(fs::exists(file + ".parts"));
  }
}

TEST(SweepMpi, AKilledRankEndsTheJobAndARestartGoesOn) {
  const std::string file = large_spec(60);  // 1,440 rows
  swept({file, "-o", scratch_file("alone.csv.gz")});
  const std::string output = scratch_file("killed_rank.csv.gz");
  const Started job(mpirun(3, {"sweep", file, "-o", output, "--chunk", "6"}));
  wait_for_rows(output + ".parts", 3);
  const auto ranks = children(job.pid());
  ASSERT_EQ(ranks.size(), 3U);
  kill(ranks.back(), SIGKILL);
  EXPECT_NE(job.wait(), 0);
  ASSERT_FALSE(fs::exists(output));
  const Json before = swept({file, "-o", output, "--dry-run"});
  EXPECT_GT(before["finished_before"].get<int>(), 0);
  const int status = Started(mpirun(2, {"sweep", file, "-o", output})).wait();
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(read(output), read(scratch_file("alone.csv.gz")));
}

TEST(SweepMpi, WhatIsWrongIsSaidOnce) {
  const std::string errors = scratch_file("errors.txt");
  const int status =
      Started(mpirun(3, {"sweep", scratch_file("none.json"), "-o", scratch_file("y.csv")}), errors)
          .wait();
  EXPECT_NE(status, 0);
  const auto said = lines(read(errors));
  EXPECT_EQ(std::ranges::count_if(said,
                                  [](const std::string& line) {
                                    return line.find("expected a readable sweep spec") !=
                                           std::string::npos;
                                  }),
            1);
}

#endif

}  // namespace sweep_test
}  // namespace perfmodel::test_support
