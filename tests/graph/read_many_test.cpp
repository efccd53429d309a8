#include "read/read_many.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

namespace perfmodel {
namespace read_many_test {

const std::filesystem::path kSamples = PERFMODEL_SAMPLES;

std::vector<std::string> samples(std::string_view prefix, bool errors = false) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(kSamples)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(prefix)) continue;
    const bool readable =
        prefix == "et_" ? read_execution_graphs(std::vector{entry.path().string()}).has_value()
                        : read_traces(std::vector{entry.path().string()}).has_value();
    if (readable || errors) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST(ReadManyThreads, TracesAreThoseOfOneAfterTheOther) {
  const auto files = samples("kineto_");
  ASSERT_GT(files.size(), 4u);
  for (std::size_t threads : {1, 2, 8}) {
    const auto traces = read_traces(files, {.threads = threads});
    ASSERT_TRUE(traces.has_value()) << to_string(traces.error());
    ASSERT_EQ(traces->size(), files.size());
    for (std::size_t i = 0; i < files.size(); ++i) {
      const auto alone = read_trace(files[i]);
      ASSERT_TRUE(alone.has_value());
      EXPECT_EQ((*traces)[i].source, files[i]);
      EXPECT_EQ((*traces)[i].event_count, alone->event_count);
      EXPECT_EQ((*traces)[i].host.size(), alone->host.size());
      EXPECT_EQ((*traces)[i].gpu.size(), alone->gpu.size());
      EXPECT_EQ((*traces)[i].base_ns, alone->base_ns);
    }
  }
}

TEST(ReadManyThreads, GraphsKeepTheirOrder) {
  const auto files = samples("et_");
  ASSERT_GT(files.size(), 4u);
  const auto graphs = read_execution_graphs(files, {.threads = 8});
  ASSERT_TRUE(graphs.has_value()) << to_string(graphs.error());
  for (std::size_t i = 0; i < files.size(); ++i) EXPECT_EQ((*graphs)[i].source, files[i]);
}

TEST(ReadManyThreads, TheFirstErrorInTheOrderOfTheFilesIsTheError) {
  auto files = samples("kineto_");
  files.insert(files.begin() + 2, "no such file");
  files.push_back("nor this one");
  for (std::size_t threads : {1, 2, 8}) {
    const auto traces = read_traces(files, {.threads = threads});
    ASSERT_FALSE(traces.has_value());
    EXPECT_EQ(traces.error().file, "no such file");
  }
}

TEST(ReadManyThreads, ProgressEndsAtTheSizeOfEachFile) {
  const auto files = samples("kineto_");
  std::map<std::size_t, std::uint64_t> done;
  const auto traces = read_traces(
      files,
      {.threads = 4, .progress = [&](std::size_t file, std::uint64_t bytes, std::uint64_t size) {
         EXPECT_GE(bytes, done[file]);
         EXPECT_EQ(size, std::filesystem::file_size(files[file]));
         done[file] = bytes;
       }});
  ASSERT_TRUE(traces.has_value());
  ASSERT_EQ(done.size(), files.size());
  for (const auto& [file, bytes] : done) EXPECT_EQ(bytes, std::filesystem::file_size(files[file]));
}

TEST(ReadManyThreads, TheLimitOfKeptBytesIsShared) {
  const std::vector<std::string> files(4, samples("kineto_").front());
  ReadManyOptions options{.threads = 2};
  options.reading.limits.kept_bytes = 4;
  const auto traces = read_traces(files, options);
  ASSERT_FALSE(traces.has_value());
  EXPECT_NE(to_string(traces.error()).find("kept-bytes"), std::string::npos)
      << to_string(traces.error());
}

TEST(ReadManyThreads, NoFilesAreNoTraces) {
  const auto traces = read_traces({});
  ASSERT_TRUE(traces.has_value());
  EXPECT_TRUE(traces->empty());
}

}  // namespace read_many_test
}  // namespace perfmodel
