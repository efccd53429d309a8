#include "base/byte_source.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "../scratch.hpp"
#include "gzip_text.hpp"

namespace perfmodel {
namespace byte_source_test {

using test_support::gzip;

class ByteSourceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = test_support::scratch() / "byte_source";
    std::filesystem::create_directories(folder_);
    file_ = folder_ / "in";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  struct Text {
    std::string text = {}, error = {};
  };
  static Text drain(ByteSource& source, std::size_t room) {
    Text all;
    std::string piece(room, '\0');
    for (;;) {
      const auto count = source.read(piece.data(), room);
      if (!count) {
        all.error = count.error().message;
        const auto again = source.read(piece.data(), room);
        EXPECT_TRUE(!again && again.error().message == all.error);
        break;
      }
      if (*count == 0) break;
      all.text.append(piece, 0, *count);
    }
    EXPECT_EQ(source.bytes_read(), all.text.size());
    return all;
  }
  Text read(const std::string& bytes, std::size_t room = 1 << 16, const ReadOptions& options = {}) {
    std::ofstream(file_, std::ios::binary) << bytes;
    auto source = ByteSource::open(file_, options);
    if (!source) return {.error = to_string(source.error())};
    return drain(*source, room);
  }

  std::filesystem::path folder_, file_;
};

std::string numbers(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += std::to_string(i * 7919LL % 100'003) + ",";
  return text;
}

TEST_F(ByteSourceTest, PlainAndCompressedTextComeWholeWhateverTheRoom) {
  const std::string text = numbers(100'000);
  for (const std::size_t room : {std::size_t{1}, std::size_t{1000}, std::size_t{1} << 22}) {
    const std::string shorter = room == 1 ? text.substr(0, 3000) : text;
    EXPECT_EQ(read(shorter, room).text, shorter);
    EXPECT_EQ(read(gzip(shorter), room).text, shorter);
  }
  for (const std::string& tiny :
       {std::string(), std::string("x"), std::string("\x1f"), std::string("xy")}) {
    const Text seen = read(tiny);
    EXPECT_EQ(seen.text, tiny);
    EXPECT_EQ(seen.error, "");
  }
}

TEST_F(ByteSourceTest, MembersInARowAreOneTextAndZerosBehindThemArePadding) {
  const std::string a = numbers(40'000), b = numbers(7);
  const Text seen = read(gzip(a) + gzip("") + gzip(b) + std::string(1000, '\0'));
  EXPECT_EQ(seen.error, "");
  EXPECT_EQ(seen.text, a + b);
}

TEST_F(ByteSourceTest, OtherDataBehindAMemberIsAnErrorAfterTheText) {
  const std::string packed = gzip("some text");
  const Text seen = read(packed + "garbage");
  EXPECT_EQ(seen.text, "some text");
  EXPECT_EQ(seen.error, "expected the end of the gzip data, found other data after it, at byte " +
                            std::to_string(packed.size()) + " of the file");
}

TEST_F(ByteSourceTest, WhatLiesBeforeDamageIsKept) {
  const std::string text = numbers(50'000);
  const std::string packed = gzip(text);
  const Text cut = read(packed.substr(0, packed.size() / 2));
  EXPECT_EQ(cut.error, "expected more gzip data, found the end of the file");
  EXPECT_GT(cut.text.size(), text.size() / 3);
  EXPECT_EQ(cut.text, text.substr(0, cut.text.size()));

  std::string flipped = packed;
  for (std::size_t i = packed.size() / 2; i < packed.size() / 2 + 64; ++i) flipped[i] ^= 0x55;
  const Text damaged = read(flipped);
  EXPECT_TRUE(damaged.error.starts_with("expected gzip data, found damage (")) << damaged.error;
  EXPECT_GT(damaged.text.size(), text.size() / 3);

  std::string wrong_sum = packed;
  wrong_sum[packed.size() - 6] ^= 0x55;
  const Text summed = read(wrong_sum);
  EXPECT_EQ(summed.text, text);
  EXPECT_EQ(summed.error, "expected gzip data, found damage (incorrect data check)");
}

TEST_F(ByteSourceTest, EveryPrefixOfAGzipFileIsAnErrorOrTheText) {
  const std::string text = numbers(30);
  const std::string packed = gzip(text);
  for (std::size_t size = 2; size < packed.size(); ++size) {
    const Text seen = read(packed.substr(0, size));
    EXPECT_EQ(seen.error, "expected more gzip data, found the end of the file") << size;
    EXPECT_EQ(seen.text, text.substr(0, seen.text.size()));
  }
}

TEST_F(ByteSourceTest, ProgressCountsTheBytesOfTheFile) {
  const std::string text = numbers(400'000);  // 2.3 MB
  for (const std::string& bytes : {text, gzip(text)}) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> calls;
    const ReadOptions options{.progress = [&](std::uint64_t read, std::uint64_t size) {
      calls.emplace_back(read, size);
    }};
    read(bytes, std::size_t{1} << 20, options);
    ASSERT_GT(calls.size(), 2u);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(calls[i].second, bytes.size());
      if (i > 0) {
        EXPECT_GT(calls[i].first, calls[i - 1].first);
      }
    }
    EXPECT_EQ(calls.back().first, bytes.size());
  }
}

TEST_F(ByteSourceTest, APipeHasNoSizeAndIsReadInItsSmallParts) {
  const std::string text = numbers(50'000);
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  std::thread writer([&] {
    std::ofstream out(file_, std::ios::binary);
    const std::string packed = gzip(text);
    for (std::size_t at = 0; at < packed.size(); at += 777) {
      out << packed.substr(at, 777) << std::flush;
    }
  });
  std::uint64_t size = 1;
  auto source = ByteSource::open(file_, {.progress = [&](auto, std::uint64_t of) { size = of; }});
  ASSERT_TRUE(source);
  const Text seen = drain(*source, std::size_t{1} << 20);
  writer.join();
  EXPECT_EQ(seen.error, "");
  EXPECT_EQ(seen.text, text);
  EXPECT_EQ(size, 0u);
}

TEST_F(ByteSourceTest, InflationIsJudgedBehindSixtyFourMebibytes) {
  const std::string zeros(std::size_t{70} << 20, '0');
  const std::string packed = gzip(zeros);
  const Text bomb = read(packed, std::size_t{1} << 20);
  EXPECT_TRUE(bomb.error.starts_with(
      "expected gzip data that inflates to at most 250 times its size, found "))
      << bomb.error;
  EXPECT_TRUE(bomb.error.ends_with("(limit inflation; --limit inflation=N raises it)"));
  EXPECT_LE(bomb.text.size(), std::size_t{66} << 20);
  EXPECT_EQ(read(packed, std::size_t{1} << 20, {.limits = {.inflation = 2000}}).text.size(),
            zeros.size());
  EXPECT_EQ(read(gzip(zeros.substr(0, std::size_t{60} << 20)), std::size_t{1} << 20).error, "");
}

TEST_F(ByteSourceTest, WhatCannotBeOpenedIsSaid) {
  EXPECT_EQ(ByteSource::open(folder_ / "none", {}).error().message,
            "expected a readable file, found none");
  EXPECT_EQ(ByteSource::open(folder_, {}).error().message, "expected a file, found a directory");
  // Only those who ask for it get standard input.
  EXPECT_EQ(ByteSource::open("-", {}).error().message, "expected a readable file, found none");
  EXPECT_TRUE(ByteSource::open("-", {.dash_is_stdin = true}));
}

}  // namespace byte_source_test
}  // namespace perfmodel
