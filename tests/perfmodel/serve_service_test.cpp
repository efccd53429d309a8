#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "layout/layout_request.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/layout.hpp"
#include "rewrites/rewrite_options.hpp"
#include "serve/fair_queue.hpp"
#include "serve/latencies.hpp"
#include "serve/service.hpp"

namespace perfmodel::serve {
namespace serve_service_test {

using Json = nlohmann::json;
using testing::HasSubstr;

const Predictor& predictor() {
  static const Predictor loaded = *Predictor::load({.gpus = {"a100-sxm-40gb", "h100-sxm-80gb"}});
  return loaded;
}

class ServiceTest : public testing::Test {
 protected:
  Json ask(const std::string& line, const Caller& caller = {}) {
    const std::string answer = service_.answer(line, caller);
    EXPECT_EQ(answer.find('\n'), std::string::npos);
    return Json::parse(answer);
  }
  void expect_error(const std::string& line, const std::string& code, const std::string& message,
                    const Caller& caller = {}) {
    const Json answer = ask(line, caller);
    ASSERT_TRUE(answer.contains("error")) << line << " -> " << answer;
    EXPECT_EQ(answer["error"]["code"], code) << line;
    EXPECT_THAT(answer["error"]["message"].get<std::string>(), HasSubstr(message)) << line;
  }
  void build() {
    ASSERT_TRUE(ask(R"({"op": "build", "name": "d", "family": "dlrm"})").contains("result"));
  }

