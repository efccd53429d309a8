#include "../scratch.hpp"
#include "perfmodel/graph/detail/trace_ops.hpp"
#include "perfmodel/graph/trace.hpp"

#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace perfmodel {
namespace read_trace_test {

using std::filesystem::path;

class ReadTrace : public testing::Test {
 protected:
  void SetUp() override { file_ = test_support::scratch() / "trace.json"; }
  void TearDown() override { std::filesystem::remove(file_); }

  Result<Trace> read(const std::string& text, bool salvage = false) {
    std::ofstream(file_, std::ios::binary) << text;
    return read_trace(file_, {.salvage = salvage});
  }
  Trace good(const std::string& text) {
    auto trace = read(text);
    if (!trace) {
      ADD_FAILURE() << to_string(trace.error());
      return {};
    }
    return std::move(*trace);
  }
  std::string error(const std::string& text, bool salvage = false) {
    const auto trace = read(text, salvage);
    if (trace) return "no error";
    const std::string message = to_string(trace.error()), name = file_.string() + ":";
    EXPECT_EQ(message.substr(0, name.size()), name);
    return message.substr(name.size());
  }

  path file_;
};

std::string op(const std::string& ts, const std::string& dur, const std::string& more = "") {
  return R"({"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 5, "tid": 6, "ts": )" + ts +
         R"(, "dur": )" + dur + more + "}";
}
std::string events(const std::string& list) { return "{\"traceEvents\": [\n" + list + "]}"; }

// ---- steps -------------------------------------------------------------------------------------

/// A step of 100 us with kernels of all-reduces of so many numbers.
std::string step_with(int number, const std::vector<int>& elements) {
  const int begin = 100 * number;
  std::string text = fmt::format(
      R"({{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{}", "pid": 5, "tid": 6, "ts": {}, "dur": 100}})",
      number, begin);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const int at = begin + 10 + 10 * static_cast<int>(i), id = at;
    text += fmt::format(
        R"(,{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 5, "tid": 6, "ts": {0}, "dur": 2, "args": {{"correlation": {1}}}}})"
        R"(,{{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0, "tid": 7, "ts": {0}, "dur": 5, "args": {{"correlation": {1}, "device": 0, "stream": 7, "Collective name": "allreduce", "In msg nelems": {2}, "dtype": "Float"}}}})",
        at, id, elements[i]);
  }
  return text;
}

std::vector<std::string> steps_of(const Trace& trace) {
  std::vector<std::string> names;
  for (const TraceIteration& step : iterations(trace)) names.push_back(step.name);
  return names;
}

TEST_F(ReadTrace, FirstStepsOfDdpAreNotTypical) {
  const std::vector<int> all = {900}, rebuilt = {2, 8, 900}, buckets = {300, 600};
  const auto joined = [](std::vector<std::string> list) {
    return events(fmt::format("{}", fmt::join(list, ",")));
  };
  const Trace trace = good(joined({step_with(1, all), step_with(2, rebuilt), step_with(3, buckets),
                                   step_with(4, buckets), step_with(5, buckets)}));
  EXPECT_EQ(steps_of(trace),
            (std::vector<std::string>{"ProfilerStep#3", "ProfilerStep#4", "ProfilerStep#5"}));
  ASSERT_EQ(trace.recording.findings.size(), 1u);
  EXPECT_EQ(trace.recording.findings[0].kind, "first_steps");
  EXPECT_EQ(trace.recording.findings[0].count, 2u);
  EXPECT_EQ(
      trace.recording.findings[0].sentence,
      "2 of 5 steps before ProfilerStep#3 are left out: the collectives are not the ones of most "
      "steps (1 and 2 per step), as in DDP until its buckets are rebuilt");
  EXPECT_EQ(trace.gpu.size(), 10u);  // device work stays
  for (const GpuEvent& event : trace.gpu) {
    EXPECT_EQ(trace.name(trace.host[static_cast<std::size_t>(event.launch)]), "cudaLaunchKernel");
  }
  const Trace tied = good(
      joined({step_with(1, all), step_with(2, all), step_with(3, buckets), step_with(4, buckets)}));
  EXPECT_EQ(steps_of(tied), (std::vector<std::string>{"ProfilerStep#3", "ProfilerStep#4"}));
  // Equal steps, three first ones and a first step without collectives stay as they are.
  for (const auto& list :
       std::vector<std::vector<std::vector<int>>>{{buckets, buckets, buckets},
                                                  {all, all, rebuilt, buckets, buckets, buckets},
                                                  {{}, buckets, buckets}}) {
    std::vector<std::string> text;
    for (const auto& step : list)
      text.push_back(step_with(static_cast<int>(text.size()) + 1, step));
    EXPECT_EQ(steps_of(good(joined(text))).size(), list.size());
  }
}

