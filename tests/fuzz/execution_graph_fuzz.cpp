// PyTorch execution graphs: what is read can be written, and read again as the same.
#include "fuzz.hpp"
#include "graph_indices.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"

using namespace perfmodel;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  if (const auto salvaged = parse_execution_graph(text, "input", {.salvage = true}); !salvaged) {
    fuzz::check_error(salvaged.error());
  }
  const auto graph = parse_execution_graph(text, "input");
  if (!graph) {
    fuzz::check_error(graph.error());
    return 0;
  }
  fuzz::check_lines(graph->warnings);
  fuzz::check_indices(*graph);
  const std::string written = execution_graph_json(*graph);
  const auto again = parse_execution_graph(written, "written");
  PERFMODEL_CHECK(again.has_value());
  PERFMODEL_CHECK(again->nodes.size() == graph->nodes.size());
  PERFMODEL_CHECK(execution_graph_json(*again) == written);
  return 0;
}