  Service service_{predictor(), {.max_graphs = 3, .max_graph_bytes = 64 << 20}};
};

TEST_F(ServiceTest, IdsComeBackAsTheyWere) {
  for (const char* id : {"7", "-1", "\"a\"", "\"\\u00e9\\\"\"", "null", "\"\""}) {
    const Json answer = ask("{\"op\": \"ping\", \"id\": " + std::string(id) + "}");
    EXPECT_EQ(answer["id"], Json::parse(id));
    EXPECT_EQ(answer["result"]["protocol"], kProtocolVersion);
  }
  EXPECT_TRUE(ask(R"({"op": "ping"})")["id"].is_null());
  // Known even if the rest is wrong, and wherever it is.
  EXPECT_EQ(ask(R"({"op": "fly", "x": [1, {}], "id": 9})")["id"], 9);
}

TEST_F(ServiceTest, SaysWhatIsWrong) {
  build();
  expect_error("", "bad_request", "expected a JSON object");
  expect_error("[]", "bad_request", "expected an object");
  expect_error("{", "bad_request", "expected a JSON object");
  expect_error(R"({"op": "ping"} 1)", "bad_request", "expected");
  expect_error(std::string("{\"op\": \"pi\0ng\"}", 15), "bad_request", "expected");
  expect_error("{\"op\": \"\xff\"}", "bad_request", "UTF-8");
  expect_error(std::string(100000, '['), "bad_request", "expected");
  expect_error("{}", "bad_request", "/op: expected an operation, found none");
  expect_error(R"({"op": "fly"})", "bad_request", "expected one of ping, gpus");
  expect_error(R"({"op": "ping", "op": "ping"})", "bad_request", "/op: expected one such key");
  expect_error(R"({"op": "ping", "gpu": "x"})", "bad_request", "/gpu: expected no such key");
  expect_error(R"({"op": "ping", "zip": 1})", "bad_request", "found \"zip\"");
  expect_error(R"({"op": "ping", "z\u001b\u202e": 1})", "bad_request", "found \"z??\"");
  expect_error(R"({"op": "predict", "graph": "a\u009b\u2028", "gpu": "h100-sxm-80gb"})",
               "unknown_name", "found \"a??\"");
  expect_error(R"({"op": "predict", "graph": "password=x", "gpu": "h100-sxm-80gb"})",
               "unknown_name", "found \"password=[masked]");
  expect_error(R"({"op": "ping", "id": []})", "bad_request", "/id: expected");
  expect_error(R"({"op": "predict", "graph": "d"})", "bad_request", "/gpu: expected one");
  expect_error(R"({"op": "predict", "graph": {}, "gpu": "x"})", "bad_request", "found an object");
  expect_error(R"({"op": "load", "name": "g"})", "bad_request", "expected either a file or");
  const auto predict = [](const std::string& more) {
    return R"({"op": "predict", "graph": "d", "gpu": "a100-sxm-40gb", )" + more + "}";
  };
  for (const char* batch : {"0", "-1", "1.5", "1e30", "\"8\"", "null", "9999999999999999999"}) {
    expect_error(predict("\"batch\": " + std::string(batch)), "bad_request", "/batch: expected");
  }
  expect_error(predict(R"("interference": 0)"), "bad_request", "/interference");
  expect_error(predict(R"("keep_ops": 1)"), "bad_request", "/keep_ops");
  expect_error(predict(R"("strategy": "ddp")"), "bad_request", "/world");
  expect_error(predict(R"("world": 8, "strategy": "zero")"), "bad_request", "ddp or fsdp");
  expect_error(predict(R"("world": 8, "stages": 0)"), "bad_request", "/stages: expected");
  expect_error(predict(R"("world": 8, "stages": 3)"), "impossible", "stages: expected a divisor");
  expect_error(predict(R"("world": 8, "strategy": "fsdp", "delay_allreduce": true)"), "impossible",
               "delay_allreduce: expected the strategy ddp, found fsdp");
  expect_error(predict(R"("topology": "moebius")"), "unknown_name", "moebius");
  expect_error(R"({"op": "predict", "graph": "d", "gpu": "abacus"})", "unknown_name", "abacus");
  expect_error(R"({"op": "predict", "graph": "e", "gpu": "h100"})", "unknown_name", "\"e\"");
  expect_error(R"({"op": "unload", "name": "e"})", "unknown_name", "\"e\"");
  expect_error(R"({"op": "build", "name": "e", "family": "dlrn"})", "unknown_name", "dlrm");
  expect_error(R"({"op": "build", "name": "e", "family": "gpt", "layers": 1000001})", "bad_request",
               "/layers");
  expect_error(R"({"op": "load", "name": "g", "graph": {"nodes": [7]}})", "format", "/nodes/0");
  EXPECT_TRUE(ask(R"({"op": "predict", "graph": "d", "gpu": "h100-sxm-80gb"})").contains("result"));
}

TEST_F(ServiceTest, RewritesComeBeforeThePrediction) {
  ASSERT_TRUE(
      ask(R"({"op": "build", "name": "g", "family": "gpt", "layers": 2})").contains("result"));
  const auto asked = [&](const std::string& more) {
    return ask(R"({"op": "predict", "graph": "g", "gpu": "h100-sxm-80gb")" + more + "}");
  };
  const auto step_us = [&](const std::string& more) {
    const Json answer = asked(more);
    return answer.contains("result") ? answer["result"]["e2e_us"].get<double>() : 0;
  };
  ModelRequest model{.family = "gpt", .layers = 2};
  const std::vector<NamedRewrite> rewrites = {rewrite_of("batch", "8").value(),
                                              rewrite_of("precision", "bf16").value(),
                                              rewrite_of("attention", "flash").value()};
  const auto made = apply_rewrites(build_model(model).value(), rewrites);
  const double wanted_us = predictor().predict(*made, "h100-sxm-80gb")->e2e_us;
  const std::string both = R"("precision": "bf16", "attention": "flash", "cuda_graphs": false)";
  EXPECT_EQ(step_us(R"(, "batch": 8, "rewrites": {)" + both + "}"), wanted_us);
  EXPECT_EQ(step_us(R"(, "rewrites": {"batch": 8, )" + both + "}"), wanted_us);
  const Json captured = asked(R"(, "rewrites": {"cuda_graphs": true})");
  EXPECT_LT(captured["result"]["cpu_us"], asked("")["result"]["cpu_us"]);

  const auto refused = [&](const std::string& text, const std::string& code,
                           const std::string& why) {
    expect_error(
        R"({"op": "predict", "graph": "g", "gpu": "h100-sxm-80gb", "rewrites": )" + text + "}",
        code, why);
  };
  refused(R"({"attention": "flash"})", "impossible", "--precision comes first");
  refused(R"(["--precision bf16"])", "bad_request", "/rewrites: expected an object");
  refused(R"({"colour": "red"})", "bad_request", "/rewrites/colour: expected a flag of rewrite");
  refused(R"({"precision": true})", "bad_request", "/rewrites/precision: expected fp32|tf32");
  refused(R"({"fuse_norms": "on"})", "bad_request", "/rewrites/fuse_norms: expected true or false");
  refused(R"({"precision": "fp99"})", "bad_request", "/rewrites/precision: ");
}

TEST_F(ServiceTest, CommandsAreRunByWhoOffersIt) {
  expect_error(R"({"op": "ask", "command": "gpus"})", "impossible", "expected a server with");
  std::vector<std::string> files;
  Json request;
  Result<CommandAnswer> answer = CommandAnswer{.document = "{\n \"a\": \"b\\nc\"\n}\n",
                                               .messages = {"m"},
                                               .error = {},
                                               .is_bad_request = false};
  const auto run = [&](const CommandQuestion& question) {
    for (const auto& file : std::filesystem::directory_iterator(question.folder)) {
      files.push_back(file.path().filename().string());
    }
    request = Json::parse(question.request);
    return answer;
  };
  Service service(predictor(), {.run_command = run});
  service.answer(R"({"op": "build", "name": "d", "family": "mlp"})", {});
  const auto ask = [&](const std::string& more) {
    const std::string line =
        service.answer(R"({"op": "ask", "command": "memory")" + more + "}", {});
    EXPECT_EQ(line.find('\n'), std::string::npos);
    return Json::parse(line);
  };
  Json made =
      ask(R"(, "arguments": ["d"], "files": {"t": "x", "u": {"v": 1}}, "options": {"g": 1})");
  EXPECT_EQ(made["result"]["document"]["a"], "b\nc");
  EXPECT_EQ(made["result"]["messages"][0], "m");
  EXPECT_THAT(files, testing::UnorderedElementsAre("d", "t", "u"));
  EXPECT_EQ(request["arguments"][0], "d");
  EXPECT_EQ(request["options"]["g"], 1);
  // Words that lead out of the folder; a graph that was asked for and not written; the command's
  // own error.
  for (const char* more :
       {R"(, "arguments": ["/etc/passwd"])", R"(, "options": {"gpu": "a/../../b"})",
        R"(, "files": {"../t": ""})", R"(, "name": "a/b")", R"(, "name": "n")"}) {
    EXPECT_EQ(ask(more)["error"]["code"], "impossible") << more;
  }
  answer->error = Error{.code = ErrorCode::kIo, .message = "no"};
  EXPECT_EQ(ask("")["error"]["code"], "io");
  answer->is_bad_request = true;
  EXPECT_EQ(ask("")["error"]["code"], "bad_request");
}

TEST_F(ServiceTest, AnswersAreThePredictorsToTheBit) {
  build();
  const auto graph = build_model({.family = "dlrm"});
  ASSERT_TRUE(graph);
  for (const std::int64_t batch : {512, 4096}) {
    const auto expected =
        predictor().predict(*graph, "a100-sxm-40gb", {.batch = batch, .keep_ops = true});
    const Json answer = ask(
        R"({"op": "predict", "graph": "d", "gpu": "A100-SXM-40GB", "keep_ops": true, "batch": )" +
        std::to_string(batch) + "}")["result"];
    EXPECT_EQ(answer["e2e_us"].get<double>(), expected->e2e_us);
    EXPECT_EQ(answer["samples_per_s"].get<double>(), expected->samples_per_s().value());
    EXPECT_EQ(answer["samples_per_s_per_gpu"], answer["samples_per_s"]);
    EXPECT_EQ(answer["memory"]["static_bytes"].get<double>(), expected->memory.static_bytes());
    EXPECT_EQ(answer["memory"]["device_bytes"].get<double>(), expected->memory.device_bytes);
    EXPECT_EQ(answer["gpu_active_us"].get<double>(), expected->gpu_active_us);
    EXPECT_EQ(answer["overheads_us"]["t4"].get<double>(),
              expected->terms_us[static_cast<std::size_t>(Term::kT4)]);
    EXPECT_EQ(answer["ops"].size(), expected->ops.size());
    EXPECT_EQ(answer["ops"][0]["name"], std::string(expected->ops[0].name));
  }
}

TEST_F(ServiceTest, ExplainsAndCounts) {
  build();
  const Json answer = ask(R"({"op": "explain", "graph": "d", "gpu": "h100-sxm-80gb"})")["result"];
  EXPECT_THAT(answer["explanation"]["text"].get<std::string>(), HasSubstr("One step takes"));
  EXPECT_FALSE(answer["explanation"]["path"].empty());
  EXPECT_FALSE(answer.contains("ops"));
  ask("junk");
  const Json stats = ask(R"({"op": "stats"})")["result"];
  EXPECT_EQ(stats["requests"], 4);
  EXPECT_EQ(stats["errors"], 1);
  EXPECT_EQ(stats["graphs"], 1);
  EXPECT_GT(stats["graph_bytes"], 10000);
  EXPECT_EQ(ask(R"({"op": "gpus"})")["result"]["gpus"],
            Json::parse(R"(["a100-sxm-40gb", "h100-sxm-80gb"])"));
}

std::string layout_line(const std::string& op, const std::string& more) {
  return "{\"op\": \"" + op +
         "\", \"gpu\": \"h100-sxm-80gb\", \"model\": \"gpt2\", \"global_batch\": 64, " + more + "}";
}

TEST_F(ServiceTest, LayoutsAreThePricersToTheBit) {
  const auto pricer = LayoutPricer::make(predictor(), {.gpu = "h100-sxm-80gb"}).value();
  const auto question = layout_question({.model = "gpt2", .global_batch = 64}).value();
  const auto layout = layout_of({.world = 8, .tp = 2, .micro_batch = 4, .zero = "1"}).value();
  const auto expected = pricer.predict(question.job, layout).value();
  const std::string line =
      layout_line("layout", R"("world": 8, "tp": 2, "micro_batch": 4, "zero": "1")");
  for (int i = 0; i < 2; ++i) {  // the second one is remembered
    const Json answer = ask(line)["result"];
    EXPECT_EQ(answer["predicted_step_ms"].get<double>(), expected.step_ms);
    EXPECT_EQ(answer["memory_gb"].get<double>(), expected.reserved_bytes / 1e9);
    EXPECT_EQ(answer["dp"], 4);
    EXPECT_EQ(answer["fits"], true);
  }
  const Json ranked =
      ask(layout_line("layout_rank", R"("world": 8, "micro_batch": 4, "top": 3)"))["result"];
  ASSERT_EQ(ranked["layouts"].size(), 3u);
  const auto ranking =
      rank_layouts(pricer, question.job, 8, {.micro_batch = {4}}, {.keep = 3}).value();
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ranked["layouts"][i]["predicted_step_ms"].get<double>(),
              ranking.best[i].prediction.step_ms);
    EXPECT_EQ(ranked["layouts"][i]["micro_batch"], 4);
  }
}

