#include "inputs.hpp"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "perfmodel/graph/write_execution_graph.hpp"

namespace perfmodel::benchmarks {
namespace fs = std::filesystem;
namespace {

struct TemporaryFolder {
  fs::path path =
      fs::temp_directory_path() / ("perfmodel-benchmarks-" + std::to_string(::getpid()));
  TemporaryFolder() { fs::create_directories(path); }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
};

// One event per line; times in microseconds with nanoseconds after the point.
class TraceText {
 public:
  void step(int number) {
    const long begin = now_ns_;
    const std::size_t mark = text_.size();
    for (int op = 0; op < 200; ++op) op_with_kernel(op);
    std::string annotation = event("user_annotation", "ProfilerStep#" + std::to_string(number),
                                   begin, now_ns_ - begin, 1, 1);
    annotation += "\"args\": {\"External id\": 0}},\n";
    text_.insert(mark, annotation);
  }

  std::size_t size() const { return text_.size(); }

  std::string finish() {
    text_.resize(text_.size() - 2);  // the last comma
    return R"({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}],
"traceEvents": [
)" + text_ +
           "\n]}\n";
  }

 private:
  static std::string microseconds(long ns) {
    const std::string rest = std::to_string(1000 + ns % 1000);
    return std::to_string(ns / 1000) + "." + rest.substr(1);
  }

  static std::string event(std::string_view category, const std::string& name, long start_ns,
                           long duration_ns, int process, int thread) {
    std::string text = R"({"ph": "X", "cat": ")";
    text.append(category).append(R"(", "name": ")").append(name);
    text.append(R"(", "pid": )").append(std::to_string(process));
    text.append(R"(, "tid": )").append(std::to_string(thread));
    text.append(R"(, "ts": )").append(microseconds(start_ns));
    text.append(R"(, "dur": )").append(microseconds(duration_ns)).append(", ");
    return text;
  }

  void op_with_kernel(int op) {
    static const char* const names[] = {"aten::addmm", "aten::relu", "aten::mm", "aten::cat"};
    const std::string id = std::to_string(++correlation_);
    text_ += event("cpu_op", names[op % 4], now_ns_, 22'150, 1, 1);
    text_ += R"("args": {"External id": )" + id + R"(, "Record function id": )" + id +
             R"(, "Ev Idx": )" + id +
             R"(, "Input Dims": [[2048, 512], [512, 256]], "Input type": ["float", "float"]}},
)";
    text_ += event("cuda_runtime", "cudaLaunchKernel", now_ns_ + 9'040, 5'310, 1, 1);
    text_ +=
        R"("args": {"External id": )" + id + R"(, "cbid": 211, "correlation": )" + id + "}},\n";
    text_ += event("kernel", "ampere_sgemm_128x64_tn", now_ns_ + 17'020, 24'001, 0, 7);
    text_ += R"("args": {"External id": )" + id + R"(, "device": 0, "context": 1, "stream": 7, )" +
             R"("correlation": )" + id +
             R"(, "registers per thread": 122, "shared memory": 12544, "grid": [16, 4, 1], )" +
             R"("block": [128, 1, 1]}},
)";
    now_ns_ += 26'003;
  }

  std::string text_;
  long now_ns_ = 1'700'000'000'000'000'000;
  long correlation_ = 0;
};

}  // namespace

const fs::path& folder() {
  static const TemporaryFolder temporary;
  return temporary.path;
}

DlrmConfig dlrm_with_tables(std::size_t tables) {
  DlrmConfig config;
  config.bottom_mlp = {13, 512, 64};
  config.top_mlp = {512, 1};
  config.tables.assign(tables, {.num_rows = 1'000'000, .dim = 64, .pooling_factor = 10});
  config.table_batched = false;
  return config;
}

fs::path built_graph_file(std::string_view preset) {
  const fs::path file = folder() / (std::string(preset) + ".json");
  if (!fs::exists(file)) {
    const auto graph = value_of(build_dlrm(value_of(dlrm_preset(preset))));
    if (const auto done = write_execution_graph(graph, file); !done) stop(done.error());
  }
  return file;
}

fs::path made_up_trace(std::size_t megabytes) {
  const fs::path file = folder() / ("trace_" + std::to_string(megabytes) + "mb.json");
  if (!fs::exists(file)) {
    TraceText text;
    for (int step = 0; text.size() < megabytes * 1'000'000; ++step) text.step(step);
    std::ofstream(file, std::ios::binary) << text.finish();
  }
  return file;
}

std::optional<fs::path> public_file(std::string_view name) {
  const char* data = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (data == nullptr) return {};
  const fs::path file = fs::path(data) / name;
  if (!fs::exists(file)) return {};
  return file;
}

const Gpu& gpu(std::string_view name) {
  static std::map<std::string, Gpu, std::less<>> known;
  auto at = known.find(name);
  if (at == known.end()) {
    at = known.emplace(name, value_of(find_gpu(name, fs::path(PERFMODEL_SOURCE_DIR) / "data/gpus")))
             .first;
  }
  return at->second;
}

void stop(const Error& error) {
  std::fprintf(stderr, "%s\n", to_string(error).c_str());
  std::exit(1);
}

}  // namespace perfmodel::benchmarks
