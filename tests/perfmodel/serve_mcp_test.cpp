// Messages of the Model Context Protocol.
#include "serve/mcp.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "serve/request_fields.hpp"

namespace perfmodel::serve {
namespace serve_mcp_test {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

class McpTest : public testing::Test {
 protected:
  Json ask(const std::string& message) { return Json::parse(answer_mcp(service_, message)); }
  Json call(const std::string& tool, const Json& arguments) {
    return ask(Json{{"jsonrpc", "2.0"},
                    {"id", 1},
                    {"method", "tools/call"},
                    {"params", {{"name", tool}, {"arguments", arguments}}}}
                   .dump());
  }
  int code(const std::string& message) { return ask(message)["error"]["code"].get<int>(); }

  Service service_{*Predictor::load({.gpus = {"h100-sxm-80gb"}}), {}};
};

TEST_F(McpTest, TheVersionOfTheClientIsSpokenIfItIsKnown) {
  const auto version = [&](const std::string& asked) {
    return ask(
        R"({"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":")" + asked +
        R"(","capabilities":{},"clientInfo":{"name":"t","version":"1"}}})")["result"]
                                                                           ["protocolVersion"];
  };
  EXPECT_EQ(version("2024-11-05"), "2024-11-05");
  EXPECT_EQ(version("1999-01-01"), "2025-06-18");
  EXPECT_EQ(ask(R"({"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":3}})")
                ["result"]["protocolVersion"],
            "2025-06-18");
}

TEST_F(McpTest, ErrorsHaveTheCodesOfJsonRpc) {
  EXPECT_EQ(code("{"), -32700);
  EXPECT_EQ(code("3"), -32600);
  EXPECT_EQ(code("[]"), -32600);
  EXPECT_EQ(code(R"({"id":1,"method":"ping"})"), -32600);
  EXPECT_EQ(code(R"({"jsonrpc":"2.0","id":null,"method":"ping"})"), -32600);
  EXPECT_EQ(code(R"({"jsonrpc":"2.0","id":1,"method":"resources/list"})"), -32601);
  EXPECT_EQ(code(R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}})"), -32602);
  EXPECT_EQ(code(R"({"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"fly"}})"),
            -32602);
  EXPECT_EQ(code(R"({"jsonrpc":"2.0","id":1,"method":"ping","params":[1]})"), -32602);
}

TEST_F(McpTest, NotificationsAndAnswersGetNone) {
  EXPECT_EQ(answer_mcp(service_, R"({"jsonrpc":"2.0","method":"notifications/initialized"})"), "");
  EXPECT_EQ(answer_mcp(service_, R"({"jsonrpc":"2.0","id":5,"result":{}})"), "");
  EXPECT_EQ(answer_mcp(service_, R"([{"jsonrpc":"2.0","method":"notifications/x"}])"), "");
}

TEST_F(McpTest, ABatchGetsABatch) {
  const Json answers = ask(R"([{"jsonrpc":"2.0","id":"a","method":"ping"},{"jsonrpc":"2.0"}])");
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0]["id"], "a");
  EXPECT_EQ(answers[1]["error"]["code"], -32600);
}

TEST_F(McpTest, ToolsAreTheOperationsWithSchemasOfTheirFields) {
  const Json tools = ask(R"({"jsonrpc":"2.0","id":1,"method":"tools/list"})")["result"]["tools"];
  std::size_t shown = 0;
  for (const RequestOp& op : request_ops()) shown += !op.help.empty();
  ASSERT_EQ(tools.size(), shown);
  for (const Json& tool : tools) {
    for (const auto& [key, schema] : tool["inputSchema"]["properties"].items()) {
      const std::string name = tool["name"].get<std::string>() + " " + key;
      EXPECT_FALSE(schema.value("description", "").empty()) << name;
      EXPECT_TRUE(schema.contains("type")) << name;
    }
    for (const Json& needed : tool["inputSchema"]["required"]) {
      EXPECT_TRUE(tool["inputSchema"]["properties"].contains(needed.get<std::string>()));
    }
  }
}

TEST_F(McpTest, AnswersAreShortWithUnitsRangesAndEvidence) {
  ASSERT_EQ(call("build", {{"name", "d"}, {"family", "dlrm"}})["result"]["isError"], false);
  const Json result = call("predict", {{"graph", "d"}, {"gpu", "h100-sxm-80gb"}})["result"];
  const auto text = result["content"][0]["text"].get<std::string>();
  EXPECT_THAT(text, HasSubstr("ms per step on h100-sxm-80gb (in nine of ten cases"));
  EXPECT_THAT(text, HasSubstr("Evidence: "));
  EXPECT_THAT(text, HasSubstr("With activations: memory "));
  EXPECT_GT(result["structuredContent"]["e2e_us"].get<double>(), 0);
  const Json job = call("duration", {{"graph", "d"}, {"worlds", {1, 8}}, {"samples", 1e9}});
  EXPECT_EQ(job["result"]["structuredContent"]["rows"].size(), 2U);
  EXPECT_THAT(job["result"]["content"][0]["text"].get<std::string>(),
              StartsWith("1 x h100-sxm-80gb: "));
}

TEST_F(McpTest, KnownStepsAreTheSameAtOtherLengthsAndForgottenWithTheirGraph) {
  const auto row = [&](double samples) {
    return call("duration",
                {{"graph", "d"}, {"samples", samples}})["result"]["structuredContent"]["rows"][0];
  };
  call("build", {{"name", "d"}, {"family", "dlrm"}, {"batch", 2048}});
  const Json first = row(2048e3), again = row(4096e3);
  EXPECT_EQ(first["step_us"], again["step_us"]);
  EXPECT_EQ(first["steps"], 1000);
  EXPECT_EQ(again["steps"], 2000);
  call("build", {{"name", "d"}, {"family", "dlrm"}, {"batch", 4096}});
  EXPECT_EQ(row(4096e3)["steps"], 1000);
}

TEST_F(McpTest, AStepThatDoesNotFitIsNoneThatDoes) {
  call("build", {{"name", "g"}, {"family", "gpt"}, {"preset", "gpt2"}, {"batch", 64}});
  const Json result = call("predict", {{"graph", "g"}, {"gpu", "h100-sxm-80gb"}})["result"];
  EXPECT_EQ(result["structuredContent"]["memory"]["fits"], false);
  EXPECT_THAT(result["content"][0]["text"].get<std::string>(), HasSubstr("GiB, does not fit."));
}

TEST_F(McpTest, AToolThatFailsSaysWhy) {
  const Json result = call("predict", {{"graph", "x"}, {"gpu", "h100-sxm-80gb"}})["result"];
  EXPECT_EQ(result["isError"], true);
  EXPECT_THAT(result["content"][0]["text"].get<std::string>(), StartsWith("unknown_name: "));
  EXPECT_EQ(call("predict", {{"graph", 3}})["result"]["isError"], true);
  EXPECT_EQ(call("duration", {{"graph", "x"}, {"worlds", "8"}})["result"]["isError"], true);
}

}  // namespace serve_mcp_test
}  // namespace perfmodel::serve
