#pragma once

#include <span>

#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/sharding/sharding_study.hpp"

namespace perfmodel::sharding {

/// The job of a study under a plan, for build_torchrec_dlrm(): set `rank`, build, predict the ranks
/// together. It builds a TorchRec DLRM: fp32, rows in HBM, one feature per table, dot products.
///
/// Errors (kImpossible): no world, batch or dense layers; options that such a graph lacks: other
/// interactions, several features of a table, host memory, hashed arrays, row-splits; errors of
/// shard_sizes() and shard_ranks().
Result<TorchrecDlrmConfig> sharded_dlrm(const ShardingStudy& study,
                                        std::span<const TablePlacement> placements);

/// The graph of `config.rank`: products in the type of the dense part (tables and their vectors
/// stay in fp32, as autocast leaves them), ids under the tables' Zipf law. Errors are
/// build_torchrec_dlrm()'s.
Result<ExecutionGraph> graph_of_rank(const TorchrecDlrmConfig& config, const ShardingStudy& study);

}  // namespace perfmodel::sharding