TEST_F(ServiceTest, SaysWhatIsWrongWithALayout) {
  expect_error(layout_line("layout", R"("world": 8, "tp": 3)"), "impossible", "world: expected");
  expect_error(layout_line("layout", R"("tp": 5)"), "impossible", "heads: expected a multiple");
  expect_error(layout_line("layout", R"("tp": 0)"), "bad_request", "/tp: expected");
  expect_error(layout_line("layout", R"("zero": "4")"), "unknown_name", "zero: expected one of");
  expect_error(layout_line("layout", R"("tied": 1)"), "bad_request", "/tied: expected true");
  expect_error(layout_line("layout", R"("dropout": 1)"), "bad_request", "/dropout");
  expect_error(layout_line("layout", R"("expert_imbalance": 101)"), "impossible", "0 to 100");
  expect_error(layout_line("layout", R"("expert_capacity": "2")"), "bad_request", "a number");
  expect_error(layout_line("layout", R"("context_balanced": 1)"), "bad_request", "true or false");
  expect_error(layout_line("layout", R"("overlap_experts": 1)"), "bad_request", "true or false");
  expect_error(layout_line("layout", R"("top": 3)"), "bad_request", "/top: expected no such key");
  expect_error(layout_line("layout_rank", R"("top": 3)"), "bad_request", "/world: expected one");
  expect_error(layout_line("layout_rank", R"("world": 7, "tp": 7)"), "impossible", "7 GPUs");
  expect_error(R"({"op": "layout", "gpu": "h100-sxm-80gb", "global_batch": 8})", "impossible",
               "expected a model or its sizes");
  expect_error(R"({"op": "layout", "gpu": "abacus", "global_batch": 8, "model": "gpt2"})",
               "unknown_name", "abacus");
  // No file is opened for whoever asks.
  for (const char* key : {"model", "topology", "software"}) {
    expect_error(R"({"op": "layout", "gpu": "h100-sxm-80gb", "global_batch": 8, )" +
                     std::string(key == std::string("model") ? "" : R"("model": "gpt2", )") + "\"" +
                     key + "\": \"/etc/passwd.json\"}",
                 "unknown_name", "expected");
  }
}

