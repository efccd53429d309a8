// Why a batch takes as long as it does: the chain of host and GPU work that fixes the end, and for
// the longest kernels the model and the bound that gave their times.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "example.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictors/gpu.hpp"

int main() {
  using namespace perfmodel;
  const auto data = or_exit(find_data_folder());
  const OverheadTable overheads = or_exit(read_overheads(data / "overheads" / "reference.json"));
  const Gpu gpu = or_exit(find_gpu("v100-sxm2-32gb", data / "gpus"));
  DlrmConfig config = or_exit(dlrm_preset("default"));
  config.batch = 512;
  // The prediction's op names point into the graph, which has to stay alive.
  const ExecutionGraph graph = or_exit(build_dlrm(config));
  const Prediction prediction = or_exit(predict(graph, gpu, overheads));

  std::printf("%.1f us on the critical path, longest parts first:\n", prediction.e2e_us);
  for (std::size_t i = 0; i < std::min<std::size_t>(8, prediction.critical_path.steps.size());
       ++i) {
    const auto& step = prediction.critical_path.steps[i];
    std::printf("%10.1f us  %4zu x  %-12s %s\n", step.us, step.count, step.category.c_str(),
                step.op.c_str());
  }

  std::vector<const PredictedKernel*> kernels;
  for (const PredictedOp& op : prediction.ops) {
    for (const PredictedKernel& kernel : op.kernels) kernels.push_back(&kernel);
  }
  std::ranges::stable_sort(kernels, std::ranges::greater{},
                           [](const PredictedKernel* kernel) { return kernel->price.time; });
  std::printf("the longest kernels:\n");
  for (std::size_t i = 0; i < std::min<std::size_t>(5, kernels.size()); ++i) {
    const Price& price = kernels[i]->price;
    std::printf("%10.1f us  (%.1f to %.1f)  %s, bound by %s, model %s\n", price.time.count(),
                price.low.count(), price.high.count(), kernels[i]->name.c_str(),
                std::string(to_string(price.bound)).c_str(), std::string(price.model).c_str());
  }
}
