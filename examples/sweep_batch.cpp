// How the time per batch grows with the batch on two GPUs. Everything is loaded once; a question is
// one call of `predict`, which only reads its arguments, so many threads may ask at the same time.
#include <cstdio>

#include "example.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictors/gpu.hpp"

int main() {
  using namespace perfmodel;
  const auto data = or_exit(find_data_folder());
  const OverheadTable overheads = or_exit(read_overheads(data / "overheads" / "reference.json"));
  const Gpu gpus[] = {or_exit(find_gpu("v100-sxm2-32gb", data / "gpus")),
                      or_exit(find_gpu("a100-sxm-40gb", data / "gpus"))};
  DlrmConfig config = or_exit(dlrm_preset("mlperf"));

  PredictOptions options;
  options.keep_ops = false;  // the totals are enough: no list of ops, no critical path

  std::printf("%8s", "batch");
  for (const Gpu& gpu : gpus) std::printf("  %18s", (gpu.name + " ms").c_str());
  std::printf("\n");
  for (config.batch = 256; config.batch <= 16384; config.batch *= 2) {
    const ExecutionGraph graph = or_exit(build_dlrm(config));
    std::printf("%8lld", static_cast<long long>(config.batch));
    for (const Gpu& gpu : gpus) {
      std::printf("  %18.3f", or_exit(predict(graph, gpu, overheads, options)).e2e_us / 1e3);
    }
    std::printf("\n");
  }
}