TEST_F(ServiceTest, ASearchNobodyWaitsForEnds) {
  std::stop_source gone;
  gone.request_stop();
  expect_error(layout_line("layout_rank", R"("world": 64)"), "cancelled", "",
               {.gone = gone.get_token()});
}

TEST_F(ServiceTest, GraphsAreBounded) {
  for (const char* name : {"a", "b", "c"}) {
    EXPECT_TRUE(ask(R"({"op": "build", "family": "mlp", "name": ")" + std::string(name) + "\"}")
                    .contains("result"));
  }
  expect_error(R"({"op": "build", "family": "mlp", "name": "d"})", "impossible", "at most 3");
  EXPECT_TRUE(ask(R"({"op": "build", "family": "mlp", "name": "c"})").contains("result"));
  EXPECT_TRUE(ask(R"({"op": "unload", "name": "a"})").contains("result"));
  EXPECT_TRUE(ask(R"({"op": "build", "family": "mlp", "name": "d"})").contains("result"));
  EXPECT_TRUE(ask(R"({"op": "unload", "name": "b"})").contains("result"));
  Service tight(predictor(), {.max_graph_bytes = 1000});
  EXPECT_THAT(tight.answer(R"({"op": "build", "family": "mlp", "name": "d"})", {}),
              HasSubstr("MiB"));
}

