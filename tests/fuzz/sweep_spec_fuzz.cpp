// Specs of sweeps: every point of what is read has a key of its own.
#include <algorithm>

#include "fuzz.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/sweep/detail/sweep_spec.hpp"
#include "sweep/sweep_points.hpp"

using namespace perfmodel;
using namespace perfmodel::sweep;

namespace {

Result<ExecutionGraph> build(const GraphSource& source) {
  if (source.builder == "mlp") return build_mlp({.widths = {64, 32, 10}, .batch = 16});
  return Unexpected{
      Error{.message = "expected the builder mlp, found another", .json_pointer = "/build"}};
}

Result<NamedRewrite> rewrite(const std::string& name, const std::string& value) {
  if (value.empty() || value.size() > 6 ||
      !std::ranges::all_of(value, [](char c) { return c >= '0' && c <= '9'; })) {
    return fail(ErrorCode::kFormat, "expected a small number, found another value");
  }
  const std::int64_t batch = std::stoll(value);
  return NamedRewrite{"--" + name, [batch](const ExecutionGraph& graph) {
                        return set_batch_size(graph, {.batch = batch});
                      }};
}

// Graph and GPU files are named relative to the spec's folder: the descriptors of this process,
// of which opening some would wait for their other end.
bool names_files(std::string_view text) {
  return text.find("file") != text.npos || text.find('\\') != text.npos ||
         text.find(".json") != text.npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const GraphToolbox toolbox{
      .rewrites = {"batch", "sequence"},
      .rewrite = rewrite,
      .build = build,
      .files = [](const GraphSource&) { return std::vector<std::filesystem::path>(); }};
  const std::string_view text = fuzz::text_of(data, size);
  if (names_files(text)) return 0;
  const auto spec =
      read_sweep_spec(fuzz::file_with(text, ".json"), toolbox, fuzz::small_data_folder());
  if (!spec) {
    fuzz::check_error(spec.error());
    return 0;
  }
  const SweepPoints points(*spec);
  PERFMODEL_CHECK(points.count() > 0 && points.count() <= kMostRows);
  for (const std::uint64_t row : {std::uint64_t{0}, points.count() / 2, points.count() - 1}) {
    const std::string key = points.key(row);
    fuzz::check_line(key.substr(0, 1000));
    PERFMODEL_CHECK(points.index_of(key) == row);
  }
  return 0;
}
