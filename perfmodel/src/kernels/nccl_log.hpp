#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "perfmodel/predictors/detail/collectives.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// One message size of a log [B, us].
struct MeasuredSize {
  double bytes = 0, us = 0;
};

/// Everything that the logs say about one collective between one group of GPUs.
struct MeasuredGroup {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int ranks = 0, nodes = 0;
  std::vector<MeasuredSize> sizes = {};  ///< ascending; a size that repeats has its median

  std::string text() const;  ///< "all_reduce of 16 GPUs on 2 nodes"
};

struct NcclLogOptions {
  std::string op;            ///< the collective; empty: the log names its program
  int world = 0, nodes = 0;  ///< 0: the log lists its devices
  bool in_place = false;     ///< take the times in place
};

/// Reads what nccl-tests and rccl-tests print, with one or several runs in a file and the prefixes
/// of mpirun and srun. Lines of other programs (NCCL_DEBUG) are skipped. Errors, with file and
/// line: a row that is cut off or contradicts itself, wrong results, an unknown program, no devices
/// and no `world`, a file without rows.
Result<std::vector<MeasuredGroup>> read_nccl_logs(const std::vector<std::filesystem::path>& files,
                                                  const NcclLogOptions& options);

}  // namespace perfmodel