TEST_F(ServiceTest, FilesAreOpenedOnlyWhereTheyMay) {
  namespace fs = std::filesystem;
  std::string made = (fs::temp_directory_path() / "perfmodel_serve_XXXXXX").string();
  const fs::path folder = mkdtemp(made.data());
  fs::create_directories(folder / "allowed");
  for (const fs::path& file : {folder / "secret.json", folder / "allowed/graph.json"}) {
    std::ofstream(file) << R"({"nodes": []})";
  }
  fs::create_symlink(folder / "secret.json", folder / "allowed/link.json");
  const auto load = [](const std::string& file) {
    return R"({"op": "load", "name": "g", "file": ")" + file + "\"}";
  };
  const Caller below{.folder = folder / "allowed"};
  expect_error(load("graph.json"), "format", "expected nodes", below);  // was read
  expect_error(load((folder / "allowed/graph.json").string()), "format", "nodes", below);
  for (const std::string file : {"../secret.json", "link.json", "none.json", "/etc/passwd", "."}) {
    expect_error(load(file), "io", "found none", below);
  }
  expect_error(load((folder / "secret.json").string()), "io", "below the allowed folder", below);
  expect_error(load("graph.json"), "impossible", "opens no files");
  expect_error(load((folder / "secret.json").string()), "format", "nodes", {.any_file = true});
  fs::remove_all(folder);
}

// A graph that was made too late is not kept; a search ends.
TEST_F(ServiceTest, TimeIsLimited) {
  Service hasty(predictor(), {.timeout = std::chrono::milliseconds(1)});
  const auto code = [&](const std::string& line) {
    const Json answer = Json::parse(hasty.answer(line, {}));
    EXPECT_EQ(answer["id"], 1);
    return answer["error"].value("code", "");
  };
  EXPECT_EQ(code(R"({"id": 1, "op": "build", "name": "g", "family": "gpt", "layers": 60})"),
            "timeout");
  EXPECT_EQ(code(R"({"id": 1, "op": "predict", "graph": "g", "gpu": "h100-sxm-80gb"})"),
            "unknown_name");
  EXPECT_EQ(code(R"({"id": 1, "op": "layout_rank", "gpu": "h100-sxm-80gb", "model": "llama3-70b",)"
                 R"( "global_batch": 1024, "world": 512})"),
            "timeout");
}

