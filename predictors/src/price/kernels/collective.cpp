#include "collective.hpp"

#include "models.hpp"

namespace perfmodel::kernels {
namespace {

/// Collectives on the default topology of the GPU (`topology_for`): equations in collectives.hpp.
/// Groups larger than a node are spread over several. A recorded group size of 0 (unknown) is
/// priced as a full node and marked out of range.
class Collective final : public KernelModel {
 public:
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    if (const Topology* known = TopologyCatalog::builtin().default_of(gpu.name)) {
      return price_collective(work, gpu, *known, {});
    }
    return price_collective(work, gpu, datasheet_topology(gpu), {});
  }
};

}  // namespace

const KernelModel& collective_model() {
  static const Collective model;
  return model;
}

}  // namespace perfmodel::kernels
