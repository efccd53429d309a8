#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sweep/gzip_member.hpp"
#include "sweep/part_file.hpp"
#include "sweep/parts_index.hpp"
#include "sweep_cases.hpp"

namespace perfmodel::sweep {
namespace sweep_parts_test {

using test_support::Folder;
using ::testing::HasSubstr;

constexpr const char* kPrint = "0123456789abcdef";

struct Content {
  std::string rows;
  PartSize size;
};

Result<Content> content(const fs::path& file, const std::string& fingerprint = kPrint) {
  Content read;
  const auto size =
      read_part(file, fingerprint, [&](std::string_view rows, std::uint64_t) -> Result<void> {
        read.rows += rows;
        return {};
      });
  if (!size) return Unexpected{size.error()};
  read.size = *size;
  return read;
}

// A part of two members of rows.
std::string some_part(const Folder& folder) {
  const fs::path file = folder / "made.csv.gz";
  auto writer = PartWriter::open(file, kPrint);
  EXPECT_TRUE(writer) << to_string(writer.error());
  EXPECT_TRUE(writer->append("a,1\nb,2\n"));
  EXPECT_TRUE(writer->append("c,3\n"));
  return test_support::read(file);
}

TEST(SweepPart, HoldsRowsBehindAComment) {
  const Folder folder;
  some_part(folder);
  EXPECT_EQ(test_support::inflated(folder / "made.csv.gz"),
            "# rows of a perfpredict sweep, version 1, fingerprint 0123456789abcdef\n"
            "a,1\nb,2\nc,3\n");
  const auto read = content(folder / "made.csv.gz");
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(read->rows, "a,1\nb,2\nc,3\n");
  EXPECT_EQ(read->size.complete, fs::file_size(folder / "made.csv.gz"));
  EXPECT_EQ(read->size.torn, 0U);
}

TEST(SweepPart, GoesOnWhereItEnded) {
  const Folder folder;
  some_part(folder);
  {
    auto writer = PartWriter::open(folder / "made.csv.gz", kPrint);
    ASSERT_TRUE(writer) << to_string(writer.error());
    EXPECT_TRUE(writer->append("d,4\n"));
  }
  EXPECT_EQ(content(folder / "made.csv.gz")->rows, "a,1\nb,2\nc,3\nd,4\n");
}

// Cut off at every byte: complete members are kept, and the writer goes on after them.
TEST(SweepPart, ATornEndIsCutOff) {
  const Folder folder;
  const std::string whole = some_part(folder);
  const std::size_t head =
      gzip_member(test_support::inflated(folder / "made.csv.gz").substr(0, 71))->size();
  const std::size_t first = head + gzip_member("a,1\nb,2\n")->size();
  const fs::path file = folder / "torn.csv.gz";
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    test_support::write(file, whole.substr(0, size));
    const auto before = content(file);
    ASSERT_TRUE(before) << size << " " << to_string(before.error());
    const bool all = size == whole.size();
    const std::string expected = all ? "a,1\nb,2\nc,3\n" : size >= first ? "a,1\nb,2\n" : "";
    const std::size_t complete = all ? size : size >= first ? first : size >= head ? head : 0;
    EXPECT_EQ(before->rows, expected) << size;
    EXPECT_EQ(before->size.complete, complete);
    EXPECT_EQ(before->size.torn, size - complete);
    {
      auto writer = PartWriter::open(file, kPrint);
      ASSERT_TRUE(writer) << size << " " << to_string(writer.error());
      ASSERT_TRUE(writer->append("z,9\n"));
    }
    const auto after = content(file);
    ASSERT_TRUE(after) << to_string(after.error());
    EXPECT_EQ(after->rows, expected + "z,9\n") << size;
    EXPECT_EQ(after->size.torn, 0U);
  }
}

// A crash of the machine may leave zeros or old bytes where the end was to be.
TEST(SweepPart, AnEndOfOtherBytesIsCutOff) {
  const Folder folder;
  const std::string whole = some_part(folder);
  const fs::path file = folder / "torn.csv.gz";
  for (const std::string& end : {std::string(100, '\0'), std::string("\x1f\x8b\x08") + "garbage",
                                 whole.substr(whole.size() / 2)}) {
    test_support::write(file, whole + end);
    const auto read = content(file);
    ASSERT_TRUE(read) << to_string(read.error());
    EXPECT_EQ(read->rows, "a,1\nb,2\nc,3\n");
    EXPECT_EQ(read->size.torn, end.size());
  }
  for (std::size_t at = whole.size() - 8; at < whole.size(); ++at) {  // checksum and size
    std::string broken = whole;
    broken[at] = static_cast<char>(broken[at] ^ 1);
    test_support::write(file, broken);
    EXPECT_EQ(content(file)->rows, "a,1\nb,2\n") << at;
  }
}

TEST(SweepPart, RefusesWhatIsNoneOfThisSweep) {
  const Folder folder;
  const auto refused = [](const fs::path& file, const std::string& text) {
    const auto writer = PartWriter::open(file, kPrint);
    ASSERT_FALSE(writer);
    EXPECT_THAT(to_string(writer.error()), HasSubstr(text));
  };
  { auto other = PartWriter::open(folder / "other.csv.gz", "fedcba9876543210"); }
  const std::string before = test_support::read(folder / "other.csv.gz");
  refused(folder / "other.csv.gz",
          "other.csv.gz: expected rows made with these settings and data (fingerprint "
          "0123456789abcdef), found rows of others (fedcba9876543210)");
  EXPECT_EQ(test_support::read(folder / "other.csv.gz"), before);
  test_support::write(folder / "text.csv.gz", "a,b\n1,2\n");
  refused(folder / "text.csv.gz", "expected rows of a sweep, found something else");
  EXPECT_EQ(test_support::read(folder / "text.csv.gz"), "a,b\n1,2\n");
  test_support::write(folder / "rows.csv.gz", *gzip_member("a,b\n1,2\n"));
  refused(folder / "rows.csv.gz", "expected rows of a sweep, found others");
  refused(folder / "text.csv.gz/below.csv.gz", "cannot open");
}

TEST(SweepPart, IsOfOneProcess) {
  const Folder folder;
  const auto first = PartWriter::open(folder / "one.csv.gz", kPrint);
  ASSERT_TRUE(first);
  const auto second = PartWriter::open(folder / "one.csv.gz", kPrint);
  ASSERT_FALSE(second);
  EXPECT_THAT(to_string(second.error()), HasSubstr("found one that writes this file"));
}

TEST(SweepPart, ADiskThatIsFullLeavesWhatWasThere) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  const auto writer = PartWriter::open("/dev/full", kPrint);
  EXPECT_FALSE(writer);
}

