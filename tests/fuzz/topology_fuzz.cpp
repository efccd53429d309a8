// Topology files: what is read gives collectives a time that grows with their size.
#include <cmath>

#include "fuzz.hpp"
#include "perfmodel/predictors/detail/collectives.hpp"
#include "perfmodel/predictors/topology.hpp"

using namespace perfmodel;

namespace {

void check_collective(const Topology& topology, CollectiveKind kind) {
  double least = 0;
  for (const double bytes : {1e3, 1e6, 1e9}) {
    const auto made = collective_time(
        topology, {.kind = kind, .bytes = {bytes}, .ranks = topology.gpus_per_node, .nodes = 1});
    if (!made) return fuzz::check_error(made.error());
    PERFMODEL_CHECK(std::isfinite(made->time.count()));
    PERFMODEL_CHECK(made->time.count() >= least * (1 - 1e-9));
    least = made->time.count();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto topology = read_topology(fuzz::file_with(fuzz::text_of(data, size)));
  if (!topology) {
    fuzz::check_error(topology.error());
    return 0;
  }
  fuzz::check_lines(stand_ins(*topology));
  check_collective(*topology, CollectiveKind::kAllReduce);
  check_collective(*topology, CollectiveKind::kAllToAll);
  return 0;
}
