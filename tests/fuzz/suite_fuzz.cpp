// Training benchmarks: a suite that was read has all that running it needs.
#include <algorithm>
#include <functional>

#include "fuzz.hpp"
#include "perfmodel/suite/detail/suite.hpp"

using namespace perfmodel;
using namespace perfmodel::suite;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto suite = read_suite(fuzz::file_with(fuzz::text_of(data, size), ".json"));
  if (!suite) {
    fuzz::check_error(suite.error());
    return 0;
  }
  PERFMODEL_CHECK(!suite->models.empty());
  for (const SuiteModel& model : suite->models) {
    PERFMODEL_CHECK(!model.batches.empty() && model.batches.front() >= 1);
    PERFMODEL_CHECK(std::ranges::adjacent_find(model.batches, std::greater_equal<>()) ==
                    model.batches.end());
    PERFMODEL_CHECK(!model.graphs.empty() && model.units_per_sample > 0);
    for (const SuiteGraph& graph : model.graphs) {
      PERFMODEL_CHECK(graph.times >= 1);
      PERFMODEL_CHECK(std::ranges::none_of(
          graph.source.options, [](const auto& option) { return option.first == "batch"; }));
    }
  }
  return 0;
}
