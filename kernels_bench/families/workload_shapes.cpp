#include "workload_shapes.hpp"

#include <vector>

namespace kernels_bench {
namespace {

void add_mlp(std::vector<Layer>& layers, std::int64_t rows, std::vector<std::int64_t> widths) {
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    layers.push_back({rows, widths[i], widths[i + 1]});
  }
}

// Interaction of n vectors of width d: d + n (n - 1) / 2 features into the top MLP.
std::vector<Layer> make_layers() {
  std::vector<Layer> layers;
  for (const std::int64_t batch : {512, 1024, 2048, 4096}) {
    add_mlp(layers, batch, {512, 512, 64});                                // DLRM_default
    add_mlp(layers, batch, {64 + 9 * 8 / 2, 1024, 1024, 1024, 1});         // 8 tables
    add_mlp(layers, batch, {13, 512, 256, 128});                           // DLRM_MLPerf
    add_mlp(layers, batch, {128 + 27 * 26 / 2, 1024, 1024, 512, 256, 1});  // 26 tables
    add_mlp(layers, batch, {128, 128, 128, 128});                          // DLRM_DDP
    add_mlp(layers, batch, {128 + 9 * 8 / 2, 512, 512, 512, 256, 1});
  }
  for (const std::int64_t hidden : {768, 1024, 1600, 2048, 4096, 5120, 8192}) {
    for (const std::int64_t tokens : {512, 2048, 8192}) {
      layers.push_back({tokens, hidden, hidden});
      layers.push_back({tokens, hidden, 3 * hidden});
      layers.push_back({tokens, hidden, 4 * hidden});
      layers.push_back({tokens, 4 * hidden, hidden});
    }
  }
  return layers;
}

}  // namespace

std::span<const Layer> workload_layers() {
  static const std::vector<Layer> kLayers = make_layers();
  return kLayers;
}

}  // namespace kernels_bench
