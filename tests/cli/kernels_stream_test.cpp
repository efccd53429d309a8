// Long tables: prices come in order, memory stays flat, and nothing is seen of a table with a
// mistake.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>

#include "program.hpp"

namespace perfmodel::test_support {
namespace kernels_stream_test {

#if defined(PERFMODEL_SANITIZED)
constexpr int kLong = 60'000;
#else
constexpr int kLong = 600'000;  // 30 MB of prices: more than is kept in memory
#endif

std::string table_of(int rows, const std::string& last = {}) {
  const fs::path file = scratch() / ("long_" + std::to_string(rows) + ".csv");
  std::ofstream out(file, std::ios::binary);
  out << "id,op,dtype,rows,cols\n";
  for (int i = 1; i <= rows; ++i) {
    out << 'r' << i << (i % 2 ? ",relu" : ",softmax") << ",fp32," << i % 5000 + 1 << ",1024\n";
  }
  if (!last.empty()) out << last << '\n';
  return file.string();
}

Words kernels(const std::string& file) {
  return {"kernels", file, "--gpu", "t4", "--models", "heuristic"};
}

/// "r1", "r2", ... one line each after the header.
void expect_in_order(const std::string& prices, int rows) {
  std::size_t at = prices.find('\n');
  for (int i = 1; i <= rows; ++i) {
    const std::string id = "\nr" + std::to_string(i) + ",";
    ASSERT_EQ(prices.compare(at, id.size(), id), 0) << i;
    at = prices.find('\n', at + 1);
    ASSERT_NE(at, std::string::npos);
  }
  EXPECT_EQ(at + 1, prices.size());
}

TEST(LongTables, PricesComeInOrder) {
  const std::string file = table_of(kLong);
  const Outcome seen = run(kernels(file));
  EXPECT_EQ(seen.status, 0) << seen.err;
  expect_in_order(seen.out, kLong);

  const std::string target = scratch_file("long_prices.csv");
  Words to_file = kernels(file);
  to_file.insert(to_file.end(), {"-o", target});
  EXPECT_EQ(run(to_file).status, 0);
  EXPECT_TRUE(read(target) == seen.out);

  const Outcome piped = run(kernels("/dev/stdin"), "cat '" + file + "' |");
  EXPECT_EQ(piped.status, 0) << piped.err;
  EXPECT_TRUE(piped.out == seen.out);
}

TEST(LongTables, TheDocumentIsWhole) {
  constexpr int kRows = 9'000;  // three blocks
  Words words = kernels(table_of(kRows));
  words.push_back("--json");
  const Outcome outcome = run(words);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto document = nlohmann::ordered_json::parse(outcome.out);
  EXPECT_EQ(outcome.out, document.dump(1) + "\n");  // written as one would be that is kept whole
  EXPECT_EQ(document["rows"], kRows);
  ASSERT_EQ(document["kernels"].size(), static_cast<std::size_t>(kRows));
  for (int i = 0; i < kRows; ++i) {
    ASSERT_EQ(document["kernels"][i]["id"], "r" + std::to_string(i + 1));
  }
}

TEST(LongTables, AMistakeInTheLastRowLeavesNothing) {
  const std::string file = table_of(kLong, "last,relu,fp32,0,1024");
  const std::string place =
      "long_" + std::to_string(kLong) + ".csv:" + std::to_string(kLong + 2) + ":16: rows: expected";
  const std::string target = scratch_file("mistake.csv");
  Words to_file = kernels(file), json = kernels(file);
  to_file.insert(to_file.end(), {"-o", target});
  json.push_back("--json");
  for (const Words& words : {kernels(file), to_file, json}) {
    expect_error(words, 1, place);
  }
  EXPECT_FALSE(fs::exists(target));
  const Outcome piped = run(kernels("/dev/stdin"), "cat '" + file + "' |");
  EXPECT_EQ(piped.status, 1);
  EXPECT_EQ(piped.out, "");
}

TEST(LongTables, NoRoomAsideIsAnError) {
#if !defined(PERFMODEL_SANITIZED)
  const Outcome outcome = run(kernels(table_of(kLong)), "TMPDIR=/proc");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find("cannot keep the prices here until all are made"), std::string::npos)
      << outcome.err;
#endif
}

#if !defined(PERFMODEL_SANITIZED)
/// Peak memory of the command alone, in KiB.
long peak_memory(const std::string& file) {
  const std::string target = scratch_file("peak.csv");
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, STDOUT_FILENO);
    execl(PERFPREDICT_PROGRAM, PERFPREDICT_PROGRAM, "kernels", file.c_str(), "--gpu", "t4",
          "--models", "heuristic", "-o", target.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  rusage usage = {};
  EXPECT_EQ(wait4(child, &status, 0, &usage), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  return usage.ru_maxrss;
}

// As a whole, 550,000 rows were 240 MB.
TEST(LongTables, MemoryIsFlatInRows) {
  const long few = peak_memory(table_of(50'000)), many = peak_memory(table_of(kLong));
  EXPECT_LT(many, few + 8 * 1024) << few << " KiB for 50,000 rows";
}
#endif

}  // namespace kernels_stream_test
}  // namespace perfmodel::test_support
