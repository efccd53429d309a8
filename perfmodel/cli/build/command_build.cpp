#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "build_arguments.hpp"
#include "build_commands.hpp"
#include "builders/config_field.hpp"
#include "builders/model_family.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/field_flags.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {
namespace {

template <class Config>
Option add_config_flag(CommandParser app, const ConfigField<Config>& field,
                       const ConfigChoice<Config>& choice, Config& config) {
  const auto choose = [&config, choice](const std::string& name) { choice.choose(config, name); };
  return app.add_option_function<std::string>(flag_of(field.name), choose, std::string(field.help))
      .check(one_of(std::vector<std::string>(choice.names.begin(), choice.names.end())));
}

template <class Config, class Member>
Option add_config_flag(CommandParser app, const ConfigField<Config>& field, Member member,
                       Config& config) {
  const std::string flag = flag_of(field.name), help(field.help);
  auto& value = std::invoke(member, config);
  using Value = std::remove_reference_t<decltype(value)>;
  if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>) {
    return add_widths(
        app, flag, [&value](const Value& widths) { value = widths; }, help);
  } else if constexpr (std::is_same_v<Value, bool>) {
    if (field.deniable) return add_deniable_flag(app, flag, value, help);
    return app.add_flag(flag, value, help);
  } else {
    return app.add_option(flag, value, help);
  }
}

/// `config` gets the values.
template <class Config>
void add_config_flags(CommandParser app, std::span<const ConfigField<Config>> fields,
                      std::type_identity_t<Config>& config) {
  for (const ConfigField<Config>& field : fields) {
    const Option option =
        std::visit([&](const auto& member) { return add_config_flag(app, field, member, config); },
                   field.member);
    if (!field.takes.empty()) option.type_name(std::string(field.takes));
    if (!field.shown.empty()) option.default_str(std::string(field.shown));
  }
}

/// Copies the fields whose flags were given from `given`, which got their values.
template <class Config>
void copy_given(CommandParser app, std::span<const ConfigField<Config>> fields,
                std::type_identity_t<Config>& given, std::type_identity_t<Config>& config) {
  for (const ConfigField<Config>& field : fields) {
    const Option option = app.option(flag_of(field.name));
    if (option.count() == 0) continue;
    const auto copy = [&](const auto& member) {
      if constexpr (std::is_same_v<decltype(member), const ConfigChoice<Config>&>) {
        member.choose(config, option.values().back());
      } else {
        std::invoke(member, config) = std::invoke(member, given);
      }
    };
    std::visit(copy, field.member);
  }
}

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
    PERFMODEL_TRY(found, family.preset(arguments.preset));
    config = std::move(*found);
  }
  if constexpr (kIsTransformer<Config>) {
    copy_given(app, transformer_fields(), arguments.given, config);
    if (family.after_sizes) family.after_sizes(config);
  }
  copy_given(app, fields_of(family), arguments.given, config);
  if constexpr (kHasExperts<Config>) {
    if (app.option("--top-k").count() > 0 && config.experts.experts == 0) {
      return decline("top-k: expected --experts beside it, found none");
    }
  }
  if constexpr (kHasTraining<Config>) config.training = arguments.build.training;
  if (arguments.tables.empty()) return config;
  PERFMODEL_TRY_TO(family.read_tables(config, arguments.tables));
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
    app.add_option("--tables FILE", arguments->tables, std::string(family.tables_help));
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
