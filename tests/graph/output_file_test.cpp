// Files that appear whole or not at all. tests/faults/ tries real disks.

#include "perfmodel/detail/output_file.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <sys/wait.h>
#include <csignal>
#include <fstream>
#include <iterator>
#include <string>

#include "base/temporary_files.hpp"

namespace perfmodel {
namespace output_file_test {

namespace fs = std::filesystem;

class OutputFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "perfmodel_output_XXXXXX").string();
    folder = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder); }

  static std::string read(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
  }

  fs::path folder;
};

TEST_F(OutputFiles, HasItsNameOnceItIsWhole) {
  const fs::path file = folder / "a.txt";
  auto out = OutputFile::create(file);
  ASSERT_TRUE(out);
  std::string expected;
  for (int i = 0; i < 30000; ++i) {  // small pieces and one that is larger than any buffer
    const std::string piece = i == 10000 ? std::string(300000, 'x') : std::to_string(i) + "\n";
    out->write(piece);
    expected += piece;
  }
  EXPECT_FALSE(fs::exists(file));
  ASSERT_TRUE(out->commit());
  EXPECT_EQ(read(file), expected);
  EXPECT_EQ(files(), 1U);
}

TEST_F(OutputFiles, LeavesNothingWithoutCommit) {
  const fs::path file = folder / "a.txt";
  std::ofstream(file) << "old";
  {
    auto out = OutputFile::create(file);
    ASSERT_TRUE(out);
    out->write("new");
    ASSERT_TRUE(out->finish());
    EXPECT_EQ(files(), 2U);
  }
  EXPECT_EQ(read(file), "old");
  EXPECT_EQ(files(), 1U);
}

TEST_F(OutputFiles, SeveralAtOnceHaveNamesOfTheirOwn) {
  const fs::path file = folder / "a.txt";
  auto first = OutputFile::create(file), second = OutputFile::create(file);
  ASSERT_TRUE(first && second);
  first->write("first");
  second->write("second");
  ASSERT_TRUE(second->commit());
  ASSERT_TRUE(first->commit());
  EXPECT_EQ(read(file), "first");
  EXPECT_EQ(files(), 1U);
}

TEST_F(OutputFiles, KeepPermissionsAndLinksOfWhatTheyReplace) {
  const fs::path file = folder / "a.txt", link = folder / "link.txt";
  std::ofstream(file) << "old";
  const auto mine = fs::perms::owner_read | fs::perms::owner_write;
  fs::permissions(file, mine);
  fs::create_symlink("a.txt", link);
  auto out = OutputFile::create(link);
  ASSERT_TRUE(out) << to_string(out.error());
  out->write("new");
  ASSERT_TRUE(out->commit());
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(read(file), "new");
  EXPECT_EQ(fs::status(file).permissions(), mine);
  EXPECT_EQ(files(), 2U);
}

TEST_F(OutputFiles, MayHaveTheLongestNames) {
  const fs::path file = folder / std::string(255, 'n');
  auto out = OutputFile::create(file);
  ASSERT_TRUE(out) << to_string(out.error());
  out->write("text");
  ASSERT_TRUE(out->commit());
  EXPECT_EQ(read(file), "text");
}

TEST_F(OutputFiles, AreCompressedByName) {
  const fs::path file = folder / "a.txt.gz";
  auto out = OutputFile::create(file);
  ASSERT_TRUE(out);
  const std::string text(1000000, 'a');
  out->write(text);
  ASSERT_TRUE(out->commit());
  EXPECT_LT(fs::file_size(file), 10000U);
  gzFile in = gzopen(file.c_str(), "rb");
  std::string inflated(text.size() + 1, '\0');
  EXPECT_EQ(gzread(in, inflated.data(), static_cast<unsigned>(inflated.size())),
            static_cast<int>(text.size()));
  gzclose(in);
  inflated.pop_back();
  EXPECT_EQ(inflated, text);
}

TEST_F(OutputFiles, ToFoldersAndIntoNoneAreRefused) {
  EXPECT_FALSE(OutputFile::create(folder));
  EXPECT_FALSE(OutputFile::create(folder / "none" / "a.txt"));
  EXPECT_EQ(files(), 0U);
}

TEST_F(OutputFiles, WhatIsNoFileIsWrittenDirectly) {
  auto out = OutputFile::create("/dev/full");
  ASSERT_TRUE(out);
  out->write("text");
  const auto written = out->commit();
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("No space left"), std::string::npos);
}

TEST_F(OutputFiles, AreRemovedByASignalHandler) {
  std::ofstream(folder / "b.txt") << "old";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto first = OutputFile::create(folder / "a.txt"),
         second = OutputFile::create(folder / "b.txt");
    auto named = OutputFile::create(folder / "c.txt");
    if (!first || !second || !named || !named->commit()) _exit(1);
    std::signal(SIGTERM, [](int) {
      remove_temporary_files();
      _exit(7);
    });
    std::raise(SIGTERM);
    _exit(2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(files(), 2U);
  EXPECT_EQ(read(folder / "b.txt"), "old");
  EXPECT_TRUE(fs::exists(folder / "c.txt"));
}

}  // namespace output_file_test
}  // namespace perfmodel
