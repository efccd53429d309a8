#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "perfmodel/overheads.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// The table of one program, to be pooled with others.
struct PoolMember {
  std::string name;
  const OverheadTable* table = nullptr;
};

/// By how much each host is slower than the first one, from the ops and calls that the programs
/// share.
///
/// The time of op f on host p is taken as h_p * o_f. The factors h_p are weighted medians of the
/// ratios over the shared ops and calls, each weighing as the square root of its shares of the host
/// time of the program and of the others, so that an op that either side rarely runs decides
/// little. 1 where a program shares nothing.
struct HostFactor {
  double slower = 1;
  double shared = 0;  ///< share of the program's host time in ops and calls that others have too
};
std::vector<HostFactor> compare_hosts(std::span<const PoolMember> programs);

/// Brings `table` to the host of `reference` with `compare_hosts`; returns the factor and the share
/// of the reference's host time that the shared ops and calls are. 0: there are none, nothing
/// changed.
struct OverheadScaling {
  double factor = 1;
  double coverage = 0;
};
OverheadScaling scale_to_shared_ops(OverheadTable& table, const OverheadTable& reference);

/// The same with the table of a file as the reference; a warning of `table` says by how much.
/// Errors: no shared ops.
Result<void> scale_to_file(OverheadTable& table, const std::filesystem::path& file);

/// One table for one host, learned from programs that ran on different ones.
///
/// Every program is first brought to the host of `reference` (the name of one of them; empty: the
/// geometric mean of all) with `compare_hosts`. Then programs weigh alike, however long their
/// recordings are: with n_p samples of mean m_p of a key, its figure is
///
///   (sum_p w_p m_p + k * prior) / (sum_p w_p + k),    w_p = n_p / (n_p + n0)
///
/// where the prior is the figure of the next wider key (context -> name -> all). n0, the variance
/// between samples over that between programs, and k, the variance between programs over that
/// between keys, are estimated from the tables themselves (empirical Bayes, on logarithms), one
/// pair per term. The spread kept with a figure holds both variances.
///
/// Tables that are unfit (`OverheadTable::unfit_for_pools`) are left out and said. Calls of HIP
/// count as their CUDA counterparts. Launch templates: programs vote alike; none by shapes.
///
/// Errors: no table that is fit; a table that was not learned by method context; a `reference` that
/// is none of them.
Result<OverheadTable> pool_overheads(std::span<const PoolMember> programs,
                                     const std::string& reference = {});

/// The same for files with a table each, named like them. `without_collector`: a factor for each
/// term, as "T4=1.5", that removes the time that recording added to it, or "measured" alone:
/// the cost of each table's collector on the machine where it was measured (`kWithoutProfiler`);
/// empty: none. Errors: too few factors; a collector that was not measured.
Result<OverheadTable> pool_overhead_files(const std::vector<std::string>& files,
                                          const std::string& reference,
                                          const std::vector<std::string>& without_collector);

}  // namespace perfmodel
