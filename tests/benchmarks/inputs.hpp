#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string_view>

#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/predictors/gpu.hpp"

/// Inputs of the benchmarks: made once per run in a temporary folder that goes with the program.
namespace perfmodel::benchmarks {

/// Folder of this run.
const std::filesystem::path& folder();

/// A DLRM with one op per table, so that the number of nodes grows with the number of tables.
DlrmConfig dlrm_with_tables(std::size_t tables);

/// The preset's graph as a plain JSON file.
std::filesystem::path built_graph_file(std::string_view preset);

/// A Kineto trace of about `megabytes` MB of plain JSON: training steps of ops with their launches
/// and kernels, in the layout of 2024.
std::filesystem::path made_up_trace(std::size_t megabytes);

/// A file below PERFMODEL_PUBLIC_DATA, if it is there.
std::optional<std::filesystem::path> public_file(std::string_view name);

/// A GPU of data/gpus.
const Gpu& gpu(std::string_view name);

/// The value, or the end of the program with the error's text: a benchmark has no way on.
[[noreturn]] void stop(const Error& error);
template <class T>
T value_of(Result<T> result) {
  if (!result) stop(result.error());
  return std::move(*result);
}

}  // namespace perfmodel::benchmarks
