// Standard input, broken and hostile files, and secrets in recordings, as users of perfpredict see
// them.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>

#include "base/plain_text.hpp"
#include "program.hpp"

namespace broken_input_cli_test {

using namespace perfmodel::test_support;

const std::string kTrace = "kineto_plain_2023.json", kGraph = "et_plain_2023.json";

Words predict(const std::string& graph) { return {"predict", graph, "--gpu", "v100-sxm2-16gb"}; }

// ---- standard input ----------------------------------------------------------------------------

TEST(StandardInput, StandsForAnyGraphOrTrace) {
  const std::string trace = "cat '" + sample(kTrace) + "' |",
                    graph = "cat '" + sample(kGraph) + "' |";
  const Json traced = Json::parse(output_of({"trace", "-", "--json"}, trace));
  EXPECT_GT(traced["events"], 10);
  EXPECT_EQ(Json::parse(output_of({"trace", "-", "--json"}, "gzip -c '" + sample(kTrace) + "' |")),
            traced);
  EXPECT_GT(Json::parse(output_of({"replay", "-", "--json"}, trace))["iterations"].size(), 0u);
  EXPECT_TRUE(Json::parse(output_of({"overheads", "-", "--json"}, trace)).contains("t1"));
  Words words = predict("-");
  words.push_back("--json");
  const double step = Json::parse(output_of(words, graph))["e2e_us"];
  EXPECT_GT(step, 0);
  const std::string made = scratch_file("rewritten.json");
  output_of({"rewrite", "-", "--batch", "8", "-o", made}, "cat '" + sample(kGraph) + "' |");
}

TEST(StandardInput, IsToldInErrors) {
  expect_error({"trace", "-"}, 1, "-:1:1: expected JSON, found an empty file", "printf '' |");
  expect_error({"trace", "-"}, 1, "-:1:12: /a: expected a value, found the end of the file",
               "printf '{\"a\": [1, 2' |");
  expect_error({"replay", "-", "-"}, 1, "a second time", "printf '' |");
}

// ---- salvage -----------------------------------------------------------------------------------

TEST(SalvageFlag, SaysWhatWasLeftOutInEveryCommand) {
  std::string trace = read(sample(kTrace)), graph = read(sample(kGraph));
  trace.insert(trace.find("{\"ph\"", trace.size() / 2), "{\"ph\" oops, ");
  graph.insert(graph.find("{\"", graph.find('}', graph.size() / 2)), "{\"id\": 7, \"name\": \"lo");
  const std::string broken_trace = written("broken_trace.json", trace);
  const std::string broken_graph = written("broken_graph.json", graph);
  for (const Words& words : {Words{"trace", broken_trace},
                             {"replay", broken_trace},
                             {"overheads", broken_trace},
                             predict(broken_graph)}) {
    expect_error(words, 1, "expected");
    Words salvaging = words;
    salvaging.insert(salvaging.end(), {"--salvage", "--json"});
    const Json document = Json::parse(output_of(salvaging));
    const bool said = std::ranges::any_of(document["warnings"], [](const Json& warning) {
      return warning.get<std::string>().find(" or other stretches of text were left out") !=
             std::string::npos;
    });
    EXPECT_TRUE(said) << shown(words) << document["warnings"];
  }
}

// ---- limits ------------------------------------------------------------------------------------

TEST(LimitFlag, RaisesWhatItsErrorsName) {
  const std::string deep =
      written("deep.json", "[{\"ph\":\"X\",\"name\":\"a\",\"args\":" + std::string(200, '[') +
                               std::string(200, ']') + "}]");
  expect_error({"trace", deep}, 1, "(limit nesting; --limit nesting=N raises it)");
  output_of({"trace", deep, "--limit", "nesting=300"});
  output_of({"trace", "--limit", "nesting=300", "--limit", "elements=5", deep});
  expect_error({"trace", deep, "--limit", "nesting=300", "--limit", "kept-bytes=1"}, 1,
               "kept-bytes");
  expect_error({"trace", deep, "--limit", "height=3"}, 2,
               "NAME one of nesting, depth, string-bytes,");
  expect_error({"trace", deep, "--limit", "nesting=5000"}, 2, "from 1 to 1000");
}

TEST(Hostile, DeepAndLongInputsEndWithAnError) {
  expect_error({"trace", written("open.json", std::string(1'000'000, '['))}, 1, "limit nesting");
  expect_error({"trace", written("string.json", "[{\"a\": \"" + std::string(1'000'000, 'x'))}, 1,
               "expected the rest of an element, found the end of the file");
  expect_error({"shard", written("tables.json", "[" + std::string(1'000'000, '[')), "--world", "2"},
               1, "");
}

std::string chained_node(int id) {
  return "{\"id\":" + std::to_string(id) + ",\"name\":\"" + (id % 2 ? "aten::mm" : "label") +
         "\",\"parent\":" + std::to_string(std::max(id - 1, 1)) + "}";
}

// Each node the parent of the next.
std::string chain(int nodes) {
  std::string graph = R"({"schema": "1.0.1", "nodes": [)";
  for (int id = 1; id <= nodes; ++id) {
    graph += chained_node(id);
    graph += id < nodes ? ",\n" : "]}";
  }
  return written("chain_" + std::to_string(nodes) + ".json", graph);
}

TEST(Hostile, AChainOfParentsNeedsNoStack) {
  const std::string made = scratch_file("chain_out.json");
  const std::string endless = chain(200'000), longest = chain(4000);
  for (Words words : {predict(endless), Words{"rewrite", endless, "--batch", "2", "-o", made}}) {
    expect_error(words, 1, "expected at most 1000 nodes within nodes, found more around id 1001");
    words.insert(words.end(), {"--limit", "depth=4000"});
    expect_error(words, 1, "expected at most 4000 nodes within nodes");
  }
  for (Words words :
       {predict(longest), Words{"rewrite", longest, "--checkpoint", "2", "-o", made}}) {
    words.insert(words.end(), {"--limit", "depth=4000"});
    const Outcome outcome = run(words);
    EXPECT_TRUE(outcome.status == 0 || outcome.status == 1) << outcome.status << outcome.err;
  }
}

// ---- secrets -----------------------------------------------------------------------------------

// Wherever an output may come from, a word that no output may hold.
constexpr const char* kSecret = "hunter2Xq";

std::string planted(const std::string& label) { return label + " DB_PASSWORD=" + kSecret; }

void expect_no_secret(const Words& words, int status, const Words& files = {}) {
  SCOPED_TRACE(shown(words));
  const Outcome outcome = run(words);
  EXPECT_EQ(outcome.status, status) << outcome.err;
  EXPECT_EQ(outcome.out.find(kSecret), std::string::npos);
  EXPECT_EQ(outcome.err.find(kSecret), std::string::npos) << outcome.err;
  for (const std::string& file : files) {
    const std::string text = read(file);
    EXPECT_FALSE(text.empty()) << file;
    EXPECT_EQ(text.find(kSecret), std::string::npos) << file;
  }
}

std::string planted_trace() {
  Json trace = Json::parse(read(sample(kTrace)));
  trace["traceName"] = planted("name");
  trace["deviceProperties"][0]["name"] = planted("GPU");
  trace["distributedInfo"]["pg_config"] = planted("group");
  for (Json& event : trace["traceEvents"]) {
    if (event.value("ph", "") == "M") event["args"]["name"] = planted("thread");
    if (event.value("ph", "") != "X") continue;
    event["args"]["environment"] = planted("PATH=/bin HOME=/root");
    const std::string category = event.value("cat", "");
    const std::string name = event["name"];
    if (category == "kernel" || (category == "cpu_op" && !name.starts_with("aten::mm"))) {
      event["name"] = planted(name);
    }
  }
  trace["traceEvents"].push_back({{"ph", "M"},
                                  {"name", "thread_name"},
                                  {"pid", 1},
                                  {"tid", 1},
                                  {"args", {{"name", planted("main")}}}});
  return written("secret_trace.json", trace.dump());
}

std::string planted_graph() {
  Json graph = Json::parse(read(sample(kGraph)));
  graph["note"] = planted("note");
  for (Json& node : graph["nodes"]) {
    const std::string name = node["name"];
    if (name.starts_with("aten::") && !name.starts_with("aten::mm")) node["name"] = planted(name);
    node["op_schema"] = planted("schema");
  }
  return written("secret_graph.json", graph.dump());
}

TEST(Secrets, OfTracesReachNoOutput) {
  const std::string trace = planted_trace();
  const std::string timeline = scratch_file("replayed.json");
  expect_no_secret({"trace", trace}, 0);
  expect_no_secret({"trace", trace, "--json"}, 0);
  expect_no_secret({"replay", trace, "--timeline", timeline}, 0, {timeline});
  expect_no_secret({"replay", trace, "--json"}, 0);
  expect_no_secret({"overheads", trace, "--json"}, 0);
  EXPECT_NE(
      run({"trace", trace, "--json"}).out.find("look like a secret and are shown as [masked]"),
      std::string::npos);
}

TEST(Secrets, OfGraphsReachNoOutput) {
  const std::string graph = planted_graph();
  const std::string timeline = scratch_file("predicted.json");
  const std::string rewritten = scratch_file("secret_rewritten.json");
  Words words = predict(graph);
  words.insert(words.end(), {"--timeline", timeline});
  expect_no_secret(words, 0, {timeline});
  words = predict(graph);
  words.push_back("--json");
  expect_no_secret(words, 0);
  expect_no_secret({"rewrite", graph, "--scale-kernel", "aten::mm=2", "-o", rewritten}, 0,
                   {rewritten});
}

TEST(Secrets, InBrokenFilesReachNoError) {
  const std::string secret = planted("x");
  const std::string event = R"({"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"dur":1,"ts":)";
  for (const std::string& text :
       {"[" + event + "\"" + secret + "\"}]", "{\"" + secret + "\": [1, 2",
        "{\"" + secret + "\" 1}", "{\"nodes\":[{\"" + secret + "\":tru}]}",
        "{\"nodes\":[{\"id\":1,\"name\":\"" + secret + "\",}]}",
        "{\"nodes\":[{\"id\":\"" + secret + "\"}]}", "[" + event + secret + "}]"}) {
    const std::string file = written("secret_broken.json", text);
    for (Words words : {Words{"trace", file}, predict(file)}) {
      expect_no_secret(words, 1);
      words.push_back("--salvage");
      const Outcome outcome = run(words);
      EXPECT_EQ((outcome.out + outcome.err).find(kSecret), std::string::npos) << text;
    }
  }
  expect_no_secret(
      {"shard", written("tables.csv", "rows,dim,pooling\n" + secret + ",4,1\n"), "--world", "2"},
      1);
  expect_no_secret({"kernels", written("kernels.csv",
                                       "device,op,m,n,k,dtype\nt4,gemm," + secret + ",2,3,fp16\n")},
                   1);
}

// A GPU file in which one value is another.
std::string gpu_file(const std::string& key, const std::string& value) {
  const fs::path known = fs::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus" / "t4.json";
  Json gpu = Json::parse(read(known));
  gpu[key] = value;
  return written("own_gpu.json", gpu.dump());
}

TEST(Secrets, OfGpuFilesReachNoError) {
  expect_error({"gpus", gpu_file("vendor", "password=hunter2")}, 1,
               "own_gpu.json:1:");  // the place stays
  const std::string secret = planted("x");
  expect_no_secret({"gpus", gpu_file("vendor", secret)}, 1);
  expect_no_secret({"gpus", gpu_file(secret, "1")}, 1);
}

// ---- what a terminal would obey ----------------------------------------------------------------

// Erases the screen, sets a title, forges a line, turns the direction of writing; one byte is none.
const std::string kNasty =
    "\x1b[2J\x1b]0;t\x07\nok\xc2\x9b"
    "2J\xe2\x80\xae\xe2\x80\xa8\xe2\x80\x8b\xef\xbb\xbf";

void expect_plain(const Words& words, int status) {
  SCOPED_TRACE(shown(words));
  const Outcome outcome = run(words);
  EXPECT_EQ(outcome.status, status) << outcome.err;
  if (status != 0) {
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  }
  std::string lines = outcome.out + outcome.err;
  EXPECT_EQ(lines.find("\nok"), std::string::npos) << "a forged line";
  std::erase(lines, '\n');
  EXPECT_TRUE(perfmodel::is_plain_text(lines)) << lines;
}

TEST(Nasty, ArgumentsAndFileNames) {
  expect_plain({"--" + kNasty}, 2);
  expect_plain({"predict", "--gpu=" + kNasty, "--" + kNasty}, 2);
  expect_plain({"predict", kNasty, "--gpu", "t4"}, 1);
  expect_plain({"gpus", kNasty + "\xff"}, 1);
  expect_plain({"kernels", written("k" + kNasty + ".csv", "m\n1\n"), "--gpu", "t4"}, 1);
  const std::string graph = written("g" + kNasty + ".json", read(sample(kGraph)));
  expect_plain(predict(graph), 0);
  expect_error({"predict", "é日.json", "--gpu", "t4"}, 1, "é日.json: ");  // plain text stays
}

TEST(Nasty, TextOfFilesInErrors) {
  for (const std::string& nasty : {kNasty, std::string("a\xff\x80\xc2")}) {
    expect_plain({"kernels", written("n.csv", "device,op\n\"" + nasty + "\",gemm\n")}, 1);
    expect_plain({"kernels", written("n.csv", "device," + nasty + "\n1\n")}, 1);
    expect_plain({"kernels", written("n.csv", "op,m,n,k,dtype\ngemm,\"" + nasty + "\",1,1,fp16\n"),
                  "--gpu", "t4"},
                 1);
    expect_plain({"shard", written("n.csv", "rows,dim,pooling\n\"" + nasty + "\",4,1\n")}, 1);
  }
  expect_plain({"gpus", gpu_file("vendor", kNasty)}, 1);
  expect_plain({"gpus", gpu_file(kNasty, "1")}, 1);
}

TEST(Nasty, NamesInReports) {
  expect_plain({"gpus", gpu_file("title", kNasty)}, 0);
  expect_plain({"gpus", gpu_file("notes", kNasty)}, 0);
  Json graph = Json::parse(read(sample(kGraph)));
  for (Json& node : graph["nodes"]) {
    const std::string name = node["name"];
    if (name.starts_with("aten::") && !name.starts_with("aten::mm")) node["name"] = name + kNasty;
  }
  expect_plain(predict(written("nasty_graph.json", graph.dump())), 0);
  Json trace = Json::parse(read(sample(kTrace)));
  for (Json& event : trace["traceEvents"]) {
    if (event.value("cat", "") == "kernel") event["name"] = "k" + kNasty;
  }
  const std::string traced = written("nasty_trace.json", trace.dump());
  expect_plain({"trace", traced}, 0);
  expect_plain({"replay", traced}, 0);
  const Json study = {
      {"schema", "perfmodel-sharding-study"},
      {"version", 1},
      {"name", "n" + kNasty},
      {"gpu", "a100-sxm-80gb"},
      {"world", 2},
      {"batch_per_rank", 64},
      {"tables", {{{"name", "t" + kNasty}, {"rows", 1000}, {"dim", 64}, {"pooling", 1}}}}};
  expect_plain({"shard", written("nasty_study.json", study.dump()), "--time-budget", "0.1"}, 0);
}

// The table of prices on standard output has them as they are, so there are none.
TEST(Nasty, IdsOfKernelsAreRefused) {
  for (const char* id : {"a\x1b[2J", "a\nb", "a\xc2\x9b", "a\xff"}) {
    const std::string file =
        written("ids.csv", "op,m,n,k,dtype,id\ngemm,1,1,1,fp16,\"" + std::string(id) + "\"\n");
    expect_error({"kernels", file, "--gpu", "t4"}, 1,
                 "ids.csv:2:17: id: expected one line of plain text, found \"a?");
  }
  const std::string fine = written("ids.csv", "op,m,n,k,dtype,id\ngemm,1,1,1,fp16,\"é,\"\"日\"\n");
  EXPECT_NE(run({"kernels", fine, "--gpu", "t4"}).out.find("\"é,\"\"日\","), std::string::npos);
}

// ---- files that other files name ---------------------------------------------------------------

TEST(NamesInFiles, OpenNoOtherFile) {
  const std::string gpu = gpu_file("name", "t4"), pipe = scratch_file("pipe.json");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);  // who opens it waits for good
  for (const std::string& path : {gpu, pipe}) {
    const std::string table =
        written("paths.csv", "op,m,n,k,dtype,device\ngemm,1,1,1,fp16," + path + "\n");
    expect_error({"kernels", table}, 1, "paths.csv:2:17: device: expected the name of a known GPU");
    Json study = {{"schema", "perfmodel-sharding-study"},
                  {"version", 1},
                  {"world", 2},
                  {"batch_per_rank", 64},
                  {"tables", {{{"name", "t"}, {"rows", 1000}, {"dim", 64}, {"pooling", 1}}}}};
    study["gpu"] = path;
    expect_error({"shard", written("paths.json", study.dump())}, 1,
                 "paths.json: /gpu: expected the name of a known GPU");
    study["gpu"] = "t4";
    study["topology"] = path;
    expect_error({"shard", written("paths.json", study.dump())}, 1,
                 "paths.json: /topology: expected");
  }
  EXPECT_EQ(run({"kernels", written("own.csv", "op,m,n,k,dtype\ngemm,1,1,1,fp16\n"), "--gpu", gpu})
                .status,
            0);  // a flag may
}

TEST(NamesInFiles, OfGpusLeadToNoOtherFolder) {
  for (const char* name : {"../../other/x", "a/b", "T4", "a b", "", "..", ".t4", "t4\n"}) {
    expect_error(
        {"gpus", gpu_file("name", name)}, 1,
        "/name: expected a name of lower-case letters, digits, dashes, dots and underscores");
  }
  EXPECT_EQ(run({"gpus", gpu_file("name", "my_t4-16.gb")}).status, 0);
}

}  // namespace broken_input_cli_test
