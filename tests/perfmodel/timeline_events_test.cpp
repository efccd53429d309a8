#include "explain/timeline_events.hpp"
#include "../scratch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace perfmodel {
namespace timeline_events_test {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using testing::HasSubstr;

class Timeline : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = test_support::scratch() / "timeline";
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  TimelineEvents to_text(const TimelineEvents::Head& head = {}) {
    return TimelineEvents([this](std::string_view piece) { text_ += piece; }, head);
  }
  static std::string inflated(const fs::path& file) {
    gzFile in = gzopen(file.c_str(), "rb");
    std::string text(64, '\0');
    std::size_t size = 0;
    for (int count = 1; count > 0; size += static_cast<std::size_t>(count)) {
      text.resize(2 * size + 64);
      count = gzread(in, text.data() + size, static_cast<unsigned>(text.size() - size));
    }
    gzclose(in);
    text.resize(size);
    return text;
  }
  bool is_empty() const { return fs::is_empty(folder_); }

  fs::path folder_;
  std::string text_;
};

using Key = std::pair<std::int64_t, std::int64_t>;

// Properties that viewers rely on: slices of a track in order and nested, arrows that start, go on
// and end in this order at starts of slices. Returns the number of events by phase.
std::map<std::string, std::size_t> check_events(const Json& timeline) {
  std::map<std::string, std::size_t> count;
  std::map<Key, std::vector<std::pair<double, double>>> open;
  std::map<Key, double> last_start;
  std::map<Key, std::set<double>> starts;
  std::map<std::int64_t, std::string> flows;
  std::map<std::int64_t, double> flow_times;
  std::set<Key> named;
  for (const Json& event : timeline["traceEvents"]) {
    const std::string phase = event["ph"];
    ++count[phase];
    const Key track{event["pid"], event["tid"]};
    if (phase == "M") {
      named.insert(track);
      continue;
    }
    const double start = event["ts"];
    if (phase == "X") {
      EXPECT_TRUE(named.contains(track));
      const double end = start + event["dur"].get<double>();
      EXPECT_GE(end, start);
      if (last_start.contains(track)) {
        EXPECT_GE(start, last_start[track]);
      }
      last_start[track] = start;
      starts[track].insert(start);
      auto& around = open[track];
      while (!around.empty() && around.back().second <= start + 1e-6) around.pop_back();
      if (!around.empty()) {
        EXPECT_LE(end, around.back().second + 1e-6);
      }
      around.emplace_back(start, end);
    } else if (phase != "C") {
      const std::int64_t id = event["id"];
      EXPECT_TRUE(starts[track].contains(start)) << event;
      EXPECT_EQ(phase == "s", !flows.contains(id)) << event;
      EXPECT_NE(flows[id], "f") << event;
      EXPECT_EQ(phase == "f", event.contains("bp")) << event;
      if (phase != "s") {
        EXPECT_GE(start, flow_times[id]);
      }
      flows[id] = phase;
      flow_times[id] = start;
    }
  }
  for (const auto& [id, phase] : flows) EXPECT_EQ(phase, "f") << id;
  return count;
}

TEST_F(Timeline, RanksWithLaunchesACriticalPathAndACounter) {
  const TimelineArg head[] = {{"made_by", std::string_view("test")}, {"e2e_us", 12.5}};
  const std::string_view devices[] = {"GPU \"A\""};
  auto events = to_text({.other_data = head, .devices = devices});
  std::vector<TimelinePoint> path;
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    events.name_process(rank, "rank " + std::to_string(rank), rank);
    const auto host = events.add_track(rank, 1, "thread 1", 0);
    const auto stream = events.add_track(rank, 1007, "stream 7", 1);
    const double start = 10.0 * static_cast<double>(rank);
    const TimelineArg args[] = {{"id", rank}, {"in_range", true}, {"low_us", 0.1}};
    events.slice({.track = host,
                  .name = "aten::mm",
                  .category = "cpu_op",
                  .start_us = start,
                  .duration_us = 4,
                  .args = args});
    const auto call = events.slice({.track = host,
                                    .name = "launch",
                                    .category = "cuda_runtime",
                                    .start_us = start + 1,
                                    .duration_us = 2});
    const auto kernel = events.slice({.track = stream,
                                      .name = "gemm",
                                      .category = "kernel",
                                      .start_us = start + 5.0004,
                                      .duration_us = 3});
    events.flow(kLaunchFlow, call, kernel);
    events.counter(rank, "queue depth", start, 1);
    path.push_back(call);
    path.push_back(kernel);
  }
  events.flow(kCriticalPathFlow, path);
  EXPECT_EQ(events.out_of_order(), 0u);
  EXPECT_EQ(events.cut_flows(), 0u);
  ASSERT_TRUE(events.finish());
  const Json timeline = Json::parse(text_);
  EXPECT_EQ(timeline["otherData"], Json({{"made_by", "test"}, {"e2e_us", 12.5}}));
  EXPECT_EQ(timeline["deviceProperties"][0], Json({{"id", 0}, {"name", "GPU \"A\""}}));
  const auto count = check_events(timeline);
  EXPECT_EQ(count.at("X"), 9u);
  EXPECT_EQ(count.at("C"), 3u);
  EXPECT_EQ(count.at("s"), 4u);  // three launches and the path
  EXPECT_EQ(count.at("t"), 4u);
  EXPECT_EQ(count.at("f"), 4u);
  EXPECT_THAT(text_, HasSubstr(R"({"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,)"
                               R"("ts":10.000,"dur":4.000,"args":{"id":1,"in_range":true,)"
                               R"("low_us":0.1}})"));
  EXPECT_THAT(text_, HasSubstr(R"({"ph":"f","cat":"ac2g","name":"ac2g","id":1,"pid":0,"tid":1007,)"
                               R"("ts":5.000,"bp":"e"})"));
}

