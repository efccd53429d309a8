#include <set>
#include <string>

#include "../core/case_cells.hpp"
#include "../core/case_work.hpp"
#include "family.hpp"

namespace kernels_bench {

std::span<const Family* const> families() {
  static constexpr const Family* kFamilies[] = {&kPeaksFamily,       &kGemmFamily,   &kBmmFamily,
                                                &kEmbeddingFamily,   &kMemoryFamily, &kVectorFamily,
                                                &kConvolutionFamily, &kHashedFamily};
  return kFamilies;
}

const Family* find_family(std::string_view name) {
  for (const Family* family : families()) {
    if (family->name == name) return family;
  }
  return nullptr;
}

bool within(const Case& point, const Limits& limits) {
  static const perfmodel::Gpu kNoGpu;
  const perfmodel::KernelWork work = work_of(point, kNoGpu);
  return work.flop.value <= limits.flop && footprint_bytes(point) <= limits.bytes &&
         work.bytes().value <= limits.traffic;
}

std::vector<Case> sweep(const Family& family, std::size_t count, std::uint64_t seed,
                        const Limits& limits) {
  std::vector<Case> points;
  std::set<std::string> seen;
  constexpr std::uint64_t kTries = 8;  // for one that is new; a list's repeats end the sweep
  for (std::uint64_t index = 0; points.size() < count && index < kTries * count; ++index) {
    std::optional<Case> point = family.draw(seed, index, limits);
    if (!point) break;
    if (within(*point, limits) && seen.insert(name_of(*point)).second) points.push_back(*point);
  }
  return points;
}

}  // namespace kernels_bench
