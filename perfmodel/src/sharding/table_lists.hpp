#pragma once

#include <filesystem>
#include <string_view>

#include "perfmodel/result.hpp"
#include "perfmodel/sharding/sharding_study.hpp"

/// Tables as the frameworks themselves list them.
namespace perfmodel::sharding {

/// Whether a JSON file begins like a list of TorchRec or a model of HugeCTR.
bool is_table_list(std::string_view head);

/// TorchRec: a list of `EmbeddingBagConfig` and `EmbeddingConfig` (num_embeddings, embedding_dim,
/// name, feature_names, data_type, pooling: SUM, MEAN or NONE), alone or as `tables` together with
/// `constraints` (per table: sharding_types, compute_kernels, min_partition, pooling_factors,
/// num_poolings, batch_sizes, is_weighted, use_dedup, cache_params). Without pooling factors, as
/// the configurations are, a bag has 1 id and a warning says so.
///
/// HugeCTR: a model file with `layers`; its sparse inputs and embeddings become tables (a slot
/// each), its solver the GPUs and the batch.
///
/// Errors, with the place: unknown keys and names, tables of one name, constraints for unknown
/// tables, factors that are not one per feature.
Result<ShardingStudy> read_table_list(const std::filesystem::path& file);

}  // namespace perfmodel::sharding
