#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "perfmodel/sweep/detail/team.hpp"

namespace perfmodel::sweep {

struct SweepOptions {
  std::filesystem::path output;     ///< CSV; `.gz` compresses. Parts lie in `output`.parts/
  std::filesystem::path data = {};  ///< data folder; empty: `find_data_folder()`
  std::string version = {};         ///< the program's: rows of another version are refused
  std::size_t threads = 1;          ///< per process; 0: as many as the machine runs at once
  /// Rows handed out and written at once; 0: 128, fewer in small sweeps. The same for all shards.
  std::uint64_t chunk_rows = 0;
  std::size_t shard = 0, shards = 1;  ///< this process takes chunks with number % shards == shard
  bool keep_parts = false;            ///< after merging
  bool dry_run = false;               ///< only count finished and missing rows
  std::shared_ptr<Team> team = {};    ///< the ranks of this sweep; null: this process alone
  std::function<bool()> stop = {};    ///< asked between rows, from several threads
  /// Rows of this run that are finished, of how many; of rank 0, from one thread.
  std::function<void(std::uint64_t done, std::uint64_t of)> progress = {};
};

}  // namespace perfmodel::sweep
