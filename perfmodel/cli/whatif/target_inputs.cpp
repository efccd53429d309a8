#include "target_inputs.hpp"

#include <utility>

#include "perfmodel/data_files.hpp"
#include "perfmodel/predictors/detail/collective_model.hpp"

namespace perfmodel::cli {
namespace {

Result<void> use_trace(const TargetArguments& arguments, OverheadTables& tables,
                       TargetInputs& inputs) {
  if (!inputs.program.trace) return {};
  if (arguments.overheads.empty()) {
    auto own = tables.own(*inputs.program.trace, inputs.program.graph);
    if (!own) return Unexpected{own.error()};
    inputs.overheads = std::move(*own);
    const auto& warnings = inputs.overheads.table->warnings;
    inputs.warnings.insert(inputs.warnings.end(), warnings.begin(), warnings.end());
  }
  auto moved = kernel_times_on(inputs.program.graph, *inputs.program.trace, inputs.target.gpu);
  if (!moved) return Unexpected{moved.error()};
  inputs.kernel_times = std::move(*moved);
  if (inputs.kernel_times->sentence) inputs.warnings.push_back(*inputs.kernel_times->sentence);
  return {};
}

}  // namespace

Result<void> load_target(const TargetArguments& arguments, TargetInputs& inputs) {
  auto models = choose_kernel_models(arguments.models);
  if (!models) return Unexpected{models.error()};
  inputs.chosen = std::move(*models);
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  auto gpu = find_gpu(arguments.gpu, *data / "gpus");
  if (!gpu) return Unexpected{gpu.error()};
  for (std::string& sentence : stand_ins(*gpu)) inputs.warnings.push_back(std::move(sentence));
  if (!inputs.chosen.warning.empty()) inputs.warnings.push_back(inputs.chosen.warning);
  OverheadTables tables(*data);
  auto table = tables.choose(arguments.overheads, *gpu);
  if (!table) return Unexpected{table.error()};
  inputs.overheads = std::move(*table);
  inputs.target.gpu = std::move(*gpu);
  if (auto used = use_trace(arguments, tables, inputs); !used) return used;
  if (!inputs.overheads.warning.empty()) inputs.warnings.push_back(inputs.overheads.warning);
  inputs.models = inputs.chosen.models;
  if (!arguments.topology.empty()) {
    auto topology = TopologyCatalog::builtin().find(arguments.topology);
    if (!topology) return Unexpected{topology.error()};
    for (std::string& sentence : stand_ins(*topology)) {
      inputs.warnings.push_back(std::move(sentence));
    }
    inputs.collectives = make_collective_model(*topology, {});
    inputs.models->set(KernelFamily::kCollective, inputs.collectives.get());
  }
  inputs.target.overheads = inputs.overheads.table.get();
  inputs.target.options = {
      .kernel_times = inputs.kernel_times ? &inputs.kernel_times->times : nullptr,
      .use = inputs.kernel_times ? inputs.kernel_times->use : KernelTimes::Use::kAll,
      .recorded_waits = arguments.topology.empty(),
      .models = &*inputs.models,
      .host_scale = arguments.host_scale};
  if (arguments.measured.us) {
    const auto scales = match_measured(arguments.measured, inputs.program, inputs.target);
    if (!scales) return Unexpected{scales.error()};
    inputs.target.options.host_scale = scales->host;
    inputs.target.options.device_scale = scales->device;
    inputs.warnings.push_back(measured_sentence(arguments.measured, *scales));
  }
  for (const std::string& warning : inputs.program.graph.warnings) {
    inputs.warnings.push_back(warning);
  }
  return {};
}

}  // namespace perfmodel::cli
