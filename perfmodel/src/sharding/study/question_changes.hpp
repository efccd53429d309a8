#pragma once

#include "loaded_study.hpp"
#include "perfmodel/result.hpp"
#include "shard_question.hpp"

/// The steps by which a question overrides its file of tables. Each changes the study and adds its
/// warnings; `load_study` has their order.
namespace perfmodel::sharding {

/// World, batch, pipeline, memory, network and launch. Errors: an unknown network; no world, no
/// batch.
Result<void> set_job(const ShardQuestion& question, LoadedStudy& loaded);

/// Fits the laws of tables to recorded accesses. Errors: the readers'; unknown tables;
/// indices beyond a table's rows.
Result<void> fit_accesses(const ShardQuestion& question, LoadedStudy& loaded);

/// Types, rules and settings of all tables, and the choices of a search for each.
Result<void> change_tables(const ShardQuestion& question, LoadedStudy& loaded);

Result<void> change_dense_part(const ShardQuestion& question, LoadedStudy& loaded);

/// GPU, topology and ranks per host. Errors: unknown names; neither a GPU nor a topology.
Result<void> choose_machine(const ShardQuestion& question, LoadedStudy& loaded);

/// "robe:m=27e6,Z=32,iterations=1,kernel=reference,tables=a+b" puts tables into one hashed array;
/// ratio=1000 replaces m. Errors: other texts, unknown tables.
Result<void> hash_tables(const ShardQuestion& question, LoadedStudy& loaded);

/// Errors: as choose_kernel_models() has them.
Result<void> choose_models(const ShardQuestion& question, LoadedStudy& loaded);

/// How much of the time of eager software is the host's. Errors: as the overhead tables and
/// eager_host() have them.
Result<void> choose_host(const ShardQuestion& question, LoadedStudy& loaded);

}  // namespace perfmodel::sharding