TEST_F(ServiceTest, RefusalsAreRememberedForTheirGraphAlone) {
  build();
  const std::string line =
      R"({"op": "predict", "graph": "d", "gpu": "h100-sxm-80gb", "sequence": 128})";
  const Json first = ask(line)["error"];
  EXPECT_EQ(first["code"], "impossible");
  EXPECT_EQ(ask(line)["error"], first);
  EXPECT_EQ(ask(R"({"op": "stats"})")["result"]["refusals_repeated"], 1);
  build();  // another graph of that name
  EXPECT_EQ(ask(line)["error"], first);
  EXPECT_EQ(ask(R"({"op": "stats"})")["result"]["refusals_repeated"], 1);
}

TEST_F(ServiceTest, KnowsWhatTakesLong) {
  build();
  const auto costly = [&](const std::string& line) { return service_.is_costly(line); };
  EXPECT_TRUE(costly(R"({"op": "build", "name": "x", "family": "dlrm"})"));
  EXPECT_TRUE(costly(std::string(70'000, ' ')));
  EXPECT_FALSE(costly(R"({"op": "predict", "graph": "d", "gpu": "h100-sxm-80gb"})"));
  EXPECT_FALSE(costly(R"({"op": "build"})"));  // its answer is an error
  EXPECT_FALSE(costly("junk"));
  const Json health = ask(R"({"op": "health"})")["result"];
  EXPECT_EQ(health, Json({{"status", "ok"}, {"waiting", 0}, {"waiting_costly", 0}}));
  const Json stats = ask(R"({"op": "stats"})")["result"];
  EXPECT_EQ(stats["costly"]["requests"], 1);  // the build
  EXPECT_EQ(stats["quick"]["requests"], 1);   // health; this one is not answered yet
  EXPECT_GT(stats["resident_bytes"], 1'000'000);
}

TEST(FairQueue, OwnersTakeTurnsAndNoneHasAllThreads) {
  FairQueue<char, int> queue;
  for (int job = 1; job <= 3; ++job) queue.push('a', job);
  queue.push('b', 10);
  EXPECT_EQ(queue.size(), 4U);
  EXPECT_EQ(queue.pop(1), 1);
  EXPECT_EQ(queue.pop(1), 10);  // b came last and waits for one job of a
  EXPECT_FALSE(queue.ready(1));
  EXPECT_EQ(queue.pop(1), std::nullopt);  // both have one at work
  queue.finished('b');
  EXPECT_EQ(queue.pop(1), std::nullopt);
  queue.finished('a');
  EXPECT_EQ(queue.pop(1), 2);
  EXPECT_EQ(queue.pop(2), 3);
  EXPECT_EQ(queue.size(), 0U);
}

TEST(Latencies, QuantilesAreWithinAnEighth) {
  Latencies latencies;
  EXPECT_EQ(latencies.quantile_us(0.5), 0U);
  for (int us = 1; us <= 10'000; ++us) latencies.add(us);
  EXPECT_EQ(latencies.count(), 10'000U);
  EXPECT_EQ(latencies.most_us(), 10'000U);
  EXPECT_GE(latencies.quantile_us(0.5), 5'000U);
  EXPECT_LE(latencies.quantile_us(0.5), 5'000U * 9 / 8);
  EXPECT_GE(latencies.quantile_us(0.99), 9'900U);
  EXPECT_LE(latencies.quantile_us(0.99), 10'000U);
  latencies.add(1e300);  // a clock that jumped
  EXPECT_EQ(latencies.count(), 10'001U);
}

TEST_F(ServiceTest, NobodyWaits) {
  build();
  std::stop_source gone;
  gone.request_stop();
  expect_error(R"({"op": "predict", "graph": "d", "gpu": "h100-sxm-80gb"})", "cancelled", "",
               {.gone = gone.get_token()});
}

TEST_F(ServiceTest, ThreadsGetEqualAnswers) {
  build();
  const std::string line = R"({"op": "predict", "graph": "d", "gpu": "h100-sxm-80gb", "batch": 8})";
  const std::string expected = service_.answer(line, {});
  std::vector<std::jthread> threads;
  std::atomic<int> different = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 20; ++k) {
        if (i == 3) {  // others come and go meanwhile
          service_.answer(R"({"op": "build", "name": "e", "family": "mlp"})", {});
          service_.answer(R"({"op": "unload", "name": "e"})", {});
        } else {
          different += service_.answer(line, {}) != expected;
        }
      }
    });
  }
  threads.clear();
  EXPECT_EQ(different, 0);
}

}  // namespace serve_service_test
}  // namespace perfmodel::serve
