#include "keep_inputs.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include "terminal/cli11.hpp"

namespace perfmodel::cli {
namespace {

constexpr std::array<std::string_view, 5> kOutputs = {"output", "timeline", "chakra", "plot",
                                                      "csv"};

bool is_output(const CLI::Option& option) {
  return std::ranges::any_of(kOutputs, [&](std::string_view name) {
    return std::ranges::find(option.get_lnames(), name) != option.get_lnames().end();
  });
}

void collect_options(const CLI::App& app, std::vector<const CLI::Option*>& given) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() > 0) given.push_back(option);
  }
  for (const CLI::App* command : app.get_subcommands()) collect_options(*command, given);
}

bool is_same_file(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return false;
  std::error_code failure;
  if (!std::filesystem::is_regular_file(b, failure)) return a == b;
  return std::filesystem::equivalent(a, b, failure) && !failure;
}

}  // namespace

Result<void> keep_inputs(const CLI::App& app) {
  std::vector<const CLI::Option*> given;
  collect_options(app, given);
  for (const CLI::Option* output : given) {
    if (!is_output(*output)) continue;
    const std::string file = output->results().front();
    for (const CLI::Option* other : given) {
      if (other == output) continue;
      for (const std::string& value : other->results()) {
        if (!is_same_file(file, value)) continue;
        return Unexpected{Error{
            .code = ErrorCode::kImpossible,
            .message =
                is_output(*other)
                    ? "expected another output for " + other->get_name() + ", found the same file"
                    : "expected an output other than the input, found the same file",
            .file = file}};
      }
    }
  }
  return {};
}

}  // namespace perfmodel::cli
