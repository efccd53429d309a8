// perfmodel_ask from many threads at once, as Python asks: every answer is the one that a thread
// alone gets, and a search that somebody cancels ends.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "../scratch.hpp"
#include "perfmodel.h"

namespace {

struct Answer {
  perfmodel_status status = PERFMODEL_OK;
  std::string text;  // or the error
  bool operator==(const Answer&) const = default;
};

Answer ask(const std::string& request, const perfmodel_cancel* cancel = nullptr,
           std::int64_t timeout_ms = 0) {
  perfmodel_ask_options options = {};
  options.struct_size = sizeof options;
  options.cancel = cancel;
  options.timeout_ms = timeout_ms;
  perfmodel_error error = {};
  perfmodel_answer* answer = nullptr;
  const auto status =
      perfmodel_ask(request.data(), request.size(), &options, &answer, nullptr, &error);
  Answer made{status, status == PERFMODEL_OK ? perfmodel_answer_text(answer, nullptr)
                                             : static_cast<const char*>(error.message)};
  perfmodel_answer_free(answer);
  return made;
}

class AskThreads : public testing::Test {
 protected:
  AskThreads() {
    std::filesystem::create_directories(folder_);
    graph_ = (folder_ / "mlp.json").string();
    const Answer built =
        ask(R"({"command": "build mlp", "options": {"batch": 8, "output": ")" + graph_ + "\"}}");
    EXPECT_EQ(built.status, PERFMODEL_OK) << built.text;
  }
  ~AskThreads() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string of_graph(const std::string& command, const std::string& options) const {
    return R"({"command": ")" + command + R"(", "arguments": [")" + graph_ + R"("], "options": )" +
           options + "}";
  }

  std::vector<std::string> requests() const {
    return {
        R"({"command": "gemm", "arguments": [64, 64, 64], "options": {"gpu": "t4"}})",
        R"({"command": "gpus", "arguments": ["t4"]})",
        R"({"command": "layout eval", "arguments": ["gpt2"], "options":
            {"gpu": "a100-sxm-80gb", "world": 8, "global_batch": 16, "tp": [2]}})",
        R"({"command": "sync", "options": {"workers": "a:2:5000:200,b:1:9000",
            "scheme": ["bsp", "ssp"], "target_updates": 60}})",
        of_graph("predict", R"({"gpu": "t4", "models": "heuristic"})"),
        of_graph("memory", R"({"gpu": "t4"})"),
        of_graph("whatif", R"({"gpus": ["t4", "p4"], "batch": [4], "models": "heuristic"})"),
        R"({"command": "memory", "arguments": ["no/such.json"]})",
        R"({"command": "gemm", "options": {"no_such": 1}})",
    };
  }

 private:
  std::filesystem::path folder_ = perfmodel::test_support::scratch() / "ask_threads";
  std::string graph_;
};

TEST_F(AskThreads, AnswersAreThoseOfOneThread) {
  const std::vector<std::string> all = requests();
  std::vector<Answer> alone;
  for (const std::string& request : all) alone.push_back(ask(request));
  EXPECT_EQ(alone[0].status, PERFMODEL_OK) << alone[0].text;
  EXPECT_NE(alone.back().status, PERFMODEL_OK);
  constexpr std::size_t kThreads = 6;
  std::atomic<std::size_t> others = 0;
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::size_t i = 0; i < all.size(); ++i) {
        const std::size_t at = (i + 3 * thread) % all.size();
        if (ask(all[at]) != alone[at]) ++others;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(others, 0u);
}

TEST_F(AskThreads, ASearchEndsWhenAnotherThreadCancelsIt) {
  perfmodel_cancel* cancel = nullptr;
  perfmodel_error error = {};
  ASSERT_EQ(perfmodel_cancel_create(&cancel, &error), PERFMODEL_OK);
  Answer answer;
  std::thread asking([&] {
    answer = ask(R"({"command": "layout rank", "arguments": ["llama3-70b"], "options":
                     {"gpu": "h100-sxm-80gb", "world": 4096, "global_batch": 2048}})",
                 cancel);
  });
  perfmodel_cancel_request(cancel);
  asking.join();
  perfmodel_cancel_free(cancel);
  EXPECT_EQ(answer.status, PERFMODEL_ERROR_CANCELLED) << answer.text.substr(0, 200);
}

TEST_F(AskThreads, ARunThatWouldLastForHoursEndsInTime) {
  const Answer answer = ask(R"({"command": "sync", "options": {"workers": "a:2:5000:200,b:1:9000",
                                "scheme": ["asp"], "target_updates": 1000000000}})",
                            nullptr, 50);
  EXPECT_EQ(answer.status, PERFMODEL_ERROR_CANCELLED) << answer.text.substr(0, 200);
}

}  // namespace