class SweepMerge : public ::testing::Test {
 protected:
  void SetUp() override {
    auto spec = test_support::read_spec(folder_, test_support::kSmallSpec);
    ASSERT_TRUE(spec) << to_string(spec.error());
    spec_ = std::move(*spec);
    fs::create_directories(folder_ / "parts");
  }

  void append(const std::string& part, const SweepPoints& points,
              const std::vector<std::uint64_t>& rows) {
    auto writer = PartWriter::open(folder_ / ("parts/" + part), kPrint);
    ASSERT_TRUE(writer) << to_string(writer.error());
    std::string text;
    for (std::uint64_t row : rows) text += points.key(row) + ",row " + points.key(row) + "\n";
    ASSERT_TRUE(writer->append(text));
  }

  Folder folder_;
  SweepSpec spec_;
};

TEST_F(SweepMerge, PutsRowsInTheOrderOfTheSpec) {
  const SweepPoints points(spec_);
  ASSERT_EQ(points.count(), 36U);
  append("rank-0001.csv.gz", points, {35, 0, 17});
  append("rank-0000.csv.gz", points, {1, 2, 3});
  std::vector<std::uint64_t> others;
  for (std::uint64_t row = 34; row > 3; --row) {
    if (row != 17) others.push_back(row);
  }
  const auto early = index_parts(folder_ / "parts", points, kPrint);
  ASSERT_TRUE(early);
  EXPECT_EQ(early->rows, 6U);
  EXPECT_FALSE(early->complete());
  append("rank-0001.csv.gz", points, others);
  append("rank-0002.csv.gz", points, {5, 6});  // made twice
  const auto index = index_parts(folder_ / "parts", points, kPrint);
  ASSERT_TRUE(index);
  EXPECT_TRUE(index->complete());
  EXPECT_EQ(index->repeated, 2U);
  EXPECT_EQ(index->foreign, 0U);
  const auto merged = merge_parts(*index, points, folder_ / "out.csv");
  ASSERT_TRUE(merged) << to_string(merged.error());
  std::string expected = points.columns() +
                         ",e2e_us,gpu_active_us,cpu_us,exposed_communication_us,samples_per_step,"
                         "samples_per_s,bound,bound_share,modelled_time_fraction,unmodelled_ops,"
                         "kernels_out_of_range,samples_per_s_per_gpu,static_bytes,device_bytes,"
                         "e2e_low_us,e2e_high_us,energy_j,needed_bytes,error\n";
  for (std::uint64_t row = 0; row < 36; ++row) {
    expected += points.cells(row) + ",row " + points.key(row) + "\n";
  }
  EXPECT_EQ(test_support::read(folder_ / "out.csv"), expected);
}

TEST_F(SweepMerge, KeepsWhatStillBelongsToAChangedSpec) {
  {
    const SweepPoints points(spec_);
    std::vector<std::uint64_t> all(36);
    for (std::uint64_t row = 0; row < 36; ++row) all[row] = row;
    append("rank-0000.csv.gz", points, all);
  }
  std::ranges::reverse(spec_.gpus);
  spec_.strategies.pop_back();  // a third of the rows
  spec_.axes[0].values.insert(spec_.axes[0].values.begin(), spec_.axes[0].values[1]);
  spec_.axes[0].values[0].text = "64";
  const SweepPoints changed(spec_);  // 2 x 4 x 2 x 2
  const auto index = index_parts(folder_ / "parts", changed, kPrint);
  ASSERT_TRUE(index);
  EXPECT_EQ(index->foreign, 12U);
  EXPECT_EQ(index->rows, 24U);
  EXPECT_EQ(index->finished.size(), 32U);
}

TEST_F(SweepMerge, ReadsNoMoreThanParts) {
  const SweepPoints points(spec_);
  const auto none = index_parts(folder_ / "nowhere", points, kPrint);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->rows, 0U);
  test_support::write(folder_ / "parts/notes.txt", "mine");
  EXPECT_TRUE(index_parts(folder_ / "parts", points, kPrint));
  test_support::write(folder_ / "parts/other.csv.gz", "mine");
  const auto refused = index_parts(folder_ / "parts", points, kPrint);
  ASSERT_FALSE(refused);
  EXPECT_THAT(to_string(refused.error()), HasSubstr("other.csv.gz: expected rows of a sweep"));
}

}  // namespace sweep_parts_test
}  // namespace perfmodel::sweep