// ---- stamps ------------------------------------------------------------------------------------

struct Stamp {
  const char* text;
  std::int64_t ns;
};

TEST_F(ReadTrace, StampsAreExactToTheNanosecond) {
  const Stamp stamps[] = {
      {"12", 12'000},
      {"0", 0},
      {"12.5", 12'500},
      {"12.345", 12'345},
      {"12.3", 12'300},
      {"12.345678", 12'345},  // digits below 1 ns are cut off
      {"1694103001123456", 1'694'103'001'123'456'000},
      {"1694103001123456.789", 1'694'103'001'123'456'789},  // 16 digits before the point
      {"1712345678901234.001", 1'712'345'678'901'234'001},
      {"\"77\"", 77'000},  // quotes of the oldest files
      {"\"77.25\"", 77'250},
      {"1.01e3", 1'010'000},
      {"2E+1", 20'000},
      {"2e1", 20'000},
      {"1.001e0", 1'001},  // 1000.9999 ns through a double
      {"1001e-3", 1'001},
      {"5e-4", 0},
      {"1.694103001123456789e15", 1'694'103'001'123'456'789},
      {"1.712345678901234001E15", 1'712'345'678'901'234'001},
      {"-3.25", -3'250},
      {"-0.5", -500},
      {"-1.5e1", -15'000},
  };
  for (const Stamp& stamp : stamps) {
    const auto trace = read("[" + op(stamp.text, "0") + "]");
    ASSERT_TRUE(trace) << stamp.text << ": " << to_string(trace.error());
    ASSERT_EQ(trace->host.size(), 1u) << stamp.text;
    EXPECT_EQ(trace->base_ns, stamp.ns) << stamp.text;
    EXPECT_EQ(trace->host[0].start_ns, 0) << stamp.text;
  }
}

TEST_F(ReadTrace, DurationsAreExactToTheNanosecond) {
  const auto trace = good("[" + op("1694103001123456.789", "0.001") + "," +
                          op("1694103001123457.790", "1.2e1") + "]");
  ASSERT_EQ(trace.host.size(), 2u);
  EXPECT_EQ(trace.host[0].duration_ns, 1);
  EXPECT_EQ(trace.host[1].start_ns, 1'001);
  EXPECT_EQ(trace.host[1].duration_ns, 12'000);
}

TEST_F(ReadTrace, WhatIsNoStampIsAnErrorWithItsPlace) {
  EXPECT_EQ(error(events(op("1", "2") + ",\n" + op("\"x\"", "2"))),
            "3:1: /traceEvents/1/ts: expected a number, found \"x\"");
  EXPECT_EQ(error("[" + op("1", "null") + "]"), "1:2: /0/dur: expected a number, found null");
  for (const char* text : {"[1]", "{}", "true", "1.2.3", "12abc", "1e", "1e5x", "--1", "1e40",
                           "99999999999999999999", "9223372036854775807"}) {
    EXPECT_NE(error("[" + op(text, "2") + "]").find("/0/ts: expected a number"), std::string::npos)
        << text << ": " << error("[" + op(text, "2") + "]");
  }
}

TEST_F(ReadTrace, AMissingStampIsAnErrorAndAMissingDurationIsZero) {
  EXPECT_NE(error(R"([{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "dur": 3}])")
                .find("/0/ts: expected a number, found nothing"),
            std::string::npos);
  const auto trace =
      good(R"([{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 3}])");
  ASSERT_EQ(trace.host.size(), 1u);
  EXPECT_EQ(trace.host[0].duration_ns, 0);
}

// ---- threads -----------------------------------------------------------------------------------

TEST_F(ReadTrace, ThreadsAreToldByTheirTextWhateverItIs) {
  const auto at = [](const std::string& tid) {
    return R"({"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": )" + tid +
           R"(, "ts": 1, "dur": 1})";
  };
  const auto trace =
      good("[" + at("17") + "," + at("\"17\"") + "," + at("-549452224") + "," +
           at("140382148398488") + "," + at("\"stream 7\"") + "," + at("17 ") + "," +
           R"({"ph": "M", "name": "thread_name", "pid": 1, "tid": -549452224, "ts": 0,
                              "args": {"name": "watchdog"}})" +
           "]");
  // 17, "17" and 17-with-a-blank are one thread.
  ASSERT_EQ(trace.threads.size(), 4u);
  EXPECT_EQ(trace.threads[0].thread_id, "17");
  EXPECT_EQ(trace.threads[1].thread_id, "-549452224");
  EXPECT_EQ(trace.threads[1].name, "watchdog");
  EXPECT_EQ(trace.threads[2].thread_id, "140382148398488");
  EXPECT_EQ(trace.host.size(), 6u);
}

TEST_F(ReadTrace, EqualThreadIdsOfTwoProcessesAreTwoThreads) {
  const auto trace = good(
      R"([{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 3, "ts": 1, "dur": 1},
          {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 2, "tid": 3, "ts": 1, "dur": 1}])");
  EXPECT_EQ(trace.threads.size(), 2u);
}

// ---- categories and fields ---------------------------------------------------------------------

TEST_F(ReadTrace, CategoriesOldAndNewAreFolded) {
  const auto event = [](const std::string& cat, const std::string& name, int stamp,
                        int correlation) {
    return R"({"ph": "X", "cat": ")" + cat + R"(", "name": ")" + name +
           R"(", "pid": 0, "tid": 7, "ts": )" + std::to_string(stamp) +
           R"(, "dur": 1, "args": {"correlation": )" + std::to_string(correlation) +
           R"(, "stream": 7, "device": 0, "bytes": 64}})";
  };
  const auto trace = good(events(
      event("Operator", "aten::mm", 1, 0) + "," + event("cpu_op", "## forward ##", 2, 0) + "," +
      event("user_annotation", "my region", 3, 0) + "," +
      event("Runtime", "cudaLaunchKernel", 4, 1) + "," +
      event("cuda_driver", "cuLaunchKernel", 5, 2) + "," + event("Kernel", "k", 6, 1) + "," +
      event("kernel", "k", 7, 2) + "," + event("Memcpy", "Memcpy HtoD", 8, 3) + "," +
      event("gpu_memset", "Memset (Device)", 9, 4) + "," +
      event("gpu_user_annotation", "step", 10, 0) + "," + event("python_function", "f", 11, 0) +
      "," + event("Trace", "span", 12, 0) + "," + event("overhead", "flush", 13, 0)));
  EXPECT_EQ(trace.event_count, 13u);
  ASSERT_EQ(trace.host.size(), 5u);
  EXPECT_EQ(trace.host[0].kind, HostKind::kOp);
  EXPECT_EQ(trace.host[1].kind, HostKind::kAnnotation);  // by its name
  EXPECT_EQ(trace.host[2].kind, HostKind::kAnnotation);
  EXPECT_EQ(trace.host[3].kind, HostKind::kCall);
  EXPECT_EQ(trace.host[4].kind, HostKind::kCall);
  ASSERT_EQ(trace.gpu.size(), 4u);
  EXPECT_EQ(trace.gpu[0].kind, GpuKind::kKernel);
  EXPECT_EQ(trace.gpu[0].launch, 3);
  EXPECT_EQ(trace.gpu[1].launch, 4);
  EXPECT_EQ(trace.gpu[2].kind, GpuKind::kCopy);
  EXPECT_EQ(trace.gpu[2].bytes, 64);
  EXPECT_EQ(trace.gpu[2].launch, -1);
  EXPECT_EQ(trace.gpu[3].kind, GpuKind::kSet);
}

// The same with and without salvage: text after a value of the head is no part of it.
TEST_F(ReadTrace, TextBehindAValueOfTheHeadIsAnError) {
  const std::string rest = ",\"traceEvents\":[" + op("1", "1") + "]}";
  EXPECT_EQ(error(R"({"schemaVersion":1()" + rest),
            "1:18: /schemaVersion: expected ',' or '}' after the value, found '('");
  EXPECT_EQ(error(R"({"traceName":"name"7)" + rest),
            "1:14: /traceName: expected ',' or '}' after the value, found '7'");
  EXPECT_EQ(error(R"({"deviceProperties":[{"id":0}]x)" + rest),
            "1:21: /deviceProperties: expected ',' or '}' after the value, found 'x'");
  EXPECT_EQ(good("{\"schemaVersion\" : 1 " + rest).host.size(), 1U);
}

// Python frames are left before their arguments, and the parser takes the stray number for the
// rest.
TEST_F(ReadTrace, ABrokenPythonFrameIsFound) {
  const std::string frame = R"({"ph":"X","cat":"python_function"7,"name":"f","ts":1,"dur":1})";
  const std::string op =
      R"({"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":1})";
  const std::string found = "1:35: /0/cat: expected ',' or '}', found '7'";
  for (const std::string& text : {"[" + frame + "]", "[" + frame + "," + op + "]"}) {
    EXPECT_EQ(error(text), found);
  }
  const auto salvaged = read("[" + frame + "," + op + "]", true);
  ASSERT_TRUE(salvaged);
  EXPECT_EQ(salvaged->host.size(), 1U);
}

TEST_F(ReadTrace, OtherPhasesAreSkippedAndKeysMayComeInAnyOrder) {
  const auto trace = good(
      R"([{"ph": "i", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1},
          {"ph": "s", "cat": "ac2g", "name": "a", "pid": 1, "tid": 1, "ts": 1, "id": 3},
          {"ph": "C", "name": "use", "pid": 1, "tid": 1, "ts": 1},
          {"args": {"Ev Idx": 4, "Record function id": 8, "External id": 9}, "tid": 1, "ts": 1, "dur": 2,
           "pid": 1, "name": "aten::mm", "cat": "cpu_op", "ph": "X"}])");
  ASSERT_EQ(trace.host.size(), 1u);
  EXPECT_EQ(trace.host[0].event_index, 4);
  EXPECT_EQ(trace.host[0].record_function_id, 8);
  EXPECT_EQ(trace.host[0].external_id, 9);
}

TEST_F(ReadTrace, EventsWithoutCategoryAreOpsAsTheOldCpuProfilerMeantThem) {
  const auto trace = good(
      R"([{"name": "aten::mm", "ph": "X", "ts": 5, "dur": 3, "tid": 1, "pid": "CPU functions", "args": {}},
          {"name": "## forward ##", "ph": "X", "ts": 1, "dur": 30, "tid": 1, "pid": "CPU functions", "args": {}},
          {"name": "mark", "ph": "X", "ts": 1, "tid": 1, "pid": "CPU functions"}])");
  ASSERT_EQ(trace.host.size(), 2u);
  EXPECT_EQ(trace.host[0].kind, HostKind::kAnnotation);
  EXPECT_EQ(trace.host[1].kind, HostKind::kOp);
}

TEST_F(ReadTrace, HugeIntegersAndNestedArgumentsDoNoHarm) {
  const auto trace = good("[" + op("1", "2", R"(, "args": {"Comms Id": 18446744073709551615,
      "huge": 10000000000000000000000000000000000000000, "Input Dims": [[1, [2]], []], "correlation": 4294967296,
      "Sequence number": 1099511627777})") +
                          "]");
  ASSERT_EQ(trace.host.size(), 1u);
  EXPECT_EQ(trace.host[0].correlation, 4'294'967'296);
  EXPECT_EQ(trace.host[0].sequence, -1);
}

TEST_F(ReadTrace, OldGpuLanesAreReadFromTheThread) {
  const auto trace = good(
      R"([{"ph": "X", "cat": "Kernel", "name": "k", "pid": 3, "tid": "stream 20", "ts": 1, "dur": 1,
           "args": {"external id": 4, "correlation": 4}}])");
  ASSERT_EQ(trace.gpu.size(), 1u);
  EXPECT_EQ(trace.gpu[0].stream, 20);
  EXPECT_EQ(trace.gpu[0].device, 3);
}

TEST_F(ReadTrace, ALaunchWinsOverAQueryWithItsCorrelation) {
  const auto call = [](const char* name, int ts) {
    return std::string(R"({"ph": "X", "cat": "cuda_runtime", "name": ")") + name +
           R"(", "pid": 1, "tid": 1, "ts": )" + std::to_string(ts) +
           R"(, "dur": 1, "args": {"correlation": 5}})";
  };
  for (const std::string& calls : {call("cudaEventQuery", 1) + "," + call("cudaLaunchKernel", 2),
                                   call("cudaLaunchKernel", 2) + "," + call("cudaEventQuery", 3)}) {
    const auto trace =
        good("[" + calls +
             R"(,{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 9, "dur": 1,
                                 "args": {"correlation": 5, "device": 0, "stream": 7}}])");
    ASSERT_EQ(trace.gpu.size(), 1u);
    ASSERT_GE(trace.gpu[0].launch, 0);
    EXPECT_EQ(trace.name(trace.host[static_cast<std::size_t>(trace.gpu[0].launch)]),
              "cudaLaunchKernel");
  }
}

TEST_F(ReadTrace, SyncRecordsAreKept) {
  const auto trace =
      good("[" + op("100", "2") + R"(,{"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event",
      "pid": 0, "tid": 20, "ts": 103, "dur": 4, "args": {"cuda_sync_kind": "Stream Wait Event", "stream": 20,
      "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 11, "correlation": 12}}])");
  ASSERT_EQ(trace.syncs.size(), 1u);
  EXPECT_EQ(trace.names.text(trace.syncs[0].kind), "Stream Wait Event");
  EXPECT_EQ(trace.syncs[0].start_ns, 3'000);
  EXPECT_EQ(trace.syncs[0].stream, 20);
  EXPECT_EQ(trace.syncs[0].wait_on_stream, 7);
  EXPECT_EQ(trace.syncs[0].wait_on_event_correlation, 11);
  EXPECT_EQ(trace.syncs[0].correlation, 12);
}

TEST_F(ReadTrace, HostEventsAreSortedByThreadStartAndLength) {
  // Equal stamps: the longer event is the outer one; an equally long call is inside its op.
  const auto trace =
      good("[" + op("5", "1") + "," + op("3", "2") + "," +
           R"({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 5, "tid": 6,
                              "ts": 3, "dur": 9, "args": {"correlation": 1}},)" +
           op("3", "9") + "]");
  ASSERT_EQ(trace.host.size(), 4u);
  EXPECT_EQ(trace.host[0].kind, HostKind::kOp);
  EXPECT_EQ(trace.host[0].duration_ns, 9'000);
  EXPECT_EQ(trace.host[1].kind, HostKind::kCall);
  EXPECT_EQ(trace.host[2].duration_ns, 2'000);
  EXPECT_EQ(trace.host[3].start_ns, 2'000);
}

TEST_F(ReadTrace, TheGpuIsTheOneTheWorkRanOn) {
  const auto trace =
      good(R"({"deviceProperties": [{"id": 0, "name": "GPU A"}, {"id": 1, "name": "GPU B"}],
      "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": "8"}, "traceEvents": [
      {"ph": "X", "cat": "kernel", "name": "k", "pid": 1, "tid": 7, "ts": 9, "dur": 1,
       "args": {"correlation": 5, "device": 1, "stream": 7}}]})");
  EXPECT_EQ(trace.gpu_name(), "GPU B");
  EXPECT_EQ(trace.devices.size(), 2u);
  EXPECT_EQ(trace.rank, 3);
  EXPECT_EQ(trace.world_size, 8);
}

// ---- whole files -------------------------------------------------------------------------------

TEST_F(ReadTrace, BytesThatAreNoTextBecomeQuestionMarks) {
  const auto trace =
      good(events("{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"a\x01\xff\xc3\xa9z\\\"\", "
                  "\"pid\": 1, \"tid\": 1, "
                  "\"ts\": 1, \"dur\": 1}," +
                  op("2", "1")));
  ASSERT_EQ(trace.host.size(), 2u);
  EXPECT_EQ(trace.name(trace.host[0]), "a??\xc3\xa9z\"");  // the e with accent is valid
  ASSERT_EQ(trace.warnings.size(), 1u);
  EXPECT_EQ(trace.warnings[0].substr(0, 7), "2 bytes");
}

TEST_F(ReadTrace, AnExecutionGraphIsToldByName) {
  EXPECT_NE(error(R"({"schema": "1.0.1", "pid": 1, "nodes": []})").find("execution graph"),
            std::string::npos);
  EXPECT_NE(error(R"({"pid": 1})").find("\"traceEvents\""), std::string::npos);
}

TEST_F(ReadTrace, EventsThatAreNoObjectsAreLocated) {
  EXPECT_EQ(error(events(op("1", "2") + ",\n [1]")),
            "3:2: /traceEvents/1: expected an object, found an array");
  EXPECT_NE(error(R"([{"ph":"M"}, 3])").find("1:14: /1: expected an object, found a number"),
            std::string::npos);
  EXPECT_NE(error("[{}, 3]").find("expected a timed (Kineto) trace, found an array whose first "
                                  "element is an object"),
            std::string::npos);
}

TEST_F(ReadTrace, SyntaxErrorsAreLocated) {
  EXPECT_EQ(error(events(op("1", "2") + ",\n" + R"({"ph": "X", "cat": "cpu_op", "name" "a"})")),
            "3:37: /traceEvents/1/name: expected ':', found '\"'");
}

TEST_F(ReadTrace, NegativeDurationsAndStampsBeyondAnyClockAreRefused) {
  EXPECT_EQ(error(events(op("1", "-2"))),
            "2:1: /traceEvents/0/dur: expected a duration of at least 0, found -2000 ns");
  EXPECT_EQ(error(events(op("9000000000000000", "2"))),
            "2:1: /traceEvents/0/ts: expected a number, found 9000000000000000");
  EXPECT_EQ(error(events(op("1", "9000000000000000"))),
            "2:1: /traceEvents/0/dur: expected a duration of at most 13343 days, found "
            "9000000000000000 us");
}

TEST_F(ReadTrace, SalvageKeepsCompleteEvents) {
  const std::string whole = events(op("1", "2") + "," + op("5", "2"));
  const std::string cut = whole.substr(0, whole.rfind("\"ts\""));
  EXPECT_NE(error(cut).find("end of the file"), std::string::npos);
  const auto trace = read(cut, true);
  ASSERT_TRUE(trace) << to_string(trace.error());
  EXPECT_EQ(trace->host.size(), 1u);
  ASSERT_EQ(trace->warnings.size(), 1u);
  EXPECT_NE(trace->warnings[0].find("1 complete events"), std::string::npos);
}

TEST_F(ReadTrace, GzipMembersInARowAreOneTrace) {
  const std::string whole = events(op("1", "2") + "," + op("5", "2"));
  for (const auto& [mode, part] :
       {std::pair{"wb", whole.substr(0, 50)}, std::pair{"ab", whole.substr(50)}}) {
    gzFile zip = gzopen(file_.c_str(), mode);  // "a" adds a second member
    gzwrite(zip, part.data(), static_cast<unsigned>(part.size()));
    gzclose(zip);
  }
  const auto trace = read_trace(file_);
  ASSERT_TRUE(trace) << to_string(trace.error());
  EXPECT_EQ(trace->host.size(), 2u);
  EXPECT_EQ(trace->text_bytes, whole.size());
}

// As tensorflow/core/profiler/convert/xplane_to_trace_events.cc writes planes.
TEST_F(ReadTrace, XplanesTellByTheNamesOfProcessesAndThreads) {
  const auto name = [](const char* what, int pid, int tid, const char* text) {
    return std::string(R"({"ph": "M", "name": ")") + what + R"(", "pid": )" + std::to_string(pid) +
           R"(, "tid": )" + std::to_string(tid) + R"(, "args": {"name": ")" + text + "\"}},\n";
  };
  const auto work = [](int pid, int tid, const char* text, int at, const char* args) {
    return std::string(R"({"ph": "X", "pid": )") + std::to_string(pid) + R"(, "tid": )" +
           std::to_string(tid) + R"(, "ts": )" + std::to_string(at) + R"(, "dur": 5, "name": ")" +
           text + R"(", "args": {)" + args + "}},\n";
  };
  const Trace trace = good(
      R"({"displayTimeUnit": "ns", "metadata": {"highres-ticks": true}, "traceEvents": [)" +
      name("process_name", 1, 0, "/device:GPU:0") +
      name("thread_name", 1, 14, "Stream #14(Compute,MemcpyD2D)") +
      name("thread_name", 1, 3, "XLA Ops") + name("process_name", 2, 0, "/device:TPU:0") +
      name("process_name", 701, 0, "/host:CPU") + name("thread_name", 701, 9, "python") +
      work(701, 9, "PjitFunction(step)", 10, "") + work(701, 9, "$train.py:7 step", 10, "") +
      work(701, 9, "cuLaunchKernel", 12, R"("correlation_id": "77")") +
      work(1, 14, "loop_fusion", 20, R"("correlation_id": "77", "hlo_op": "fusion.1")") +
      work(1, 14, "MemcpyD2D", 30, R"("memcpy_details": "kind_src:device size:4096 async:1")") +
      work(1, 3, "fusion.1", 20, "") + work(2, 1, "fusion.1", 20, "") + "{}]}");
  ASSERT_EQ(trace.host.size(), 2u);
  EXPECT_EQ(trace.name(trace.host[0]), "PjitFunction(step)");
  EXPECT_EQ(trace.host[0].kind, HostKind::kOp);
  EXPECT_EQ(trace.host[1].kind, HostKind::kCall);
  EXPECT_TRUE(trace.has_python_frames);
  ASSERT_EQ(trace.gpu.size(), 2u);
  EXPECT_EQ(trace.gpu[0].stream, 14);
  EXPECT_EQ(trace.gpu[0].launch, 1);
  EXPECT_EQ(trace.gpu[1].kind, GpuKind::kCopy);
  EXPECT_EQ(trace.gpu[1].bytes, 4096);
  ASSERT_EQ(trace.warnings.size(), 2u);
  EXPECT_EQ(trace.warnings[0], "work of these devices is not read: /device:TPU:0 (1 events)");
  EXPECT_NE(trace.warnings[1].find("XLA"), std::string::npos);
}

TEST_F(ReadTrace, CountersOfCuptiAreKeptAsRecorded) {
  const Trace trace = good(events(
      op("1", "2") +
      R"(, {"ph": "X", "cat": "cuda_profiler_range", "name": "0", "pid": 0, "tid": 0, "ts": 4,)"
      R"( "dur": 6, "args": {"sm__cycles.sum": 12.5, "inst.sum": "7", "note": "no number"}})"));
  ASSERT_EQ(trace.counters.size(), 1u);
  EXPECT_EQ(trace.counters[0].start_ns, 3000);
  ASSERT_EQ(trace.counters[0].values.size(), 2u);
  EXPECT_EQ(trace.names.text(trace.counters[0].values[0].first), "sm__cycles.sum");
  EXPECT_EQ(trace.counters[0].values[0].second, 12.5);
  EXPECT_EQ(trace.counters[0].values[1].second, 7);
}

TEST_F(ReadTrace, OtherDevicesAreNamed) {
  const Trace trace = good(events(
      op("1", "2") +
      R"(, {"ph": "X", "cat": "mtia_ccp_events", "name": "job", "ts": 4, "dur": 6})"
      R"(, {"ph": "X", "cat": "xpu_runtime", "name": "urEnqueueKernelLaunch", "ts": 4, "dur": 1,)"
      R"( "pid": 5, "tid": 6, "args": {"correlation": 3}})"
      R"(, {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 6, "dur": 1,)"
      R"( "args": {"correlation": 3, "device": 0, "stream": 1}})"));
  ASSERT_EQ(trace.gpu.size(), 1u);
  EXPECT_EQ(trace.gpu[0].launch, 1);  // Intel's calls are calls
  ASSERT_EQ(trace.warnings.size(), 2u);
  EXPECT_EQ(trace.warnings[0], "the trace is of an MTIA device, whose work is not read");
}

// More lines than the counters of one place hold, at every offset within a block.
TEST_F(ReadTrace, LinesOfLongFilesAreCounted) {
  for (const std::size_t blanks : {0, 1, 7, 15, 16}) {
    std::string text = "{\"traceEvents\": [" + std::string(blanks, ' ');
    for (int i = 0; i < 9000; ++i) text += "\n" + op("1", "2") + ",\n\n";
    EXPECT_EQ(error(text + "[1]]}").substr(0, 8), "27001:1:");
  }
}

}  // namespace read_trace_test
}  // namespace perfmodel
