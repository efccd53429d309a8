#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>

#include "program.hpp"

namespace perfmodel::test_support {
namespace serve_test {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

constexpr const char* kBuild = R"({"id":"b","op":"build","name":"d","family":"dlrm"})";
constexpr const char* kAsk = R"({"id":1,"op":"predict","graph":"d","gpu":"h100-sxm-80gb"})";

std::vector<Json> lines_of(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
  return lines;
}

Outcome serve(const std::string& input, Words more = {}) {
  Words arguments = {"serve", "--gpus", "h100-sxm-80gb"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run(arguments, "", "<'" + written("requests", input) + "'");
}

TEST(ServeOnInput, AnswersInOrderAndEnds) {
  std::string input = std::string(kBuild) + "\n";
  for (int i = 0; i < 200; ++i) {
    input += i % 10 == 3 ? "{broken\n"
                         : "{\"id\":" + std::to_string(i) +
                               ",\"op\":\"predict\",\"graph\":\"d\",\"gpu\":\"h100-sxm-80gb\"}\n";
  }
  input += R"({"id":"last","op":"ping"})";  // no newline at the end
  const Outcome outcome = serve(input);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, "");
  const auto answers = lines_of(outcome.out);
  ASSERT_EQ(answers.size(), 202U);
  for (int i = 0; i < 200; ++i) {
    const Json& answer = answers[static_cast<std::size_t>(i) + 1];
    if (i % 10 == 3) {
      EXPECT_TRUE(answer["id"].is_null() && answer.contains("error"));
    } else {
      EXPECT_EQ(answer["id"], i);
      EXPECT_EQ(answer["result"], answers[1]["result"]);
    }
  }
  EXPECT_EQ(answers.back()["id"], "last");
}

TEST(ServeOnInput, AnswersAreThoseOfPredict) {
  const fs::path graph = scratch() / "served.json";
  ASSERT_EQ(run({"build", "dlrm", "--preset", "default", "-o", graph.string()}).status, 0);
  const Outcome outcome =
      serve(R"({"op":"load","name":"d","file":")" + graph.string() + "\"}\n" + kAsk + "\n");
  const Json served = lines_of(outcome.out).at(1)["result"];
  const Outcome command = run({"predict", graph.string(), "--gpu", "h100-sxm-80gb", "--json"});
  const Json predicted = Json::parse(command.out);
  EXPECT_NEAR(served["e2e_us"].get<double>(), predicted["e2e_us"].get<double>(), 0.0005);
  for (const char* key : {"e2e_low_us", "e2e_high_us", "energy_j"}) {
    EXPECT_NEAR(served[key].get<double>(), predicted[key].get<double>(), 0.0005) << key;
  }
  EXPECT_NEAR(served["gpu_active_us"].get<double>(), predicted["gpu_active_us"].get<double>(),
              0.0005);
}

TEST(ServeOnInput, LongLinesAreSkipped) {
  const std::string longest = R"({"op":"ping","id":")" + std::string(600, 'x') + "\"}";
  const Outcome outcome =
      serve(longest + "\n{\"id\":2,\"op\":\"ping\"}\n" + std::string(5 << 20, 'y') +
                "\n{\"id\":3,\"op\":\"ping\"}\n" + std::string(1000, 'z'),
            {"--max-request", "500"});
  EXPECT_EQ(outcome.status, 0);
  const auto answers = lines_of(outcome.out);
  ASSERT_EQ(answers.size(), 5U);
  for (const std::size_t i : {0, 2, 4}) EXPECT_EQ(answers[i]["error"]["code"], "too_large");
  EXPECT_EQ(answers[1]["id"], 2);
  EXPECT_EQ(answers[3]["id"], 3);
}

TEST(ServeOnInput, NoInputIsNoError) {
  const Outcome outcome = serve("");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, "");
}

TEST(ServeOnInput, AFullDiskIsAnError) {
  const Outcome outcome = run({"serve", "--gpus", "h100-sxm-80gb"}, "",
                              "<'" + written("requests", "{\"op\":\"ping\"}\n") + "' >/dev/full");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("expected a writable standard output"));
}

