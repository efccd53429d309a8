#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "../scratch.hpp"
#include "json/csv_file.hpp"

namespace perfmodel {
namespace csv_blocks_test {

class CsvInBlocks : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(file_); }

  void write(const std::string& text) { std::ofstream(file_, std::ios::binary) << text; }

  static void add(std::string& rows, const CsvFile& csv) {
    rows += std::to_string(csv.line());
    for (std::size_t i = 0; i < csv.columns().size(); ++i) {
      rows.append("|").append(csv.cell(static_cast<int>(i)));
    }
    rows += '\n';
  }
  static std::string said(const Error& error) {
    return "error " + std::to_string(error.line) + ":" + std::to_string(error.column) + " " +
           error.message;
  }

  std::string whole() const {
    auto csv = CsvFile::open(file_);
    if (!csv) return said(csv.error());
    std::string rows;
    while (csv->next()) add(rows, *csv);
    return csv->error() ? rows + said(*csv->error()) : rows;
  }

  std::string in_blocks(std::size_t most_rows) const {
    auto blocks = CsvBlocks::open(file_);
    if (!blocks) return said(blocks.error());
    auto csv = blocks->header();
    if (!csv) return said(csv.error());
    std::string rows;
    CsvBlock block;
    for (std::uint64_t count = 0;;) {
      const auto more = blocks->next(most_rows, block);
      if (!more) return rows + said(more.error());
      if (!*more) return rows;
      EXPECT_EQ(block.rows_before, count);
      csv->go_on(block);
      const std::uint64_t before = count;
      for (; csv->next(); ++count) add(rows, *csv);
      if (csv->error()) return rows + said(*csv->error());
      EXPECT_LE(count - before, most_rows);
    }
  }

  std::filesystem::path file_ = test_support::scratch() / "csv_blocks.csv";
};

TEST_F(CsvInBlocks, QuotesMayHoldLineBreaks) {
  write("# head\nid,b\n1,\"x\ny\"\n\n# between\n2, \"q\"\"\n\" \n3,5\" pipe\n");
  const std::string rows = "3|1|x\ny\n7|2|q\"\n\n9|3|5\" pipe\n";
  EXPECT_EQ(whole(), rows);
  EXPECT_EQ(in_blocks(1), rows);
  EXPECT_EQ(in_blocks(100), rows);
}

TEST_F(CsvInBlocks, AZeroEndsNoCell) {
  using namespace std::string_literals;
  write("a,b\n1\0,\0 2\n\0\n\"q\"\0,1\n"s);
  EXPECT_EQ(in_blocks(1), whole());
  EXPECT_EQ(whole(), "2|1\0|\0 2\nerror 3:1 expected 2 cells, found 1"s);
  write("a,b\n\"q\"\0,1\n"s);
  EXPECT_EQ(whole(), "error 2:4 expected a comma after a quoted cell, found more text");
  write("a,b\n3,4\0"s);  // and no line break
  EXPECT_EQ(in_blocks(1), "2|3|4\0\n"s);
  EXPECT_EQ(whole(), "2|3|4\0\n"s);
}

TEST_F(CsvInBlocks, ErrorsAreThoseOfTheWholeFile) {
  for (const char* text : {"", "# only a comment\n", "a,a\n", "a,\n1,2\n", "a,b\n1,2\n1\n3,4\n",
                           "a,b\n1,2\n\"x\"y,2\n", "a,b\n1,2\n1,\"open\n3,4\n"}) {
    write(text);
    EXPECT_NE(whole().find("error"), std::string::npos) << text;
    EXPECT_EQ(in_blocks(1), whole()) << text;
  }
}

// Any mix of cells, comments, blank lines, line breaks and defects, cut anywhere.
TEST_F(CsvInBlocks, AnyCutGivesTheSameRows) {
  constexpr const char* kCells[] = {"a", "12",  "\"x,y\"", "\"l1\nl2\"", "\"q\"\"q\"", "  7 ",
                                    "",  "5\"", " \"z\" ", "\"bad\"x",   "\"open"};
  std::mt19937 random(11);
  const auto below = [&](unsigned end) { return random() % end; };
  for (int table = 0; table < 300; ++table) {
    std::string text = below(4) ? "" : "\xEF\xBB\xBF";
    text += below(2) ? "id,\"b c\"\n" : "# c\n\nid,b\r\n";
    const unsigned kinds = below(3) ? 9 : 11;  // the last two are defects
    for (unsigned rows = below(40); rows > 0; --rows) {
      if (below(6) == 0) text += "# \"comment\n";
      if (below(6) == 0) text += " \t\n";
      text += std::string(kCells[below(kinds)]) + "," + kCells[below(kinds)];
      if (rows > 1 || below(2)) text += below(3) ? "\n" : "\r\n";
    }
    write(text);
    EXPECT_EQ(in_blocks(1 + below(7)), whole()) << text;
  }
}

TEST_F(CsvInBlocks, ARowHasAnEnd) {
  std::ofstream out(file_, std::ios::binary);
  out << "a\n1\n\"";
  for (int i = 0; i < 70; ++i) out << std::string(std::size_t{1} << 20, 'x');
  out.close();
  EXPECT_EQ(in_blocks(4), "error 3:1 expected a row of at most 64 MiB, found a longer one");
}

TEST(CsvCell, StandsInQuotesOnlyIfItMust) {
  EXPECT_EQ(csv_cell("dp 8 tp 4"), "dp 8 tp 4");
  EXPECT_EQ(csv_cell("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_cell("the \"best\"\none"), "\"the \"\"best\"\"\none\"");
}

}  // namespace csv_blocks_test
}  // namespace perfmodel
