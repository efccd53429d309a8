#include "target_inputs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "base/contains.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/predictors/detail/collective_model.hpp"
#include "predict/rewritten_times.hpp"
#include "rewrites/rewrite_input.hpp"

namespace perfmodel {
namespace {

using Warn = std::function<void(const std::string&)>;

void warn_of(const std::vector<std::string>& warnings, const Warn& warn) {
  std::ranges::for_each(warnings, warn);
}

bool brings_its_host(const TargetQuestion& question, const TargetInputs& inputs) {
  return inputs.program.trace && question.overheads.empty();
}

// The host of a trace is the same for every GPU.
Result<ChosenOverheads> host_of(const TargetQuestion& question, const Gpu& gpu,
                                OverheadTables& tables, const TargetInputs& inputs) {
  if (!brings_its_host(question, inputs)) return tables.choose(question.overheads, gpu);
  if (!inputs.loaded.empty()) return inputs.loaded.front().overheads;
  return tables.own(*inputs.program.trace, inputs.program.graph);
}

void add_target(const TargetQuestion& question, Gpu gpu, ChosenOverheads overheads,
                TargetInputs& inputs) {
  LoadedTarget& loaded = inputs.loaded.emplace_back();
  loaded.overheads = std::move(overheads);
  loaded.models = inputs.chosen.models;
  loaded.target = {.gpu = std::move(gpu),
                   .overheads = loaded.overheads.table.get(),
                   .options = {.recorded_waits = question.topology.empty(),
                               .models = &loaded.models,
                               .world_size = question.world,
                               .host_scale = question.host_scale}};
}

// Collectives cross the named topology.
Result<void> connect(const std::string& topology, LoadedTarget& loaded, const Warn& warn) {
  if (topology.empty()) return {};
  PERFMODEL_TRY(found, TopologyCatalog::builtin().find(topology));
  warn_of(stand_ins(*found), warn);
  loaded.topology = *found;
  loaded.collectives = make_collective_model(*found, {});
  loaded.models.set(KernelFamily::kCollective, loaded.collectives.get());
  loaded.target.options.topology = &loaded.topology;
  return {};
}

// Kernels that have no model take what the trace measured.
Result<void> use_kernel_times(const RecordedProgram& program, LoadedTarget& loaded,
                              const Warn& warn) {
  if (!program.trace) return {};
  PERFMODEL_TRY(moved, kernel_times_on(program.graph, *program.trace, loaded.target.gpu));
  warn(moved->sentence.value_or(""));
  loaded.kernel_times = std::move(*moved);
  loaded.target.options.kernel_times = &loaded.kernel_times->times;
  loaded.target.options.use = loaded.kernel_times->use;
  return {};
}

// The measured step says how fast the host of all targets is.
Result<void> use_measured_step(const TimedStep& measured, TargetInputs& inputs, const Warn& warn) {
  if (!measured.us) return {};
  PERFMODEL_TRY(scales, match_measured(measured, inputs.program, inputs.target()));
  for (LoadedTarget& loaded : inputs.loaded) {
    loaded.target.options.host_scale = scales->host;
    loaded.target.options.device_scale = scales->device;
  }
  warn(measured_sentence(measured, *scales));
  return {};
}

Result<void> rewrite_program(const TargetQuestion& question, TargetInputs& inputs,
                             const Warn& warn) {
  if (question.rewrites.empty()) return {};
  PERFMODEL_TRY(rewritten, rewrite_input(inputs.program.graph, question.rewrites));
  LoadedTarget& loaded = inputs.loaded.front();
  PERFMODEL_TRY(left_out, fit_kernel_times(inputs.program.graph, *rewritten, loaded.target.options,
                                           loaded.kept_times));
  if (!left_out->empty()) warn(*left_out);
  inputs.program.graph = std::move(*rewritten);
  return {};
}

// A host-bound step is as fast as its host: then rows compare machines, not GPUs.
std::string warning_of_hosts(const TargetInputs& inputs) {
  std::vector<std::string> files;
  for (const LoadedTarget& loaded : inputs.loaded) add_once(files, loaded.overheads.file);
  if (files.size() < 2) return "";
  return fmt::format(
      "overheads of different machines ({}): where the host bounds a step, rows "
      "compare hosts as well as GPUs; --overheads takes one table for all",
      fmt::join(files, ", "));
}

// One graph serves all targets, with the libraries of the first one's vendor.
std::string warning_of_vendors(const TargetInputs& inputs) {
  const std::string& first = inputs.target().gpu.vendor;
  const bool differ = std::ranges::any_of(
      inputs.loaded, [&](const LoadedTarget& one) { return one.target.gpu.vendor != first; });
  if (inputs.program.graph.captured.empty() || !differ) return "";
  return fmt::format("{}calls the libraries of {} on the GPUs of the other vendor too",
                     kCapturedPrefix, first);
}

}  // namespace

std::vector<WhatIfTarget> TargetInputs::targets() const {
  std::vector<WhatIfTarget> all;
  for (const LoadedTarget& one : loaded) all.push_back(one.target);
  return all;
}

Result<void> load_target(const TargetQuestion& question, TargetInputs& inputs) {
  const auto warn = [&inputs](const std::string& warning) {
    if (!warning.empty()) inputs.warnings.push_back(warning);
  };
  PERFMODEL_TRY(models, choose_kernel_models(question.models));
  inputs.chosen = std::move(*models);
  PERFMODEL_TRY(data, find_data_folder());
  PERFMODEL_TRY(gpu, find_gpu(question.gpu, *data / "gpus"));
  PERFMODEL_TRY_TO(retarget_for(*gpu, inputs.program.graph, question.rewrites));
  warn_of(stand_ins(*gpu), warn);
  warn(inputs.chosen.warning);
  OverheadTables tables(*data);
  PERFMODEL_TRY(host, host_of(question, *gpu, tables, inputs));
  if (brings_its_host(question, inputs)) warn_of(host->table->warnings, warn);
  add_target(question, std::move(*gpu), std::move(*host), inputs);
  LoadedTarget& loaded = inputs.loaded.back();
  PERFMODEL_TRY_TO(use_kernel_times(inputs.program, loaded, warn));
  warn(loaded.overheads.warning);
  PERFMODEL_TRY_TO(connect(question.topology, loaded, warn));
  PERFMODEL_TRY_TO(use_measured_step(question.measured, inputs, warn));
  PERFMODEL_TRY_TO(rewrite_program(question, inputs, warn));
  warn_of(inputs.program.graph.warnings, warn);
  put_captured_first(inputs.warnings);
  return {};
}

Result<void> load_targets(const TargetQuestion& question, TargetInputs& inputs) {
  const auto warn = [&inputs](const std::string& warning) {
    if (!warning.empty()) add_once(inputs.warnings, warning);
  };
  PERFMODEL_TRY(data, find_data_folder());
  std::vector<std::string> names = question.gpus, of_gpus;
  if (!question.gpu.empty()) names.insert(names.begin(), question.gpu);
  OverheadTables tables(*data);
  warn(inputs.chosen.warning);
  for (const std::string& name : names) {
    PERFMODEL_TRY(gpu, find_gpu(name, *data / "gpus"));
    const auto is_known = [&](const LoadedTarget& one) { return one.target.gpu.name == gpu->name; };
    if (std::ranges::any_of(inputs.loaded, is_known)) continue;
    PERFMODEL_TRY_TO(retarget_for(*gpu, inputs.program.graph));
    std::ranges::move(stand_ins(*gpu), std::back_inserter(of_gpus));
    PERFMODEL_TRY(host, host_of(question, *gpu, tables, inputs));
    if (brings_its_host(question, inputs)) warn_of(host->table->warnings, warn);
    warn(host->warning);
    add_target(question, std::move(*gpu), std::move(*host), inputs);
    auto connected = connect(question.topology, inputs.loaded.back(), warn);
    if (!connected) return connected;
  }
  warn(warning_of_hosts(inputs));
  inputs.warnings.insert(inputs.warnings.begin(), of_gpus.begin(), of_gpus.end());
  for (LoadedTarget& loaded : inputs.loaded) {
    PERFMODEL_TRY_TO(use_kernel_times(inputs.program, loaded, warn));
  }
  PERFMODEL_TRY_TO(use_measured_step(question.measured, inputs, warn));
  warn_of(inputs.program.graph.warnings, warn);
  warn(warning_of_vendors(inputs));
  put_captured_first(inputs.warnings);
  return {};
}

}  // namespace perfmodel
