#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "job_format.hpp"
#include "job_reading.hpp"

namespace perfmodel {

/// Values of fields and facts while a job is read, each with the setting that it comes from, and
/// the first contradiction among them.
class JobValues {
 public:
  explicit JobValues(std::filesystem::path file) : file_(std::move(file)) {}

  /// A second setting must agree with the first.
  void set(const std::string& name, const JobLine& line);
  void replace(const std::string& name, JobLine line) { values_[name] = std::move(line); }
  void drop(const std::string& name) { values_.erase(name); }

  bool has(const std::string& name) const { return values_.contains(name); }
  const JobLine* find(const std::string& name) const;
  std::string text(const std::string& name) const;
  /// None: not said. Anything but a whole number of at least 1 is an error.
  std::optional<std::int64_t> count(const std::string& name);

  void fail_at(const JobLine& line, std::string message);
  const std::optional<Error>& error() const { return error_; }
  const std::map<std::string, JobLine>& all() const { return values_; }
  const std::filesystem::path& file() const { return file_; }

 private:
  std::filesystem::path file_;
  std::map<std::string, JobLine> values_;
  std::optional<Error> error_;
};

/// Works the fields of `layout` out of the facts that trainers say instead: the GPUs of nodes, the
/// batch of a rank, shards and replicas. Fields that it makes have no key.
void complete_job(const JobFormat& format, JobValues& values);

/// The known model, config.json or folder that a name or path of a hub means; empty: none.
std::string model_of_name(const std::string& name, const JobFormat& format,
                          const std::filesystem::path& folder);

}  // namespace perfmodel
