#include "command_tree.hpp"

#include "cli11.hpp"

namespace perfmodel::cli {
namespace {

// "TEXT:{ddp,fsdp}" of a parser that knows all values.
std::vector<std::string> choices_of(const std::string& type) {
  const std::size_t begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

OptionText text_of(const CLI::Option& option) {
  OptionText text{.help = option.get_description(),
                  .required = option.get_required(),
                  .repeated = option.get_expected_max() == CLI::detail::expected_max_vector_size};
  if (option.get_positional()) {
    text.names = {option.get_name(true)};
    return text;
  }
  for (const std::string& name : option.get_snames()) text.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) text.names.push_back("--" + name);
  if (option.get_type_size() == 0) return text;
  const std::string type = option.get_type_name();
  text.choices = choices_of(type);
  text.value = text.choices.empty() ? type : CLI::detail::join(text.choices, "|");
  text.fallback = option.get_default_str();
  return text;
}

void add(const CLI::App& app, const std::string& path, std::vector<CommandText>& tree) {
  const auto below =
      app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
  CommandText text{.path = path, .help = app.get_description(), .footer = app.get_footer()};
  for (const CLI::App* command : below) text.commands.push_back(command->get_name());
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    auto& list = option->get_positional() ? text.positionals : text.options;
    list.push_back(text_of(*option));
  }
  tree.push_back(std::move(text));
  for (const CLI::App* command : below) {
    add(*command, path.empty() ? command->get_name() : path + " " + command->get_name(), tree);
  }
}

}  // namespace

std::vector<CommandText> command_tree(const CLI::App& app) {
  std::vector<CommandText> tree;
  add(app, "", tree);
  return tree;
}

}  // namespace perfmodel::cli
