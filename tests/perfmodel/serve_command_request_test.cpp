#include "serve/command_request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perfmodel::serve {
namespace command_request_test {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> option(const std::string& key, const Json& value,
                                const OptionForm& form = {}) {
  auto words = option_words(key, value, form);
  return words ? *words : std::vector<std::string>{to_string(words.error())};
}

TEST(CommandRequest, NamesWhatIsNoRequest) {
  EXPECT_EQ(read_command_request("{").error().code, ErrorCode::kSyntax);
  EXPECT_EQ(read_command_request("[]").error().message, "expected an object");
  EXPECT_EQ(read_command_request(R"({"command": "gpus", "flags": {}})").error().json_pointer,
            "/flags");
  EXPECT_EQ(read_command_request(R"({"command": 1})").error().json_pointer, "/command");
  EXPECT_EQ(read_command_request(R"({"command": "gpus", "arguments": {}})").error().message,
            "expected a list");
  EXPECT_TRUE(read_command_request(R"({"command": "gpus"})"));
}

TEST(CommandRequest, SplitsTheNameAndRefusesProgramsOfTheirOwn) {
  EXPECT_THAT(*command_name_words({{"command", " shard  rank "}}), ElementsAre("shard", "rank"));
  EXPECT_EQ(command_name_words({{"command", "serve"}}).error().message,
            "expected a command that answers within another program, found serve");
  EXPECT_EQ(command_name_words({{"command", ""}}).error().message,
            "expected a command that answers within another program, found none");
}

TEST(CommandRequest, ArgumentsAreFilesOrNumbersAndNeverFlags) {
  const auto words = argument_words({{"arguments", {"a.json", "-o", 3}}});
  EXPECT_THAT(*words, ElementsAre("a.json", "./-o", "3"));
  const auto refused = argument_words({{"arguments", {"a.json", "-"}}});
  EXPECT_EQ(refused.error().json_pointer, "/arguments/1");
}

TEST(CommandRequest, OptionsBecomeFlagsWithTheirValues) {
  EXPECT_THAT(option("keep_ops", true), ElementsAre("--keep-ops"));
  EXPECT_THAT(option("keep_ops", false), IsEmpty());
  EXPECT_THAT(option("tied", false, {.has_no_form = true}), ElementsAre("--no-tied"));
  EXPECT_THAT(option("tied", nullptr), IsEmpty());
  EXPECT_THAT(option("batch", {8, 16}), ElementsAre("--batch=8", "--batch=16"));
  EXPECT_THAT(option("batch", {8, 16}, {.delimiter = ','}), ElementsAre("--batch=8,16"));
  EXPECT_THAT(option("name", "-x"), ElementsAre("--name=-x"));
  EXPECT_EQ(option_words("a/b", {1, true}, {}).error().json_pointer, "/options/a~1b/1");
}

TEST(CommandRequest, FindsTheOptionThatAMessageNamesFirst) {
  const Json request = {{"options", {{"batch", 1}, {"batch_size", 2}, {"gpu", "x"}}}};
  EXPECT_EQ(pointer_of_usage(request, "--batch-size: expected a number"), "/options/batch_size");
  EXPECT_EQ(pointer_of_usage(request, "--gpu excludes --batch"), "/options/gpu");
  EXPECT_EQ(pointer_of_usage(request, "expected a graph"), "");
  EXPECT_EQ(pointer_of_usage(request, "--scale-host: expected more", "host_scale"),
            "/options/host_scale");
  EXPECT_EQ(pointer_of_usage(request, "--gpu excludes --batch", "host_scale"), "/options/gpu");
  EXPECT_EQ(pointer_of_usage(request, "expected a graph", "host_scale"), "");
}

}  // namespace command_request_test
}  // namespace perfmodel::serve
