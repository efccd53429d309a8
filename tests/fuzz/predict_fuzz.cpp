// Predictions of execution graphs with whatever sizes: times that are numbers, or an error.
#include <cmath>

#include "fuzz.hpp"
#include "perfmodel/detail/explanation.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/predict.hpp"
#include "serve/answers.hpp"

using namespace perfmodel;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Gpu gpu = *read_gpu(fuzz::data_folder() / "gpus/a100-sxm-40gb.json");
  static const OverheadTable table =
      *read_overheads(fuzz::data_folder() / "overheads/programs/dlrm_v100.json");
  const auto graph = parse_execution_graph(fuzz::text_of(data, size), "input");
  if (!graph) return 0;  // execution_graph looks at those
  const auto made = predict(*graph, gpu, table, {.what_if_steps = 2});
  if (!made) {
    fuzz::check_error(made.error());
    return 0;
  }
  for (const double us : {made->e2e_us, made->gpu_active_us, made->gpu_idle_us, made->cpu_us,
                          made->wait_us, made->kernel_sum_us}) {
    PERFMODEL_CHECK(std::isfinite(us) && us >= 0);
  }
  fuzz::check_lines(made->warnings);
  const std::string answer = serve::result_line("1", serve::prediction_json(*made));
  PERFMODEL_CHECK(answer.find('\n') == std::string::npos);
  PERFMODEL_CHECK(!explain(*made).text.empty());
  return 0;
}
