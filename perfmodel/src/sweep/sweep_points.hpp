#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/sweep/detail/sweep_spec.hpp"

namespace perfmodel::sweep {

/// The rows of a sweep, numbered in the order of the spec: graphs, then rewrites (the last axis
/// fastest), GPUs, topologies, strategies and worlds. Nothing is kept per row.
///
/// A row's *key* says what is asked, whatever the order of the spec's lists:
///
///   graph=mlperf@5f3a9c21;batch=512;gpu=h100-sxm-80gb;topology=usual;strategy=ddp;world=8
///
/// The graph's identity follows '@', so that a changed file or builder option is another key.
/// Rewrites are in the order in which they are applied; those that are "same" are left out: an
/// added axis keeps the keys of the rows without it. Bytes that would need quoting are escaped as
/// %XX.
class SweepPoints {
 public:
  /// Positions in the lists of the spec.
  struct Point {
    std::size_t graph = 0;
    std::vector<std::size_t> values;  ///< one per axis of the spec
    std::size_t gpu = 0, topology = 0, strategy = 0;
  };

  /// The spec must outlive this.
  explicit SweepPoints(const SweepSpec& spec);

  const SweepSpec& spec() const { return spec_; }
  std::uint64_t count() const { return groups_ * per_group_; }
  /// Consecutive rows that share graph and rewrites.
  std::uint64_t per_group() const { return per_group_; }

  Point at(std::uint64_t index) const;
  std::string key(std::uint64_t index) const;
  /// None: no row of this sweep.
  std::optional<std::uint64_t> index_of(std::string_view key) const;

  /// The lists of the spec as keys have them: two sweeps of one text have the same rows.
  std::string text() const;

  /// Names of the columns before the results: "key,graph,batch,gpu,topology,strategy,world".
  std::string columns() const;
  /// Their cells. Rewrites that leave the graph as it is and worlds that are not given are empty.
  std::string cells(std::uint64_t index) const;

 private:
  using Positions = std::map<std::string, std::size_t, std::less<>>;

  const SweepSpec& spec_;
  std::uint64_t per_group_ = 0, groups_ = 0;
  // Texts of keys, and their positions.
  std::vector<std::string> graphs_, gpus_, topologies_, strategies_;
  std::vector<std::vector<std::string>> values_;  // per axis; "same" is empty
  Positions graph_at_, gpu_at_, topology_at_, strategy_at_;
  std::vector<Positions> value_at_;
};

}  // namespace perfmodel::sweep
