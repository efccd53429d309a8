// Memory of a step of graphs that no recording is (rewritten_graphs.hpp): what it holds adds up.
//
// An input has {"memory": {"gpu": BOOL, "world": N, "zero": STAGE, "expandable": BOOL}} next to its
// graph.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "fuzz.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/memory.hpp"
#include "rewritten_graphs.hpp"

using namespace perfmodel;
using Json = nlohmann::json;

namespace {

MemoryOptions options_of(const Json& asked) {
  const auto number = [&](const char* key) {
    const auto at = asked.find(key);
    return at != asked.end() && at->is_number_integer() ? at->get<std::int64_t>() : 0;
  };
  return {.largest = 5,
          .curve = true,
          .expandable_segments = number("expandable") != 0,
          .zero = {.world = std::clamp<std::int64_t>(number("world"), 1, 1 << 20),
                   .stage = static_cast<int>(std::clamp<std::int64_t>(number("zero"), 0, 3))}};
}

void check_bytes(double bytes) { PERFMODEL_CHECK(std::isfinite(bytes) && bytes >= 0); }

void check_sum(double sum, double whole) {
  PERFMODEL_CHECK(std::abs(sum - whole) <= 1e-6 * std::max(1.0, whole));
}

void check_memory(const PredictedMemory& memory) {
  for (const double bytes :
       {memory.static_bytes(), memory.activation_bytes, memory.peak_allocated_bytes,
        memory.context_bytes, memory.unsure_bytes, memory.device_bytes}) {
    check_bytes(bytes);
  }
  PERFMODEL_CHECK(memory.peak_reserved_bytes >= memory.peak_allocated_bytes);
  for (const double bytes : memory.by_purpose) check_bytes(bytes);
  check_sum(std::accumulate(memory.by_purpose.begin(), memory.by_purpose.end(), 0.0),
            memory.needed_bytes());
  fuzz::check_line(memory_text(memory));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  if (fuzz::too_deep(text)) return 0;  // execution_graph looks at those
  const Json document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) return 0;
  const auto graph = fuzz::graph_of(document, text);
  if (!graph) return 0;
  static const Gpu gpu = *read_gpu(fuzz::data_folder() / "gpus/a100-sxm-40gb.json");
  const auto asked = document.find("memory");
  const bool has_options = asked != document.end() && asked->is_object();
  const MemoryOptions options = has_options ? options_of(*asked) : MemoryOptions{.curve = true};
  for (const Gpu* on : {&gpu, static_cast<const Gpu*>(nullptr)}) {
    const MemoryReport report = memory_report(*graph, on, options);
    check_memory(report.memory);
    fuzz::check_lines(report.without_sizes);
    PERFMODEL_CHECK(report.largest.size() <= options.largest);
    for (const LargeStorage& storage : report.largest) check_bytes(storage.bytes);
    for (const MemoryPoint& point : report.curve) {
      PERFMODEL_CHECK(point.node >= -1 &&
                      point.node < static_cast<std::int32_t>(graph->nodes.size()));
      for (const double bytes : point.bytes) check_bytes(bytes);
    }
  }
  const auto per_sample = bytes_per_sample(*graph, batch_size(*graph).value_or(1));
  if (per_sample) {
    PERFMODEL_CHECK(std::isfinite(*per_sample));
  } else {
    fuzz::check_error(per_sample.error());
  }
  return 0;
}
