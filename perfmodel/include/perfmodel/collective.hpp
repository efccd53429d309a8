#pragma once

#include "perfmodel/predictors/detail/collectives.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// One collective between GPUs that enter it together.
struct CollectiveQuestion {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  Bytes bytes;    ///< as nccl-tests counts them (`CollectiveQuery::bytes`)
  int world = 2;  ///< GPUs that take part; 2 for send and recv
  int nodes = 0;  ///< nodes with equal shares of the GPUs; 0: as few as hold them
};

/// Its time, as `kernels`, `predict` and `layout` price it.
struct CollectiveAnswer {
  CollectiveQuestion question;  ///< `nodes` as it was priced
  CollectiveTime price;         ///< with its terms, algorithm and bus bandwidth
  Microseconds low{0}, high{0};
  /// bytes / time, nccl-tests' algbw; `price.bus_bandwidth` is its busbw.
  BytesPerSecond algorithm_bandwidth() const;
};

/// Takes some microseconds and opens no file. Errors: fewer than 2 GPUs, send and recv of more,
/// what `collective_time` refuses.
Result<CollectiveAnswer> answer_collective(const Topology& topology,
                                           const CollectiveQuestion& question);

}  // namespace perfmodel
