#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// A command line that answers with the command `path` ("layout eval"), without the program's name.
/// Empty if there is none.
std::string example_of(std::string_view path);

/// Puts examples into the help of every command, and one example per command, by question, into the
/// program's.
void add_examples(const CommandParser& program);

/// Says in the program's own words what people write in other programs: "help trace" is "trace
/// --help", "version" is "--version".
std::vector<std::string> in_own_words(std::vector<std::string> words);

/// Names the flag or command to write in the place of an unknown one: "--precision bf16". Empty:
/// none is known.
std::string instead_of(std::string_view word);

}  // namespace perfmodel::cli
