#include "man_page.hpp"

#include <fmt/format.h>

#include "perfmodel/version.hpp"

namespace perfmodel::cli {
namespace {

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

}  // namespace

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

}  // namespace perfmodel::cli
