#pragma once

#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/sweep/detail/sweep_spec.hpp"

/// Small sweeps without the command line's builders and flags.
namespace perfmodel::sweep {
namespace fs = std::filesystem;
}

namespace perfmodel::sweep::test_support {

inline const fs::path& data_folder() {
  static const fs::path folder = fs::path(PERFMODEL_SOURCE_DIR) / "data";
  return folder;
}

/// A folder of its own, removed at the end.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "perfmodel_sweep_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

inline void write(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

inline std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// All members of a gzip file.
inline std::string inflated(const fs::path& file) {
  std::string text;
  const gzFile in = gzopen(file.c_str(), "rb");
  char buffer[65536];
  for (int size = 0; in && (size = gzread(in, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(size));
  }
  if (in) gzclose(in);
  return text;
}

inline Result<ExecutionGraph> build_small(const GraphSource& source) {
  if (source.builder != "mlp") {
    return Unexpected{
        Error{.message = "expected a builder, found " + source.builder, .json_pointer = "/build"}};
  }
  MlpConfig config;
  config.widths = {64, 32, 10};
  config.batch = 16;
  for (const auto& [name, value] : source.options) {
    if (name == "hidden") config.widths[1] = std::stoll(value);
  }
  return build_mlp(config);
}

inline Result<NamedRewrite> small_rewrite(const std::string& name, const std::string& value) {
  if (name == "batch") {
    const std::int64_t batch = std::atoll(value.c_str());
    if (batch < 1) return fail(ErrorCode::kFormat, "expected a batch, found " + value);
    return NamedRewrite{"--batch " + value, [batch](const ExecutionGraph& graph) {
                          return set_batch_size(graph, {.batch = batch});
                        }};
  }
  return NamedRewrite{"--refuse", [](const ExecutionGraph&) -> Result<ExecutionGraph> {
                        return fail(ErrorCode::kImpossible, "refused, as \"asked\", here");
                      }};
}

/// Builder "mlp" with option "hidden"; rewrites "batch" and "refuse", applied in this order.
inline GraphToolbox small_toolbox() {
  return {.rewrites = {"batch", "refuse"},
          .rewrite = small_rewrite,
          .build = build_small,
          .files = [](const GraphSource&) { return std::vector<fs::path>(); }};
}

/// 2 graphs x 3 batches x 2 GPUs x 3 strategies = 36 rows, of which the refused ones are none.
inline const char* const kSmallSpec = R"({
  "schema": "perfmodel-sweep", "version": 1,
  "graphs": [{"name": "small", "build": "mlp"},
             {"name": "wide", "build": "mlp", "options": {"hidden": 128}}],
  "rewrites": [{"batch": ["same", 8, 32]}],
  "gpus": ["a100-sxm-80gb", "h100-sxm-80gb"],
  "strategies": [{"strategy": "none"}, {"strategy": "ddp", "world": [2, 8]}]
})";

inline Result<SweepSpec> read_spec(const Folder& folder, const std::string& text) {
  write(folder / "spec.json", text);
  return read_sweep_spec(folder / "spec.json", small_toolbox(), data_folder());
}

}  // namespace perfmodel::sweep::test_support
