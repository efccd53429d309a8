// Uses the installed package as a stranger would: headers, libraries and data from the prefix.
#include <cstdio>

#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/predictor.hpp"

namespace {

int complain(const perfmodel::Error& error) {
  std::fprintf(stderr, "%s\n", to_string(error).c_str());
  return 1;
}

}  // namespace

int main() {
  const auto config = perfmodel::dlrm_preset("default");
  if (!config) return complain(config.error());
  auto graph = perfmodel::build_dlrm(*config);
  if (!graph) return complain(graph.error());
  // The data of the package that this is linked with.
  const auto predictor = perfmodel::Predictor::load({.gpus = {"v100-sxm2-32gb"}});
  if (!predictor) return complain(predictor.error());
  const auto prediction = predictor->predict(*graph, "v100-sxm2-32gb");
  if (!prediction) return complain(prediction.error());
  std::printf("v100-sxm2-32gb: e2e %.1f us, GPU busy %.1f us\n", prediction->e2e_us,
              prediction->gpu_active_us);
  return prediction->e2e_us > 0 && prediction->gpu_active_us > 0 ? 0 : 1;
}