TEST(ServeCommand, SaysWhatIsWrong) {
  EXPECT_EQ(serve("", {"--threads", "-1"}).status, 2);
  EXPECT_EQ(serve("", {"--allow-files", "/"}).status, 2);  // needs a socket
  Outcome outcome = run({"serve", "--gpus", "abacus"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("abacus"));
  outcome = run({"serve", "--gpus", "h100", "--socket", "/nonexistent/folder/socket"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("/nonexistent/folder/socket: expected a folder"));
  outcome = run({"serve", "--gpus", "h100", "--socket", std::string(200, 's')});
  EXPECT_THAT(outcome.err, HasSubstr("expected a path of at most 107 bytes"));
  outcome = run({"serve", "--gpus", "h100", "--socket", written("requests", "precious")});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("expected a socket or nothing"));
  EXPECT_EQ(read(scratch() / "requests"), "precious");
}

// A server in the background. Its socket is there when the constructor returns.
class Background {
 public:
  explicit Background(Words more = {}) : socket_(scratch_file("socket")) {
    Words arguments = {PERFPREDICT_PROGRAM, "serve",    "--gpus",
                       "h100-sxm-80gb",     "--socket", socket_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    process_ = fork();
    if (process_ == 0) {
      std::vector<char*> words;
      for (std::string& argument : arguments) words.push_back(argument.data());
      words.push_back(nullptr);
      execv(words[0], words.data());
      _exit(127);
    }
    struct stat found {};
    for (int i = 0; i < 600 && connected() < 0; ++i) std::this_thread::sleep_for(50ms);
    EXPECT_EQ(stat(socket_.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0600U);
  }
  ~Background() {
    if (process_ > 0) signal_and_wait(SIGKILL);
  }

  // A descriptor, -1 if there is no listener.
  int connected() const {
    const int made = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, socket_.c_str());
    if (connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      return made;
    }
    close(made);
    return -1;
  }

  // All answers to `input`.
  std::string ask(const std::string& input) const {
    const int client = connected();
    send(client, input.data(), input.size(), MSG_NOSIGNAL);
    shutdown(client, SHUT_WR);
    std::string answers(1 << 20, '\0');
    std::size_t size = 0;
    for (ssize_t got = 1; got > 0; size += static_cast<std::size_t>(std::max<ssize_t>(got, 0))) {
      got = recv(client, answers.data() + size, answers.size() - size, 0);
    }
    close(client);
    answers.resize(size);
    return answers;
  }

  void signal(int number) const { kill(process_, number); }
  // The exit status, negative for a signal.
  int wait() {
    int status = 0;
    waitpid(std::exchange(process_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int signal_and_wait(int number) {
    signal(number);
    return wait();
  }
  bool socket_is_there() const { return fs::exists(socket_); }
  const std::string& socket() const { return socket_; }

 private:
  std::string socket_;
  pid_t process_ = -1;
};

TEST(ServeOnSocket, ServesManyAndStopsInOrder) {
  Background server({"--threads", "2"});
  EXPECT_EQ(lines_of(server.ask(std::string(kBuild) + "\n")).at(0)["id"], "b");
  const std::string one = server.ask(std::string(kAsk) + "\n");
  EXPECT_THAT(one, HasSubstr("\"e2e_us\""));
  std::vector<std::jthread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      for (int k = 0; k < 10; ++k) EXPECT_EQ(server.ask(std::string(kAsk) + "\n"), one);
    });
  }
  clients.clear();
  const int idle = server.connected();  // does not hold it up
  EXPECT_EQ(server.signal_and_wait(SIGTERM), 0);
  EXPECT_FALSE(server.socket_is_there());
  close(idle);
}

TEST(ServeOnSocket, WhatWasAskedIsAnsweredBeforeTheEnd) {
  Background server;
  server.ask(std::string(kBuild) + "\n");
  const int client = server.connected();
  const std::string question = std::string(kAsk) + "\n";
  for (int i = 0; i < 20; ++i) send(client, question.data(), question.size(), 0);
  std::this_thread::sleep_for(100ms);  // so that they have been read
  server.signal(SIGINT);
  std::string answers;
  char buffer[4096];
  for (ssize_t got = 0; (got = recv(client, buffer, sizeof buffer, 0)) > 0;) {
    answers.append(buffer, static_cast<std::size_t>(got));
  }
  EXPECT_EQ(lines_of(answers).size(), 20U);
  EXPECT_EQ(server.wait(), 0);
  close(client);
}

TEST(ServeOnSocket, AStaleSocketIsReplacedALivingOneIsNot) {
  {
    Background killed;
    EXPECT_EQ(killed.signal_and_wait(SIGKILL), -SIGKILL);
    EXPECT_TRUE(killed.socket_is_there());
  }
  Background server;
  const Outcome second = run({"serve", "--gpus", "h100", "--socket", server.socket()});
  EXPECT_EQ(second.status, 1);
  EXPECT_THAT(second.err, HasSubstr("found a living server"));
  EXPECT_THAT(server.ask("{\"op\":\"ping\"}\n"), HasSubstr("protocol"));
  EXPECT_EQ(server.signal_and_wait(SIGTERM), 0);
}

TEST(ServeOnSocket, FilesNeedAFolder) {
  const fs::path folder = scratch() / "graphs";
  fs::create_directories(folder);
  ASSERT_EQ(run({"build", "mlp", "-o", (folder / "mlp.json").string()}).status, 0);
  const std::string load = "{\"op\":\"load\",\"name\":\"m\",\"file\":\"mlp.json\"}\n";
  {
    Background closed;
    EXPECT_THAT(closed.ask(load), HasSubstr("opens no files"));
  }
  Background open({"--allow-files", folder.string()});
  EXPECT_THAT(open.ask(load), HasSubstr("\"nodes\""));
}

TEST(ServeOnSocket, ClientsAreLimited) {
  Background server({"--max-clients", "2"});
  std::this_thread::sleep_for(100ms);  // the constructor's own connection is gone
  const int first = server.connected(), second = server.connected();
  EXPECT_THAT(server.ask(""), HasSubstr("busy"));
  close(first);
  close(second);
  std::this_thread::sleep_for(100ms);
  EXPECT_THAT(server.ask("{\"op\":\"ping\"}\n"), HasSubstr("protocol"));
}

// Long requests are ended, building a graph too, and no part of them is kept.
TEST(ServeOnSocket, TimeIsLimited) {
  Background server({"--timeout-ms", "1"});
  const auto answers = lines_of(server.ask(
      "{\"op\":\"build\",\"name\":\"g\",\"family\":\"gpt\",\"layers\":100}\n"
      "{\"op\":\"predict\",\"graph\":\"g\",\"gpu\":\"h100\"}\n"
      "{\"op\":\"layout_rank\",\"gpu\":\"h100\",\"model\":\"llama3-70b\",\"global_batch\":1024,"
      "\"world\":512}\n"
      "{\"op\":\"ping\"}\n"));
  ASSERT_EQ(answers.size(), 4U);
  EXPECT_EQ(answers[0]["error"]["code"], "timeout");
  EXPECT_EQ(answers[1]["error"]["code"], "unknown_name");
  EXPECT_EQ(answers[2]["error"]["code"], "timeout");
  EXPECT_TRUE(answers[3].contains("result"));
}

TEST(ServeOnSocket, ASecondSignalEndsAtOnce) {
  Background server;
  server.ask("{\"op\":\"build\",\"name\":\"g\",\"family\":\"gpt\",\"layers\":100}\n");
  const int client = server.connected();
  std::string questions;
  for (int i = 0; i < 32; ++i) {
    questions += "{\"op\":\"explain\",\"graph\":\"g\",\"gpu\":\"h100\"}\n";
  }
  send(client, questions.data(), questions.size(), 0);
  std::this_thread::sleep_for(50ms);
  server.signal(SIGTERM);
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(server.signal_and_wait(SIGTERM), 1);
  EXPECT_FALSE(server.socket_is_there());
  close(client);
}

}  // namespace serve_test
}  // namespace perfmodel::test_support
