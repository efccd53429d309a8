// One rank's graph on more and more GPUs: how far does data-parallel training scale, and at which
// cost? Fixed batch per GPU, DGX A100 nodes. Every rank keeps its own embedding tables here; to
// share them is a question of sharding.
#include <cstdio>
#include <string>

#include "example.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/predict.hpp"

int main() {
  using namespace perfmodel;
  const auto data = or_exit(find_data_folder());
  const OverheadTable overheads = or_exit(read_overheads(data / "overheads" / "reference.json"));
  const Gpu gpu = or_exit(find_gpu("a100-sxm-40gb", data / "gpus"));
  const Topology nodes = or_exit(TopologyCatalog::builtin().find("dgx-a100"));
  const DlrmConfig config = or_exit(dlrm_preset("default"));
  const ExecutionGraph graph = or_exit(build_dlrm(config));

  std::printf("GPUs  strategy  ms per batch  collectives ms  exposed ms  samples/s\n");
  for (std::int64_t world : {1, 2, 8, 16, 64}) {
    for (const ParallelStrategy strategy : {ParallelStrategy::kDdp, ParallelStrategy::kFsdp}) {
      PredictOptions options;
      options.scale_out = ScaleOut{.world = world, .strategy = strategy, .topology = &nodes};
      const Prediction p = or_exit(predict(graph, gpu, overheads, options));
      const double samples = static_cast<double>(config.batch * world) / (p.e2e_us * 1e-6);
      std::printf("%4lld  %-8s  %12.3f  %14.3f  %10.3f  %9.0f\n", static_cast<long long>(world),
                  std::string(to_string(strategy)).c_str(), p.e2e_us / 1e3,
                  p.communication.transfer_us / 1e3, p.communication.exposed_us / 1e3, samples);
    }
  }
}
