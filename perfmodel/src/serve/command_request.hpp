#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "answers.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::serve {

/// A request for a command (see run_request) as an object with known members only.
Result<Json> read_command_request(std::string_view request);

/// The name of the command, split at spaces. Errors: none, or a command that is a program of its
/// own or talks to people.
Result<std::vector<std::string>> command_name_words(const Json& request);

/// The arguments as words of a command line; one that begins with a dash is a file: "./-x".
Result<std::vector<std::string>> argument_words(const Json& request);

/// How the command takes an option.
struct OptionForm {
  bool has_no_form = false;  ///< --no-NAME clears it
  char delimiter = '\0';     ///< between the values in one word; '\0': a word for each value
};

/// The option `key` as words of a command line; none for null.
Result<std::vector<std::string>> option_words(const std::string& key, const Json& value,
                                              const OptionForm& form);

/// JSON pointer to the option of the request that a message of the parser names first, or to
/// `other_named`, an option that the command has under another name (empty: none); empty: the
/// message names none.
std::string pointer_of_usage(const Json& request, const std::string& message,
                             std::string_view other_named = {});

}  // namespace perfmodel::serve
