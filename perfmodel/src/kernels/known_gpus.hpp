#pragma once

#include <map>
#include <string>
#include <vector>

#include "fields/result_field.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/predictors/kernel.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A GPU, and the source of its kernels' prices by kind ("gemm-bfloat16").
struct KnownGpu {
  Gpu gpu;
  std::map<std::string, Knowledge> kernels;
};

/// The GPU of a name, alias, title or file; without a name all. `kernels`: with the sources of
/// their kernels' prices, if the data folder has models. Fails if a reader fails.
Result<std::vector<KnownGpu>> known_gpus(const std::string& name, bool kernels);

/// The keys of `data/gpus/*.json`, the architecture that stands in for an unknown one, and the
/// sources of prices.
OrderedJson gpu_json(const KnownGpu& known);

double gb_per_s(BytesPerSecond rate);
double mib(Bytes size);

}  // namespace perfmodel
