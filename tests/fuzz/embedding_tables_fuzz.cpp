// Lists of embedding tables in JSON: what is read builds a DLRM, or says why not.
#include "fuzz.hpp"
#include "perfmodel/graph/build_recommenders.hpp"

using namespace perfmodel;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t kMostTables = 50;
  const auto tables = read_embedding_tables(fuzz::file_with(fuzz::text_of(data, size), ".json"));
  if (!tables) {
    fuzz::check_error(tables.error());
    return 0;
  }
  PERFMODEL_CHECK(!tables->empty());
  if (tables->size() > kMostTables) return 0;
  DlrmConfig config = *dlrm_preset("default");
  config.tables = *tables;
  const auto graph = build_dlrm(config);
  if (!graph) {
    fuzz::check_error(graph.error());
  } else {
    PERFMODEL_CHECK(!graph->nodes.empty());
  }
  return 0;
}
