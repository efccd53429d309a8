#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "build_arguments.hpp"
#include "build_commands.hpp"
#include "builders/model_family.hpp"
#include "cli/shared/command.hpp"
#include "config_flags.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {
namespace {

template <class Config>
constexpr bool kIsTransformer = std::is_base_of_v<TransformerConfig, Config>;
template <class Config>
constexpr bool kHasTraining = requires(Config config) {
  config.training;
};
template <class Config>
constexpr bool kHasOptimizer = requires(Config config) {
  config.optimizer;
};
template <class Config>
constexpr bool kHasExperts = requires(Config config) {
  config.experts.top_k;
};

template <class Config>
struct FamilyArguments {
  BuildArguments build;
  std::string preset, tables;
  Config given = {};  // the values of flags
};

template <class Config>
std::span<const ConfigField<Config>> fields_of(const ModelFamily<Config>& family) {
  return family.fields;
}

// The preset with the given values.
template <class Config>
Result<Config> configure(CommandParser app, const ModelFamily<Config>& family,
                         FamilyArguments<Config>& arguments) {
  Config config = family.start;
  if (family.preset && (kIsTransformer<Config> || !arguments.preset.empty())) {
    auto found = family.preset(arguments.preset);
    if (!found) return found;
    config = std::move(*found);
  }
  if constexpr (kIsTransformer<Config>) {
    copy_given(app, transformer_fields(), arguments.given, config);
    if (family.after_sizes) family.after_sizes(config);
  }
  copy_given(app, fields_of(family), arguments.given, config);
  if constexpr (kHasExperts<Config>) {
    if (app.option("--top-k").count() > 0 && config.experts.experts == 0) {
      return fail(ErrorCode::kImpossible, "top-k: expected --experts beside it, found none");
    }
  }
  if constexpr (kHasTraining<Config>) config.training = arguments.build.training;
  if (arguments.tables.empty()) return config;
  if (auto read = family.read_tables(config, arguments.tables); !read) {
    return Unexpected{read.error()};
  }
  return config;
}

template <class Config>
Result<void> run_build(CommandParser app, const ModelFamily<Config>& family,
                       FamilyArguments<Config>& arguments) {
  PERFMODEL_TRY(config, configure(app, family, arguments));
  PERFMODEL_TRY(graph, family.build(*config));
  return write_built_graph(app, arguments.build, *graph, config->name, family.facts(*config));
}

// "--tables, --bottom and --top"
std::string listed(std::span<const std::string_view> flags) {
  return fmt::format("{} and {}", fmt::join(flags.first(flags.size() - 1), ", "), flags.back());
}

void check_needed(CommandParser app, std::string_view preset,
                  std::span<const std::string_view> needed) {
  const auto lacks = [&](std::string_view flag) {
    return app.option(std::string(flag)).count() == 0;
  };
  if (!preset.empty() || std::ranges::none_of(needed, lacks)) return;
  bad_usage("build " + app.name(), "expected --preset, or " + listed(needed));
}

template <class Config>
void add_preset(CommandParser app, const ModelFamily<Config>& family, std::string& preset) {
  preset = family.first_preset;
  const Option option = app.add_option("--preset", preset, std::string(family.preset_help));
  if (!family.preset_takes.empty()) option.type_name(std::string(family.preset_takes));
  if (!preset.empty()) option.capture_default_str();
}

template <class Config>
void add_training_flags(CommandParser app, const ModelFamily<Config>& family,
                        TrainingOptions& training) {
  training = family.start.training;
  const auto fields = training_fields();
  add_config_flags(app, kHasOptimizer<Config> ? fields.subspan(1) : fields, training);
}

template <class Config>
Command family_command(CommandParser parent, const ModelFamily<Config>& family) {
  const auto arguments = std::make_shared<FamilyArguments<Config>>();
  const CommandParser app =
      parent.add_subcommand(std::string(family.name), std::string(family.help));
  if (family.preset) add_preset(app, family, arguments->preset);
  if (family.read_tables) {
    app.add_option("--tables", arguments->tables, std::string(family.tables_help))
        .type_name("FILE");
  }
  if constexpr (kIsTransformer<Config>) {
    add_config_flags(app, transformer_fields(), arguments->given);
  } else {
    add_config_flags(app, fields_of(family), arguments->given);
  }
  if constexpr (kHasTraining<Config>) add_training_flags(app, family, arguments->build.training);
  add_output_options(app, arguments->build);
  if constexpr (kIsTransformer<Config>) {
    add_config_flags(app, fields_of(family), arguments->given);
  }
  if (!family.footer.empty()) app.footer(std::string(family.footer));
  if (!family.needed.empty()) {
    app.callback(
        [app, &family, arguments] { check_needed(app, arguments->preset, family.needed); });
  }
  return {app, [app, &family, arguments] { return run_build(app, family, *arguments); }};
}

}  // namespace

std::vector<Command> build_commands(CommandParser parent) {
  const CommandParser build =
      parent.add_subcommand("build", "Make an execution graph without PyTorch");
  build.require_subcommand(1);
  return std::apply(
      [&](const auto&... family) { return std::vector<Command>{family_command(build, family)...}; },
      builder_families());
}

std::string suggest_preset(CommandParser command, const std::string& word) {
  if (command.name() != "build") return {};
  const std::string family = family_of_preset(word);
  return family.empty() ? "" : "build " + family + " --preset " + word;
}

}  // namespace perfmodel::cli
