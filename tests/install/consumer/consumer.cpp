// Uses the installed package as a stranger would: headers, libraries and data from the prefix.
#include <cstdio>
#include <filesystem>

#include "perfmodel/graph/build_dlrm.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictors/gpu.hpp"

int main() {
  const auto config = perfmodel::dlrm_preset("default");
  const auto gpu =
      perfmodel::find_gpu("v100-sxm2-32gb", std::filesystem::path(PERFMODEL_DATA_DIR) / "gpus");
  if (!config || !gpu) {
    const auto& error = !config ? config.error() : gpu.error();
    std::fprintf(stderr, "%s\n", to_string(error).c_str());
    return 1;
  }
  const auto graph = perfmodel::build_dlrm(*config);
  if (!graph) return 1;
  // Without a table the host costs nothing: what is left is the GPU's time.
  const auto prediction = perfmodel::predict(*graph, *gpu, perfmodel::OverheadTable{});
  if (!prediction) {
    std::fprintf(stderr, "%s\n", to_string(prediction.error()).c_str());
    return 1;
  }
  std::printf("%s: e2e %.1f us, GPU busy %.1f us\n", gpu->name.c_str(), prediction->e2e_us,
              prediction->gpu_active_us);
  return prediction->e2e_us > 0 && prediction->gpu_active_us > 0 ? 0 : 1;
}
