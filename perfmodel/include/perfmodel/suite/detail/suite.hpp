#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/result.hpp"
#include "perfmodel/sweep/detail/sweep_spec.hpp"

/// Training benchmarks: models with their settings over a range of batch sizes.
namespace perfmodel::suite {

/// One of the steps that an iteration of training is made of.
struct SuiteGraph {
  sweep::GraphSource source;  ///< builder and flags, without the batch
  std::int64_t times = 1;     ///< per iteration
  std::string pointer = {};   ///< place in the file, for errors
};

struct SuiteModel {
  std::string name;    ///< "resnet-50"
  std::string title;   ///< "ResNet-50"
  std::string domain;  ///< "image classification"
  std::string unit;    ///< counted by throughput: "images"
  /// Units that one iteration works through, per sample of `--batch`: tokens of a sentence, steps
  /// of the critic that each take a batch of images.
  double units_per_sample = 1;
  std::string batch_unit;  ///< unit of the batch: "sentences"
  std::vector<std::int64_t> batches;
  std::vector<SuiteGraph> graphs;
  /// Trainable parameters as published, and the source; none: not published.
  std::optional<std::int64_t> published_parameters;
  std::string parameters_source;
  std::vector<std::string> notes;  ///< sources of settings, and what is left out
};

struct Suite {
  std::string name, title;
  std::string gpu;  ///< if none is asked for
  std::vector<std::string> sources;
  std::vector<SuiteModel> models;
  std::filesystem::path file;
};

/// Reads a suite: JSON of schema `perfmodel-suite` 1 (docs/suites.md has every key). Builders and
/// their flags are looked at when a graph is built. Errors, with the place: unknown keys, lists
/// without entries, names that occur twice, batches that do not grow, `batch` among the flags.
Result<Suite> read_suite(const std::filesystem::path& file);

/// Reads the suite `name` of `data`/suites, or a file that ends in .json. Errors: an unknown name
/// (lists the known ones); as for `read_suite`.
Result<Suite> find_suite(std::string_view name, const std::filesystem::path& data);

/// Reads all suites of `data`/suites, by name. Errors: as for `read_suite`.
Result<std::vector<Suite>> read_suites(const std::filesystem::path& data);

}  // namespace perfmodel::suite
