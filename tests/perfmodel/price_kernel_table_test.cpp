#include "kernels/price_kernel_table.hpp"
#include "../scratch.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <random>

namespace perfmodel {
namespace price_kernel_table_test {

namespace fs = std::filesystem;
using testing::HasSubstr;

const fs::path kGpus = fs::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus";
constexpr std::size_t kRows = 20'000;  // five blocks

class PricedTables : public testing::Test {
 protected:
  void TearDown() override { fs::remove(file_); }

  /// Products, and softmax on another GPU from row 6,000 on; `replaced` replaces a row, counted
  /// from 1.
  void write(std::size_t replaced_row = 0, const std::string& replaced = {}) {
    std::ofstream out(file_, std::ios::binary);
    out << "device,op,dtype,m,n,k,rows,cols\n";
    for (std::size_t i = 1; i <= kRows; ++i) {
      if (i == replaced_row) {
        out << replaced << '\n';
      } else if (i >= 6000 && i % 3 == 0) {
        out << "t4,softmax,fp32,,,," << i << ",64\n";
      } else {
        out << "V100,gemm,fp32," << i << ",64,128,,\n";
      }
    }
  }

  /// The text so far goes to `written`.
  Result<PricedTable> price(std::size_t threads, std::string& written,
                            std::optional<std::size_t> most_writes = {}) const {
    std::size_t writes = 0;
    const PriceSink sink{.format = append_prices,
                         .write = [&](std::string_view text) -> Result<void> {
                           if (writes++ == most_writes) return fail(ErrorCode::kIo, "no room");
                           written += text;
                           return {};
                         }};
    return price_kernel_table(file_, {.gpu_folder = kGpus}, KernelModels::heuristic(), sink,
                              threads);
  }

  fs::path file_ = test_support::scratch() / "priced.csv";
};

TEST_F(PricedTables, AnyNumberOfThreadsGivesTheSameText) {
  write();
  const auto table = read_kernel_table(file_, {.gpu_folder = kGpus});
  ASSERT_TRUE(table) << to_string(table.error());
  std::vector<Price> prices;
  for (const KernelRow& row : table->rows) {
    prices.push_back(
        KernelModels::heuristic().price(row.work, table->gpus[static_cast<std::size_t>(row.gpu)]));
  }
  std::string expected;
  append_prices(*table, prices, expected);
  for (const std::size_t threads : {1, 2, 7}) {
    std::string written;
    const auto priced = price(threads, written);
    ASSERT_TRUE(priced) << to_string(priced.error());
    EXPECT_TRUE(written == expected) << threads;  // a megabyte
    EXPECT_EQ(priced->rows, kRows);
    ASSERT_EQ(priced->gpus.size(), 2U);
    EXPECT_EQ(priced->gpus[0].name, "v100-sxm2-16gb");
    EXPECT_EQ(priced->gpus[1].name, "t4");
    EXPECT_EQ(priced->ops, (std::vector<std::string>{"gemm", "softmax"}));
    EXPECT_EQ(priced->outside,
              static_cast<std::size_t>(std::ranges::count(prices, false, &Price::in_range)));
  }
}

TEST_F(PricedTables, TheFirstErrorInTheFileStays) {
  struct Case {
    std::string row, message;
  };
  const Case cases[] = {
      {"t4,gemm,fp32,0,64,64,,", "m: expected an integer above 0, found \"0\""},
      {",gemm,fp32,8,64,64,,", "device: expected a GPU in every row"},
      {"t4,softmax,fp32,,,,9007199254740992,9007199254740992,", "expected 8 cells, found 9"},
      {"t4,sofmax,fp32,,,,8,8", "op: expected a known op"}};
  for (const std::size_t row : {1UL, 4096UL, 4097UL, 9000UL, kRows}) {
    for (const Case& one : cases) {
      write(row, one.row);
      for (const std::size_t threads : {1, 3}) {
        std::string written;
        const auto priced = price(threads, written);
        ASSERT_FALSE(priced) << row;
        EXPECT_EQ(priced.error().line, static_cast<int>(row) + 1);
        EXPECT_THAT(to_string(priced.error()), HasSubstr(one.message));
        const auto lines = static_cast<std::size_t>(std::ranges::count(written, '\n'));
        EXPECT_LT(lines, row);  // whole blocks before it
        EXPECT_EQ(lines % 4096, 0U);
      }
    }
  }
}

TEST_F(PricedTables, AnErrorOfTheWriterEndsTheWork) {
  write();
  for (const std::size_t threads : {1, 3}) {
    std::string written;
    const auto priced = price(threads, written, 2);
    ASSERT_FALSE(priced);
    EXPECT_EQ(priced.error().message, "no room");
    EXPECT_EQ(std::ranges::count(written, '\n'), 2 * 4096);
  }
}

TEST_F(PricedTables, ATableHasRows) {
  std::ofstream(file_) << "device,op,dtype,m,n,k\n\n# none\n";
  std::string written;
  const auto priced = price(2, written);
  ASSERT_FALSE(priced);
  EXPECT_EQ(priced.error().message, "expected rows, found only a header");
}

// Its rows need each other wherever they are: the first carries the time of all.
TEST_F(PricedTables, FusedRowsMayLieFarApart) {
  {
    std::ofstream out(file_);
    out << "graph,node_idx,stage,fused,repeat,op,rows,cols,in_elems,out_elems,dtype,device\n";
    out << "g,1,fw,1,1,add,64,64,8192,4096,fp32,t4\n";
    for (int i = 2; i < 6000; ++i) {
      out << "g," << i << ",fw,0,1,add,64,64,8192,4096,fp32,t4\n";
    }
    out << "g,1,fw,1,1,softmax,64,64,8192,4096,fp32,t4\n";
  }
  std::string written;
  const auto priced = price(3, written);
  ASSERT_TRUE(priced) << to_string(priced.error());
  EXPECT_THAT(written, HasSubstr("\n6000,0.000,fused,fused,1,0.000,0.000,fused\n"));
}

// Nanoseconds, but no time becomes 0; rounded as the library rounds, ties included.
TEST(PricesInCsv, TimesHaveThreeDecimals) {
  std::vector<double> times = {0,      0.00012345, 0.9999999,       1,    1.0625, 1.1875,
                               2.0005, 999.9995,   123456789.98765, 1e15, 5e15,   1e17};
  std::mt19937_64 random(5);
  for (int i = 0; i < 20'000; ++i) {
    const double us = std::exp2(std::uniform_real_distribution<double>(-10, 60)(random));
    times.insert(times.end(), {us, std::floor(us * 1024) / 1024, std::floor(us * 2000) / 2000});
  }
  KernelTable table;
  std::vector<Price> prices;
  std::string expected;
  for (const double us : times) {
    table.rows.emplace_back().id = "a";
    prices.push_back({.time = Microseconds{us}, .model = "m"});
    expected += us == 0 || us >= 1 ? fmt::format("a,{:.3f}", us) : fmt::format("a,{:.4g}", us);
    expected += ",m,latency,1,0.000,0.000,\n";
  }
  std::string written;
  append_prices(table, prices, written);
  EXPECT_TRUE(written == expected);
  EXPECT_TRUE(written.starts_with("a,0.000,m,latency,1,0.000,0.000,\na,0.0001234,m,"));
}

}  // namespace price_kernel_table_test
}  // namespace perfmodel