TEST_F(Timeline, SlicesThatTouchStillTouchWhenRounded) {
  auto events = to_text();
  const auto track = events.add_track(0, 1, "t", 0);
  double at = 0;
  for (int i = 0; i < 1000; ++i) {
    events.slice({.track = track,
                  .name = "k",
                  .category = "kernel",
                  .start_us = at,
                  .duration_us = 1.0 / 3});
    at += 1.0 / 3;
  }
  ASSERT_TRUE(events.finish());
  const Json timeline = Json::parse(text_);
  check_events(timeline);
  std::int64_t end = 0;
  for (const Json& event : timeline["traceEvents"]) {
    if (event["ph"] != "X") continue;
    EXPECT_EQ(std::llround(event["ts"].get<double>() * 1e3), end);
    end += std::llround(event["dur"].get<double>() * 1e3);
  }
  EXPECT_EQ(end, 333'333);
}

TEST_F(Timeline, NamesOfAnyBytesGiveValidJson) {
  auto events = to_text();
  const auto track = events.add_track(0, 1, "tab\t\"quote\" \\ größe \xff \xe6\xa2", 0);
  const TimelineArg args[] = {{"nan", std::nan("")}, {"text", std::string_view("\x01\n")}};
  events.slice({.track = track, .name = "a\xc3(", .category = "kernel", .args = args});
  ASSERT_TRUE(events.finish());
  const Json timeline = Json::parse(text_);
  EXPECT_EQ(timeline["traceEvents"][0]["args"]["name"],
            "tab\t\"quote\" \\ größe \xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(timeline["traceEvents"][2]["name"], "a\xef\xbf\xbd(");
  EXPECT_TRUE(timeline["traceEvents"][2]["args"]["nan"].is_null());
  EXPECT_EQ(timeline["traceEvents"][2]["args"]["text"], "\x01\n");
}

TEST_F(Timeline, ArrowsBackInTimeAreCutAndCounted) {
  auto events = to_text();
  const auto track = events.add_track(0, 1, "t", 0);
  std::vector<TimelinePoint> points;
  for (const double start : {0.0, 5.0, 3.0, 8.0}) {
    points.push_back(events.slice(
        {.track = track, .name = "k", .category = "kernel", .start_us = start, .duration_us = 1}));
  }
  EXPECT_EQ(events.out_of_order(), 1u);
  events.flow("path", points);  // 0 -> 5, 3 -> 8
  events.flow("path", points[1], points[0]);
  EXPECT_EQ(events.cut_flows(), 2u);
  ASSERT_TRUE(events.finish());
  std::size_t starts = 0;
  const Json timeline = Json::parse(text_);
  for (const Json& event : timeline["traceEvents"]) starts += event["ph"] == "s";
  EXPECT_EQ(starts, 2u);
}

TEST_F(Timeline, NegativeOrMissingTimesAreErrorsAndLeaveNoFile) {
  for (const auto& [start, duration] :
       {std::pair{5.0, -1.0}, {std::nan(""), 1.0}, {0.0, std::nan("")}, {HUGE_VAL, 1.0}}) {
    const fs::path file = folder_ / "bad.json";
    auto events = TimelineEvents::create(file, {});
    ASSERT_TRUE(events);
    const auto track = events->add_track(2, 7, "t", 0);
    events->slice({.track = track,
                   .name = "k",
                   .category = "kernel",
                   .start_us = start,
                   .duration_us = duration});
    const auto done = events->finish();
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().file, file);
    EXPECT_THAT(done.error().message, HasSubstr("process 2, thread 7: expected a slice with"));
    EXPECT_TRUE(is_empty());
  }
  auto counters = to_text();
  counters.counter(1, "depth", 0, std::nan(""));
  EXPECT_FALSE(counters.finish());
  { auto abandoned = TimelineEvents::create(folder_ / "abandoned.json", {}); }
  EXPECT_TRUE(is_empty());
  EXPECT_EQ(TimelineEvents::create(folder_ / "none" / "x.json", {}).error().message,
            "cannot write: No such file or directory");
}

TEST_F(Timeline, LongOnesGoToPlainAndCompressedFilesAlike) {
  std::string texts[2];
  for (const bool gzip : {false, true}) {
    const fs::path file = folder_ / (gzip ? "long.json.gz" : "long.json");
    auto events = TimelineEvents::create(file, {});
    ASSERT_TRUE(events);
    std::vector<TimelineTrack> tracks;
    for (std::int64_t rank = 0; rank < 4; ++rank) {
      tracks.push_back(events->add_track(rank, 1, "t", 0));
    }
    TimelinePoint last;
    for (int i = 0; i < 20'000; ++i) {
      const auto point = events->slice({.track = tracks[static_cast<std::size_t>(i % 4)],
                                        .name = "kernel",
                                        .category = "kernel",
                                        .start_us = 0.7 * i,
                                        .duration_us = 2.5});
      if (i % 2 == 1) events->flow(kLaunchFlow, last, point);
      last = point;
    }
    ASSERT_TRUE(events->finish());
    texts[gzip] = inflated(file);
  }
  EXPECT_TRUE(texts[0] == texts[1]);
  const auto count = check_events(Json::parse(texts[0]));
  EXPECT_EQ(count.at("X"), 20'000u);
  EXPECT_EQ(count.at("s"), 10'000u);
}

}  // namespace timeline_events_test
}  // namespace perfmodel
