#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "builders/emit/graph_builder.hpp"

namespace perfmodel {

/// A kernel that a compiler writes. Tensors are arguments of the graph being made.
struct GeneratedKernel {
  std::string name;                 ///< "triton_poi_fused_add_tanh", without its number
  std::vector<std::int64_t> sizes;  ///< the space that it walks
  std::vector<Argument> reads, writes;
  std::int64_t sequence = -1;  ///< autograd's number
};

/// Writes kernels as PyTorch records Inductor's. Equal ones have one name: the same ops on as many
/// elements of the same types.
class GeneratedKernels {
 public:
  void write(GraphBuilder& builder, const GeneratedKernel& kernel);
  /// The numbers begin anew.
  void clear() { numbers_.clear(); }

 private:
  std::map<std::string, std::size_t> numbers_;
};

}  // namespace perfmodel
