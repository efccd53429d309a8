#include "layout_arguments.hpp"

#include <type_traits>
#include <utility>

#include "cli/shared/arguments.hpp"
#include "cli/shared/field_flags.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {
namespace {

// The flag of a field, in the question or in the lists of a search.
void add_layout_field(CommandParser app, const LayoutField& field, LayoutArguments& arguments) {
  const auto add_list = [&](auto list) {
    if constexpr (std::is_same_v<decltype(list), std::monostate>) {
      add_field<LayoutAsk>(app, field, arguments);
    } else {
      add_flag(app, field, arguments.lists.*list);
    }
  };
  std::visit(add_list, field.list);
}

/// Adds the fields from `first` to `last`, in the order of their table.
void add_fields(CommandParser app, LayoutArguments& arguments, std::string_view first,
                std::string_view last) {
  for (const LayoutField* field = find_layout_field(first);; ++field) {
    add_layout_field(app, *field, arguments);
    if (field->name == last) return;
  }
}

}  // namespace

void add_layout_question(CommandParser app, LayoutArguments& arguments) {
  app.add_option(
      "model MODEL", arguments.model,
      "A known model (llama3-70b, gpt2-xl, ...), a Hugging Face config.json or a trainer's "
      "job file; without it the sizes are given");
  app.add_option("--job FILE", arguments.job,
                 "Job file of torchtitan, Megatron-LM, NeMo, Primus, axolotl, LLaMA-Factory, "
                 "ms-swift or DeepSpeed (TOML, YAML, JSON, shell, log); flags count before it");
  add_fields(app, arguments, "layers", "next_tokens");
  app.add_option("--gpu GPU", arguments.machine.gpu, "GPU, by name").required();
  app.add_option("--topology NAME", arguments.machine.topology,
                 "Nodes and network (what the GPU sits in)");
  app.add_option("--collectives FILE", arguments.machine.collectives,
                 "Price collectives by ASTRA-sim's rules on the network of this file");
  add_fields(app, arguments, "software", "host_gb_per_s");
  add_scale_host(app, arguments.machine.host_scale);
  add_fields(app, arguments, "dp", "schedule");
  app.add_option_function<std::string>(
         "--stages KIND",
         [&arguments](const std::string& text) { arguments.searched_stages = text == "searched"; },
         "Layers of pipeline stages: those of the program (equal), or the fastest (searched)")
      .check(one_of({"equal", "searched"}));
}

void add_layout_options(CommandParser app, LayoutArguments& arguments) {
  add_layout_question(app, arguments);
  app.add_option(
      "--measured FILE", arguments.measured,
      "Steps measured on this machine that calibrate it: a table (CSV), a Kineto trace of "
      "one step, or a machine's file or name");
  app.add_option(
      "--measured-layout PARTS", arguments.measured_layout,
      "Layout of a measured trace: tp=8,pp=4,micro_batch=1 (the one that is asked about)");
  app.add_flag("--json", arguments.json, "Print JSON");
}

GivenFields given_fields(CommandParser app) {
  GivenFields given;
  for (const LayoutField& field : layout_fields()) {
    const Option option = app.option(flag_of(field.name));
    if (option.count() > 0) given[std::string(field.name)] = option.values().back();
  }
  return given;
}

void add_run_options(CommandParser app, TrainingRunAsk& run) {
  for (const TrainingRunField& field : training_run_fields()) add_field(app, field, run);
}

}  // namespace perfmodel::cli
