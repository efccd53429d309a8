#pragma once

#include <memory>
#include <string>

#include "base/anonymize.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// `--anonymize`: makes the anonymizer that the inputs of the command pass through.
inline Option add_anonymize(CommandParser app, std::shared_ptr<Anonymizer>& anonymizer) {
  return app.add_flag_callback(
      "--anonymize",
      [&anonymizer] { anonymizer = std::make_shared<Anonymizer>(Anonymizer::of_this_machine()); },
      "Pseudonyms for the names of users, hosts, addresses and mails in names, labels and files");
}

/// With pseudonyms if the command got `--anonymize`.
inline std::string with_pseudonyms(std::string text,
                                   const std::shared_ptr<Anonymizer>& anonymizer) {
  if (anonymizer) anonymizer->replace(text);
  return text;
}

}  // namespace perfmodel::cli
