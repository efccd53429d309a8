// Memory as recorded: `[memory]` instants of traces and snapshots of PyTorch's allocator.

#include "perfmodel/detail/measured_memory.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../scratch.hpp"
#include "perfmodel/detail/allocator_snapshot.hpp"
#include "perfmodel/detail/trace_report.hpp"

namespace perfmodel {
namespace measured_memory_test {

class MeasuredMemoryTest : public testing::Test {
 protected:
  void SetUp() override { file_ = test_support::scratch() / "measured_memory.json"; }
  void TearDown() override { std::filesystem::remove(file_); }

  void write(const std::string& text) const { std::ofstream(file_, std::ios::binary) << text; }

  Trace trace_of(const std::string& events) const {
    write("[" + events + "]");
    auto trace = read_trace(file_);
    if (!trace) {
      ADD_FAILURE() << to_string(trace.error());
      return {};
    }
    return std::move(*trace);
  }
  std::string trace_error(const std::string& events) const {
    write("[" + events + "]");
    const auto trace = read_trace(file_);
    return trace ? "none" : without_file(trace.error());
  }

  AllocatorSnapshot snapshot_of(const std::string& text) const {
    write(text);
    auto snapshot = read_allocator_snapshot(file_);
    if (!snapshot) {
      ADD_FAILURE() << to_string(snapshot.error());
      return {};
    }
    return std::move(*snapshot);
  }
  std::string snapshot_error(const std::string& text) const {
    write(text);
    const auto snapshot = read_allocator_snapshot(file_);
    return snapshot ? "none" : without_file(snapshot.error());
  }

  // The text after "file:", or after "file: " if there is no line.
  std::string without_file(const Error& error) const {
    const std::string text = to_string(error);
    return text.substr(text.find_first_not_of(": ", file_.string().size()));
  }

  std::filesystem::path file_;
};

// ---- traces ------------------------------------------------------------------------------------

std::string op(const char* name, int ts, int dur) {
  return std::string(R"({"ph": "X", "cat": "cpu_op", "name": ")") + name +
         R"(", "pid": 1, "tid": 2, "ts": )" + std::to_string(ts) + R"(, "dur": )" +
         std::to_string(dur) + "},";
}
std::string record(int ts, const std::string& args) {
  return R"({"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1,)"
         R"( "tid": 2, "ts": )" +
         std::to_string(ts) + R"(, "args": {)" + args + "}}";
}
std::string on_gpu(int ts, int bytes, int allocated, int reserved) {
  return record(ts, R"("Total Reserved": )" + std::to_string(reserved) +
                        R"(, "Total Allocated": )" + std::to_string(allocated) + R"(, "Bytes": )" +
                        std::to_string(bytes) +
                        R"(, "Addr": 140000, "Device Id": 0, "Device Type": 1, "Ev Idx": 7)");
}

TEST_F(MeasuredMemoryTest, PeakIsTheFirstHighestLevelInTheInnermostOpenOp) {
  const Trace trace =
      trace_of(op("aten::linear", 100, 50) + op("aten::empty", 110, 5) + op("aten::mul", 120, 5) +
               on_gpu(112, 512, 1536, 4096) + "," + on_gpu(117, 512, 2048, 4096) + "," +
               on_gpu(122, -512, 1536, 8192) + "," + on_gpu(123, 512, 2048, 8192));
  const auto devices = measured_memory(trace);
  ASSERT_EQ(devices.size(), 1U);
  EXPECT_EQ(devices[0].device, "cuda:0");
  EXPECT_EQ(devices[0].peak_bytes, 2048);
  EXPECT_DOUBLE_EQ(devices[0].peak_us, 17);       // the trace begins at 100; 23 is not the first
  EXPECT_EQ(devices[0].peak_op, "aten::linear");  // aten::empty ended at 115
  EXPECT_EQ(devices[0].reserved_bytes, 8192);
  ASSERT_EQ(devices[0].curve.size(), 4U);
  EXPECT_EQ(devices[0].curve[2].allocated_bytes, 1536);
}

