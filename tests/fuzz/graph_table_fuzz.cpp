// Tables of whole models and of their measured times.
#include "fuzz.hpp"
#include "tables/graph_latency.hpp"

using namespace perfmodel;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::filesystem::path gpus = fuzz::small_data_folder() / "gpus";
  const auto& file = fuzz::file_with(fuzz::text_of(data, size));
  if (const auto specs = read_graph_specs(file); !specs) {
    fuzz::check_error(specs.error());
  } else {
    for (const GraphSpec& spec : *specs) PERFMODEL_CHECK(spec.micro_batches >= 1);
  }
  if (const auto measured = read_measured_graphs(file, gpus); !measured) {
    fuzz::check_error(measured.error());
  } else {
    for (const MeasuredGraph& row : measured->rows) {
      PERFMODEL_CHECK(row.gpu >= 0 && row.gpu < static_cast<int>(measured->gpus.size()));
    }
  }
  return 0;
}
