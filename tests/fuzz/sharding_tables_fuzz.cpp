// Lists of embedding tables in CSV, as `shard` and as `build dlrm` read them.
#include "perfmodel/graph/build_recommenders.hpp"
#include "sharding_study.hpp"

using namespace perfmodel;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  fuzz::check_study(text, ".csv");
  const auto tables = read_embedding_tables(fuzz::file_with(text, ".csv"));
  if (!tables) {
    fuzz::check_error(tables.error());
  } else {
    PERFMODEL_CHECK(!tables->empty());
  }
  return 0;
}