TEST_F(MeasuredMemoryTest, AWindowHasItsOwnPeak) {
  const Trace trace = trace_of(op("a", 100, 50) + on_gpu(110, 512, 4096, 4096) + "," +
                               on_gpu(120, -512, 512, 4096) + "," + on_gpu(130, 512, 1024, 4096));
  const auto devices = measured_memory(trace, {{{15'000, 40'000}}});
  ASSERT_EQ(devices.size(), 1U);
  EXPECT_EQ(devices[0].peak_bytes, 1024);
  EXPECT_EQ(devices[0].curve.size(), 2U);
}

TEST_F(MeasuredMemoryTest, WithoutTotalsTheLowestLevelIsZero) {
  // Changes -100, +300, -50: levels -100, 200, 150; moved by 100: 0, 300, 250.
  const Trace trace = trace_of(record(10, R"("Bytes": -100, "Device Type": 0)") + "," +
                               record(20, R"("Bytes": 300, "Device Type": 0)") + "," +
                               record(30, R"("Bytes": -50, "Device Type": 0)"));
  const auto devices = measured_memory(trace);
  ASSERT_EQ(devices.size(), 1U);
  EXPECT_EQ(devices[0].device, "cpu");
  EXPECT_FALSE(devices[0].totals_recorded);
  EXPECT_EQ(devices[0].peak_bytes, 300);
  EXPECT_EQ(devices[0].curve[0].allocated_bytes, 0);
  EXPECT_EQ(devices[0].curve[2].allocated_bytes, 250);
  EXPECT_FALSE(devices[0].reserved_bytes);
  EXPECT_EQ(devices[0].peak_op, "");
}

TEST_F(MeasuredMemoryTest, WhatIsNoNumberIsAnErrorWithItsPlace) {
  EXPECT_EQ(trace_error(record(1, R"("Bytes": "x")")),
            "1:2: /0/args/Bytes: expected a number, found x");
  EXPECT_EQ(trace_error(record(1, R"("Bytes": 1, "Total Allocated": 1.5)")),
            "1:2: /0/args/Total Allocated: expected a number, found 1.5");
  EXPECT_EQ(trace_error(record(1, R"("Bytes": 1, "Device Id": 40000)")),
            "1:2: /0/args/Device Id: expected a number from -1 to 32767, found 40000");
  EXPECT_EQ(trace_of(record(1, R"("Addr": 1)")).memory.size(), 0U);  // no allocation
}

