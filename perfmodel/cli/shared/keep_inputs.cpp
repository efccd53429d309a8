#include "keep_inputs.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include "terminal/command_parser.hpp"

namespace perfmodel::cli {
namespace {

constexpr std::array<std::string_view, 5> kOutputs = {"output", "timeline", "chakra", "plot",
                                                      "csv"};

bool is_output(Option option) {
  const std::vector<std::string> names = option.long_names();
  return std::ranges::any_of(kOutputs, [&](std::string_view name) {
    return std::ranges::find(names, name) != names.end();
  });
}

void collect_options(CommandParser app, std::vector<Option>& given) {
  for (const Option option : app.options()) {
    if (option.count() > 0) given.push_back(option);
  }
  for (const CommandParser command : app.parsed_subcommands()) collect_options(command, given);
}

bool is_same_file(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return false;
  std::error_code failure;
  if (!std::filesystem::is_regular_file(b, failure)) return a == b;
  return std::filesystem::equivalent(a, b, failure) && !failure;
}

}  // namespace

Result<void> keep_inputs(CommandParser app) {
  std::vector<Option> given;
  collect_options(app, given);
  for (const Option output : given) {
    if (!is_output(output)) continue;
    const std::string file = output.values().front();
    for (const Option other : given) {
      if (other == output) continue;
      for (const std::string& value : other.values()) {
        if (!is_same_file(file, value)) continue;
        return Unexpected{Error{
            .code = ErrorCode::kImpossible,
            .message = is_output(other)
                           ? "expected another output for " + other.name() + ", found the same file"
                           : "expected an output other than the input, found the same file",
            .file = file}};
      }
    }
  }
  return {};
}

}  // namespace perfmodel::cli
