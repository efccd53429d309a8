// Predicts one training step of a DLRM, with the library alone: no PyTorch, no GPU, no files except
// data/.
#include <cstdio>

#include "example.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictors/gpu.hpp"

int main() {
  using namespace perfmodel;
  const auto data = or_exit(find_data_folder());

  // The three inputs: the work (a graph), the GPU, and the host's cost (overheads).
  const ExecutionGraph graph = or_exit(build_dlrm(or_exit(dlrm_preset("mlperf"))));
  const Gpu gpu = or_exit(find_gpu("a100-sxm-40gb", data / "gpus"));
  const OverheadTable overheads = or_exit(read_overheads(data / "overheads" / "reference.json"));

  const Prediction prediction = or_exit(predict(graph, gpu, overheads));

  std::printf("%s on %s\n", "DLRM (MLPerf), batch 2048", gpu.title.c_str());
  std::printf("One batch takes %.3f ms: the GPU works %.3f ms of it and is idle for %.3f ms.\n",
              prediction.e2e_us / 1e3, prediction.gpu_active_us / 1e3,
              prediction.gpu_idle_us / 1e3);
  for (const std::string& warning : prediction.warnings) {
    std::printf("warning: %s\n", warning.c_str());
  }
}
