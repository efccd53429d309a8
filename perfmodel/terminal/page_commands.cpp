#include "page_commands.hpp"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "command_tree.hpp"
#include "output.hpp"
#include "perfmodel/version.hpp"

namespace perfmodel::cli {
namespace {

// Each @ becomes the name of the program.
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

// A script for bash: completes commands, options, and values where a parser knows them; file names
// elsewhere.
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

// The same for zsh, which reads what is written for bash.
std::string zsh_completion(const std::vector<CommandText>& tree, std::string_view program) {
  return fmt::format("#compdef {}\nautoload -U +X bashcompinit && bashcompinit\n", program) +
         bash_completion(tree, program);
}

constexpr std::string_view kEnd = R"(.SH EXIT STATUS
.TP
.B 0
success
.TP
.B 1
bad input, or an impossible request; one line on standard error says which
.TP
.B 2
bad usage
.SH ENVIRONMENT
.TP
.B PERFMODEL_DATA
The folder with
.IR gpus/ ,
.IR models/ ,
.I overheads/
and
.IR topologies/ .
Without it:
.I ../share/perfmodel/data
or
.IR ../../../data ,
seen from the program.
.TP
.B NO_COLOR
Set to anything: no bold print on terminals.
)";

// A dash that can be copied and searched for, and no letter that roff takes for a command.
std::string escaped(std::string_view text) {
  std::string result;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) result += "\\&";
    line_begins = c == '\n';
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
  }
  return result;
}

std::string bold(std::string_view text) { return fmt::format("\\fB{}\\fR", escaped(text)); }
std::string italic(std::string_view text) { return fmt::format("\\fI{}\\fR", escaped(text)); }

// Lines as they are: what a parser ends with is laid out by hand.
std::string as_laid_out(std::string_view text) {
  if (text.empty()) return {};
  return fmt::format(".PP\n.nf\n{}\n.fi\n", escaped(text));
}

std::string positional(const OptionText& option) {
  const std::string name = italic(option.names.front()) + (option.repeated ? " ..." : "");
  return option.required ? name : "[" + name + "]";
}

std::string option_entry(const OptionText& option) {
  std::string head;
  for (const std::string& name : option.names) head += (head.empty() ? "" : ", ") + bold(name);
  if (!option.value.empty()) {
    head += " " + (option.choices.empty() ? italic(option.value) : bold(option.value));
    if (option.repeated) head += " ...";
  }
  std::string notes = option.required ? " (required)" : "";
  if (!option.fallback.empty()) notes += fmt::format(" (default: {})", escaped(option.fallback));
  return fmt::format(".TP\n{}\n{}{}\n", head, escaped(option.help), notes);
}

std::string command_section(const CommandText& command, std::string_view program) {
  std::string text = fmt::format(".SS {0}\n.B {1} {0}\n", escaped(command.path), program);
  if (!command.commands.empty()) text += ".I COMMAND\n";
  for (const OptionText& option : command.positionals) text += positional(option) + "\n";
  if (command.commands.empty()) text += "[" + italic("OPTION") + " ...]\n";
  text += fmt::format(".PP\n{}\n", escaped(command.help));
  for (const OptionText& option : command.positionals) {
    text += fmt::format(".TP\n{}\n{}\n", italic(option.names.front()), escaped(option.help));
  }
  for (const OptionText& option : command.options) text += option_entry(option);
  return text + as_laid_out(command.footer);
}

// The manual page of a program, of section 1: roff with the macros of man(7), in UTF-8. `purpose`
// follows its name: "predicts ...".
std::string man_page(const std::vector<CommandText>& tree, std::string_view program,
                     std::string_view purpose) {
  const CommandText& whole = tree.front();
  std::string title(program);
  for (char& c : title) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  std::string text = fmt::format(".TH {} 1 \"\" \"{} {}\" \"User Commands\"\n", title, program,
                                 escaped(program_version()));
  text += fmt::format(".SH NAME\n{} \\- {}\n", program, escaped(purpose));
  text += fmt::format(".SH SYNOPSIS\n.B {}\n.I COMMAND\n[\\fIARGUMENT\\fR ...]\n", program);
  text += fmt::format(".SH DESCRIPTION\n{}\n", escaped(whole.help));
  text += as_laid_out(whole.footer);
  text += ".SH OPTIONS\n";
  for (const OptionText& option : whole.options) text += option_entry(option);
  text += ".SH COMMANDS\n";
  for (const CommandText& command : tree) {
    if (!command.path.empty()) text += command_section(command, program);
  }
  return text + std::string(kEnd);
}

}  // namespace

Command completion_command(CommandParser parent, const std::string& program) {
  auto shell = std::make_shared<std::string>();
  auto output = std::make_shared<std::string>();
  const CommandParser app =
      parent.add_subcommand("completion", "Print a script that completes commands");
  app.group("");
  app.add_argument("SHELL TEXT", *shell, "bash or zsh").check(one_of({"bash", "zsh"}));
  app.add_option("-o,--output FILE", *output, "File to write");
  return {app, [parent, program, shell, output] {
            const auto write = *shell == "zsh" ? zsh_completion : bash_completion;
            return print_or_write(write(command_tree(parent), program), *output);
          }};
}

Command man_command(CommandParser parent, const std::string& program, const std::string& purpose) {
  auto output = std::make_shared<std::string>();
  const CommandParser app = parent.add_subcommand("man", "Print the manual page");
  app.group("");
  app.add_option("-o,--output FILE", *output, "File to write (.gz compresses)");
  return {app, [parent, program, purpose, output] {
            return print_or_write(man_page(command_tree(parent), program, purpose), *output);
          }};
}

}  // namespace perfmodel::cli