TEST_F(MeasuredMemoryTest, ThinningKeepsLonePeaks) {
  std::vector<MeasuredMemory::Point> curve(10'000);
  for (std::size_t i = 0; i < curve.size(); ++i) {
    curve[i] = {.time_us = static_cast<double>(i), .allocated_bytes = 100, .reserved_bytes = 200};
  }
  curve[4'321].allocated_bytes = 900;
  curve[7'654].allocated_bytes = 1;
  curve[8'888].reserved_bytes = 999;
  const auto kept = thinned(curve);
  EXPECT_LE(kept.size(), 2000U);
  const auto has = [&](double us) {
    return std::ranges::count(kept, us, &MeasuredMemory::Point::time_us) == 1;
  };
  EXPECT_TRUE(has(4'321));
  EXPECT_TRUE(has(7'654));
  EXPECT_TRUE(has(8'888));
  EXPECT_TRUE(std::ranges::is_sorted(kept, std::ranges::less{}, &MeasuredMemory::Point::time_us));
  curve.resize(2000);
  EXPECT_EQ(thinned(curve).size(), 2000U);
}

nlohmann::json inflated(const std::filesystem::path& path) {
  std::string text;
  const gzFile file = gzopen(path.c_str(), "rb");
  std::vector<char> part(1 << 20);
  for (int got = 1; file && got > 0; text.append(part.data(), static_cast<std::size_t>(got))) {
    got = std::max(0, gzread(file, part.data(), static_cast<unsigned>(part.size())));
  }
  if (file) gzclose(file);
  return nlohmann::json::parse(text);
}

/// BERT on an H100, PyTorch 2.6: the only public trace with these records.
TEST(PublicMeasuredMemory, PeaksAreThoseOfTheRawRecords) {
  const char* data = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (!data || !*data) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const auto file =
      std::filesystem::path(data) / "traces" / "bert_small_infer_h100_torch26_kineto.json.gz";
  std::int64_t peak = 0, reserved = 0;
  std::size_t records = 0;
  const nlohmann::json raw = inflated(file);
  for (const auto& event : raw.at("traceEvents")) {
    if (event.at("name") != "[memory]" || event.at("args").at("Device Type") != 1) continue;
    ++records;
    peak = std::max(peak, event.at("args").at("Total Allocated").get<std::int64_t>());
    reserved = std::max(reserved, event.at("args").at("Total Reserved").get<std::int64_t>());
  }
  const auto trace = read_trace(file);
  ASSERT_TRUE(trace) << to_string(trace.error());
  const auto devices = measured_memory(*trace);
  ASSERT_EQ(devices.size(), 2U);  // the GPU and the host
  EXPECT_EQ(devices[0].curve.size(), records);
  EXPECT_EQ(devices[0].peak_bytes, peak);
  EXPECT_EQ(devices[0].peak_bytes, 101'305'344);
  EXPECT_EQ(devices[0].reserved_bytes, reserved);
  EXPECT_EQ(devices[0].reserved_bytes, 121'634'816);
  // At 1419247337276.476 of a trace from 1419247332972.313, within aten::linear > addmm > empty.
  EXPECT_NEAR(devices[0].peak_us, 4'304.163, 1e-6);
  EXPECT_EQ(devices[0].peak_op, "aten::empty");
  EXPECT_TRUE(devices[1].on_host);
}

// ---- snapshots ---------------------------------------------------------------------------------

// A block of 1,000 bytes (two times 512 allocated) in a segment of 2 MiB, and a segment of 20 MiB
// that held 10,000,000 bytes (19,532 times 512 = 10,000,384) for a while.
nlohmann::json made_snapshot() {
  return nlohmann::json::parse(R"({
    "segments": [
      {"device": 0, "address": 4096, "total_size": 2097152, "blocks": [
        {"size": 1024, "requested_size": 1000, "address": 4096, "state": "active_allocated",
         "frames": [{"name": "load", "filename": "/home/x/model.py", "line": 12}]},
        {"size": 2096128, "address": 5120, "state": "inactive"}]},
      {"device": 0, "address": 8388608, "total_size": 20971520, "blocks": [
        {"size": 20971520, "address": 8388608, "state": "inactive"}]}],
    "device_traces": [[
      {"action": "segment_alloc", "addr": 4096, "size": 2097152, "time_us": 1000},
      {"action": "alloc", "addr": 4096, "size": 1000, "time_us": 1001},
      {"action": "segment_alloc", "addr": 8388608, "size": 20971520, "time_us": 1010},
      {"action": "alloc", "addr": 8388608, "size": 10000000, "time_us": 1011,
       "frames": [{"name": "forward", "filename": "model.py", "line": 40}]},
      {"action": "free_requested", "addr": 8388608, "size": 10000000, "time_us": 1020},
      {"action": "free_completed", "addr": 8388608, "size": 10000000, "time_us": 1021},
      {"action": "snapshot", "addr": 0, "size": 0, "time_us": 1030}]]})");
}

TEST_F(MeasuredMemoryTest, ASnapshotIsFollowedBackFromItsEnd) {
  const AllocatorSnapshot snapshot = snapshot_of(made_snapshot().dump());
  ASSERT_EQ(snapshot.devices.size(), 1U);
  const SnapshotDevice& device = snapshot.devices[0];
  EXPECT_EQ(device.allocated_bytes, 1024);
  EXPECT_EQ(device.reserved_bytes, 2'097'152 + 20'971'520);
  EXPECT_EQ(device.free_segment_bytes, 20'971'520);
  EXPECT_EQ(device.inactive_split_bytes, 2'096'128);
  EXPECT_EQ(device.memory.peak_bytes, 1024 + 10'000'384);
  EXPECT_DOUBLE_EQ(device.memory.peak_us, 11);
  EXPECT_EQ(device.memory.peak_op, "forward (model.py:40)");
  EXPECT_EQ(device.memory.reserved_bytes, 23'068'672);
  ASSERT_EQ(device.memory.curve.size(), 6U);  // the beginning and five changes
  EXPECT_EQ(device.memory.curve[0].allocated_bytes, 0);
  EXPECT_EQ(device.memory.curve[0].reserved_bytes, 0);
  ASSERT_EQ(device.largest.size(), 1U);
  EXPECT_EQ(device.largest[0].frame, "load (model.py:12)");
}

TEST_F(MeasuredMemoryTest, ARecordingThatBeganLateBeginsAboveZero) {
  auto json = made_snapshot();
  json["device_traces"][0].erase(0);  // the first segment and
  json["device_traces"][0].erase(0);  // its block were there
  const SnapshotDevice device = snapshot_of(json.dump()).devices.at(0);
  EXPECT_EQ(device.memory.curve[0].allocated_bytes, 1024);
  EXPECT_EQ(device.memory.curve[0].reserved_bytes, 2'097'152);
  EXPECT_EQ(device.memory.peak_bytes, 1024 + 10'000'384);
}

TEST_F(MeasuredMemoryTest, ASnapshotWithoutHistoryIsItsEnd) {
  auto json = made_snapshot();
  json.erase("device_traces");
  const AllocatorSnapshot snapshot = snapshot_of(json.dump());
  EXPECT_EQ(snapshot.devices.at(0).memory.peak_bytes, 1024);
  EXPECT_EQ(snapshot.warnings.size(), 1U);
}

TEST_F(MeasuredMemoryTest, MistakesOfASnapshotHaveTheirPlace) {
  using Pointer = nlohmann::json::json_pointer;
  const auto error_with = [&](const char* pointer, const nlohmann::json& value) {
    auto json = made_snapshot();
    json[Pointer(pointer)] = value;
    return snapshot_error(json.dump());
  };
  EXPECT_EQ(error_with("/segments", 5), "/segments: expected an array, found 5");
  EXPECT_EQ(error_with("/segments/0/blocks/0/state", "lost"),
            "/segments/0/blocks/0/state: expected active_allocated, active_pending_free, "
            "active_awaiting_free or inactive, found \"lost\"");
  EXPECT_EQ(error_with("/segments/1/total_size", 20971521),
            "/segments/1/blocks: expected blocks of 20971521 bytes together, found 20971520");
  EXPECT_EQ(error_with("/segments/0/blocks/0/size", -1),
            "/segments/0/blocks/0/size: expected a whole number from 0 to 1125899906842624, "
            "found -1");
  EXPECT_EQ(error_with("/device_traces/0/3/time_us", 1),
            "/device_traces/0/3: expected entries by time, found an earlier one");
  // 3 MiB more than there was: 2 MiB - 5 MiB.
  EXPECT_EQ(error_with("/device_traces/0/0/size", 5242880),
            "/device_traces/0/0: expected entries that lead to the segments at the end, found "
            "-3145728 bytes reserved before this one");
  EXPECT_NE(snapshot_error("{\"segments\": [").find("expected JSON"), std::string::npos);
  EXPECT_NE(snapshot_error("{}").find("expected key \"segments\", found none"), std::string::npos);
  EXPECT_NE(snapshot_error("{\"segments\": " + std::string(100, '[')).find("64 brackets"),
            std::string::npos);
}

TEST_F(MeasuredMemoryTest, SnapshotsAreToldByTheirFirstBytes) {
  const auto is_snapshot = [&](const std::string& text) {
    write(text);
    return is_allocator_snapshot(file_);
  };
  EXPECT_TRUE(is_snapshot(" {\n \"segments\": []}"));
  EXPECT_TRUE(is_snapshot("[{\"device\": 0, \"total_size\": 512}]"));
  EXPECT_FALSE(is_snapshot("[{\"ph\": \"X\", \"args\": {\"total_size\": 512}}]"));
  EXPECT_FALSE(is_snapshot("{\"segments_of\": []}"));
  EXPECT_FALSE(is_snapshot("{\"traceEvents\": []}"));
  EXPECT_FALSE(is_snapshot(""));
}

}  // namespace measured_memory_test
}  // namespace perfmodel
