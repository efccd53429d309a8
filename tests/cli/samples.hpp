#pragma once

#include <algorithm>
#include <fstream>
#include <string>

#include "program.hpp"

/// Inputs for several commands: samples, a built graph, a table of overheads, ranks of a job.
namespace perfmodel::test_support {

inline const Json& expected_samples() {
  static const Json files =
      Json::parse(read(fs::path(PERFMODEL_SAMPLES) / "expected.json"))["files"];
  return files;
}

// A table learned from a made-up run, and a built graph: made once.
inline const std::string& table() {
  static const std::string file = [] {
    output_of({"overheads", sample("kineto_plain_2023.json"), "--graph",
               sample("et_plain_2023.json"), "-o", scratch_file("table.json")});
    return scratch_file("table.json");
  }();
  return file;
}

inline const std::string& built_graph() {
  static const std::string file = built("ddp.json", {"dlrm", "--preset", "ddp", "--batch", "64"});
  return file;
}

inline Words predict_words(const std::string& graph) {
  return {"predict", graph, "--gpu", "v100-sxm2-16gb", "--overheads", table()};
}

inline double sum_of(const Json& list, const char* key) {
  double sum = 0;
  for (const Json& entry : list) sum += entry.at(key).get<double>();
  return sum;
}

inline bool warns(const Json& document, const std::string& part) {
  return std::any_of(document["warnings"].begin(), document["warnings"].end(), [&](const Json& w) {
    return w.get<std::string>().find(part) != std::string::npos;
  });
}

// A rank of two: host work, then an all-reduce that ends at 1712 on both, and a call that waits.
inline std::string rank_trace(int rank, int work_us, int world = 2) {
  const auto event = [](const char* category, const char* name, int start, int end, Json args) {
    return Json{{"ph", "X"}, {"cat", category},    {"name", name},       {"pid", 1},
                {"tid", 1},  {"ts", 1000 + start}, {"dur", end - start}, {"args", args}};
  };
  const Json trace = {
      {"distributedInfo", {{"rank", rank}, {"world_size", world}}},
      {"traceEvents",
       {event("user_annotation", "ProfilerStep#1", 0, 1716, Json::object()),
        event("cpu_op", "c10d::allreduce_", 0, work_us + 10, Json::object()),
        event("cuda_runtime", "cudaLaunchKernel", work_us, work_us + 10, {{"correlation", 1}}),
        event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", work_us + 12, 1712,
              {{"correlation", 1}, {"stream", 7}, {"device", 0}}),
        event("cuda_runtime", "cudaStreamSynchronize", work_us + 10, 1716, {{"correlation", 2}})}}};
  const fs::path file = scratch() / ("replay_rank" + std::to_string(rank) + ".json");
  std::ofstream(file) << trace.dump();
  return file.string();
}

}  // namespace perfmodel::test_support
