#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "../core/device.hpp"
#include "../families/family.hpp"
#include "perfmodel/result.hpp"

namespace kernels_bench {

/// The head of a table; rows of different devices never share one.
struct Provenance {
  std::string gpu;     ///< name in data/gpus, or the device's in lower case with dashes
  std::string device;  ///< name, target and memory as the driver says
  std::string software;
  std::string command, date;
};

struct Row {
  double time_us = 0, p10_us = 0, p90_us = 0;
  int repetitions = 0;
  bool l2_warm = false;
  double gb_per_s = 0, tflop_per_s = 0, share_of_peak = 0;  ///< 0: does not apply
  double max_error = 0;
  Clocks before, after;
  std::string kernel;
};

/// One family's measurements: CSV in the columns of kernel tables (docs/formats.md) and some more,
/// with the provenance in lines that begin with '#'. Rows are appended whole, one system call each,
/// so a killed program leaves at most a piece of one row; opening the file again removes it.
class MeasurementTable {
 public:
  /// Creates the file or goes on with it. Errors, which leave it as it is: not writable, in use by
  /// another run, packed, no table, another GPU's rows, columns of another version of this program.
  static perfmodel::Result<MeasurementTable> open(const std::filesystem::path& file,
                                                  const Family& family,
                                                  const Provenance& provenance);

  MeasurementTable(MeasurementTable&& other) noexcept;
  MeasurementTable& operator=(MeasurementTable&&) = delete;
  ~MeasurementTable();

  /// Median times of the rows that are there, by key.
  const std::map<std::string, double>& times() const { return times_; }
  bool has(const std::string& key) const { return times_.contains(key) || skipped_.contains(key); }
  std::size_t skipped() const { return skipped_.size(); }

  /// Name of a case in this table: its cells in the order of the columns.
  std::string key_of(const Case& point) const;

  perfmodel::Result<void> append(const Case& point, const Row& row);
  /// A case that cannot be measured here, so that it is not tried again.
  perfmodel::Result<void> append_skipped(const Case& point, const std::string& reason);

 private:
  MeasurementTable(std::filesystem::path file, const Family& family, std::string gpu)
      : file_(std::move(file)), family_(&family), gpu_(std::move(gpu)) {}

  perfmodel::Result<void> read_rows(const std::string& text, const Provenance& provenance);
  perfmodel::Result<void> write_line(const std::string& line);
  perfmodel::Result<void> cut(std::size_t size);

  std::filesystem::path file_;
  const Family* family_;
  std::string gpu_;
  int descriptor_ = -1;
  std::map<std::string, double> times_;
  std::map<std::string, std::string> skipped_;  ///< key, reason
};

}  // namespace kernels_bench
