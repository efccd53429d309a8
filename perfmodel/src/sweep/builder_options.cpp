#include "builder_options.hpp"

#include "files/json_position.hpp"

namespace perfmodel::sweep {

std::optional<std::string> scalar_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  return std::nullopt;
}

std::vector<std::pair<std::string, std::string>> builder_options(const Json& json,
                                                                 const std::string& pointer,
                                                                 std::optional<Error>& error) {
  std::vector<std::pair<std::string, std::string>> options;
  for (const auto& [key, value] : json.items()) {
    const auto text = scalar_text(value);
    if (!text) {
      if (!error) {
        error = Error{.message = "expected a text, a number, true or false, found " + found(value),
                      .json_pointer = pointer + "/" + json_token(key)};
      }
      break;
    }
    options.emplace_back(key, *text);
  }
  return options;
}

}  // namespace perfmodel::sweep
