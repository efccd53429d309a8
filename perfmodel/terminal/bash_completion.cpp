#include "bash_completion.hpp"

#include <fmt/format.h>

namespace perfmodel::cli {
namespace {

// "@" stands for the program.
constexpr std::string_view kWalk = R"bash(
_@() {
  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"
  local command="" words i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case " $(_@_commands "$command") " in
      *" ${COMP_WORDS[i]} "*) command="${command:+$command }${COMP_WORDS[i]}" ;;
    esac
  done
  words="$(_@_values "$command" "$previous")"
  if [[ -z "$words" ]]; then
    words="$(_@_commands "$command")"
    if [[ "$current" == -* ]]; then words="$(_@_options "$command")"; fi
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _@ @
)bash";

// "  'build dlrm') echo 'a b' ;;"
std::string branch(std::string_view pattern, std::string_view words) {
  return fmt::format("    '{}') echo '{}' ;;\n", pattern, words);
}

std::string function(std::string_view program, std::string_view name, std::string_view what,
                     std::string_view branches) {
  return fmt::format("\n# {}\n_{}_{}() {{\n  case \"$*\" in\n{}  esac\n}}\n", what, program, name,
                     branches);
}

std::string option_names(const CommandText& command) {
  std::string words;
  for (const OptionText& option : command.options) {
    for (const std::string& name : option.names) words += (words.empty() ? "" : " ") + name;
  }
  return words;
}

std::string value_branches(const CommandText& command) {
  std::string text;
  for (const OptionText& option : command.options) {
    if (option.choices.empty()) continue;
    for (const std::string& name : option.names) {
      text += branch(command.path + " " + name, fmt::format("{}", fmt::join(option.choices, " ")));
    }
  }
  return text;
}

}  // namespace

std::string bash_completion(const std::vector<CommandText>& tree, std::string_view program) {
  std::string commands, options, values;
  for (const CommandText& command : tree) {
    if (!command.commands.empty()) {
      commands += branch(command.path, fmt::format("{}", fmt::join(command.commands, " ")));
    }
    options += branch(command.path, option_names(command));
    values += value_branches(command);
  }
  std::string walk(kWalk);
  for (std::size_t at; (at = walk.find('@')) != std::string::npos;) walk.replace(at, 1, program);
  return fmt::format("# Completes {0}; made by `{0} completion`.\n", program) +
         function(program, "commands", "Commands below a command.", commands) +
         function(program, "options", "Options of a command.", options) +
         function(program, "values", "Values of an option, where they are known.", values) + walk;
}

std::string zsh_completion(const std::vector<CommandText>& tree, std::string_view program) {
  return fmt::format("#compdef {}\nautoload -U +X bashcompinit && bashcompinit\n", program) +
         bash_completion(tree, program);
}

}  // namespace perfmodel::cli
