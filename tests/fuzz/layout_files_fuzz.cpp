// JSON files of `layout`: a model's config.json, a framework's costs, a network that ASTRA-sim's
// rules price, a measured machine. Every reader gets every text; most refuse it by its head.
#include <cmath>

#include "layout/framework.hpp"
#include "layout/measured_steps.hpp"
#include "layout_pricers.hpp"
#include "perfmodel/detail/decoder_models.hpp"
#include "price/astra_sim.hpp"

using namespace perfmodel;

namespace {

void check_model(const std::filesystem::path& file) {
  const auto read = read_decoder_config(file);
  if (!read) return fuzz::check_error(read.error());
  fuzz::check_lines(read->notes);
  PERFMODEL_CHECK(read->sequence >= 0);
  LayoutJob job{.model = read->model, .sequence = 512, .global_batch = 16};
  for (const ParallelLayout& layout :
       {ParallelLayout{.dp = 8},
        ParallelLayout{.dp = 2, .tp = 2, .pp = 2, .recompute = LayoutRecompute::kFull}}) {
    fuzz::check_layout(fuzz::layout_pricer(), job, layout);
  }
}

void check_framework(const std::filesystem::path& file) {
  const auto read = read_framework(file);
  if (!read) return fuzz::check_error(read.error());
  for (const double nodes : {1.0, 3.0, 1e6}) {
    PERFMODEL_CHECK(std::isfinite(at_nodes(read->step_by_nodes_us, nodes)));
    PERFMODEL_CHECK(at_nodes(read->hop_by_nodes_us, nodes) >= 0);
  }
  for (const double share : {read->tensor_overlap, read->expert_overlap, read->network_share}) {
    PERFMODEL_CHECK(share >= 0 && share <= 1);
  }
}

void check_network(const std::filesystem::path& file) {
  const auto read = read_astra_sim_network(file);
  if (!read) return fuzz::check_error(read.error());
  for (const auto kind : {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                          CollectiveKind::kReduceScatter, CollectiveKind::kAllToAll}) {
    for (const int nodes : {1, 4}) {
      const auto time =
          astra_sim_time(*read, {.kind = kind, .bytes = Bytes{1e6}, .ranks = 8, .nodes = nodes});
      if (!time) {
        fuzz::check_error(time.error());
      } else {
        PERFMODEL_CHECK(std::isfinite(time->count()) && time->count() >= 0);
      }
    }
  }
}

void check_machine(const std::filesystem::path& file) {
  LayoutInputs inputs;
  inputs.machine = {.gpu = "a100-sxm-80gb", .topology = "dgx-a100"};
  inputs.measured = file.string();
  const auto measured = layout_pricer(fuzz::layout_predictor(), inputs.machine, inputs, nullptr,
                                      [](const std::string&) {});
  if (!measured) return fuzz::check_error(measured.error());
  PERFMODEL_CHECK(measured->fit() && measured->fit()->steps > 0);
  PERFMODEL_CHECK(std::isfinite(measured->fit()->mape_after));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto& file = fuzz::file_with(fuzz::text_of(data, size), ".json");
  check_model(file);
  check_framework(file);
  check_network(file);
  if (fuzz::text_of(data, size).find("perfmodel-measured-machine") != std::string_view::npos) {
    check_machine(file);
  }
  return 0;
}
