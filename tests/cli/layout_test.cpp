// perfpredict layout, as its users call it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "program.hpp"

namespace perfmodel::test_support {
namespace layout_test {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// A model whose layers are priced in milliseconds.
Words layout(const std::string& command, const Words& more = {}) {
  Words words = {"layout",         command, "--gpu",          "h100-sxm-80gb",
                 "--layers",       "8",     "--hidden",       "1024",
                 "--heads",        "8",     "--feed-forward", "4096",
                 "--vocabulary",   "32000", "--sequence",     "1024",
                 "--global-batch", "32"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

void expect_refused(const Words& words, const std::string& message) {
  expect_error(words, 1, message);
}

TEST(LayoutCommand, RanksWhatFits) {
  const Json json = json_of(layout("rank", {"--world", "8", "--micro-batch", "1,2"}));
  ASSERT_EQ(json["layouts"].size(), 10u);
  double before = 0;
  for (const Json& one : json["layouts"]) {
    EXPECT_GE(one["predicted_step_ms"].get<double>(), before);
    before = one["predicted_step_ms"];
    EXPECT_EQ(one["dp"].get<int>() * one["tp"].get<int>() * one["pp"].get<int>(), 8);
    EXPECT_TRUE(one["fits"].get<bool>());
    for (const char* key : {"low_ms", "high_ms", "tokens_per_s_per_gpu", "mfu", "memory_gb",
                            "bubble_share", "exposed_comm_share", "limit"}) {
      EXPECT_TRUE(one.contains(key)) << key;
    }
  }
  // `rank` is what `layout` alone does, and --dp keeps to what it names.
  const Json two = json_of(layout("rank", {"--world", "8", "--dp", "2"}));
  for (const Json& one : two["layouts"]) EXPECT_EQ(one["dp"], 2);
}

TEST(LayoutCommand, SaysWhatARunTakes) {
  const Words run = {"--world", "8", "--tokens", "10G", "--usd-per-gpu-hour", "2"};
  const Json json = json_of(layout("rank", run));
  const double step_ms = json["layouts"][0]["predicted_step_ms"];
  const double steps = std::ceil(10e9 / (32 * 1024));
  EXPECT_EQ(json["run"]["steps"], steps);
  const double hours = steps * step_ms / 3.6e6 * 8;
  EXPECT_NEAR(json["run"]["gpu_hours"]["expected"].get<double>(), hours, 1e-4 * hours);
  EXPECT_NEAR(json["run"]["usd"]["expected"].get<double>(), 2 * hours, 2e-4 * hours);
  EXPECT_THAT(output_of(layout("rank", run)), HasSubstr("MWh at most"));
  expect_refused(layout("rank", {"--world", "8", "--deadline", "2d"}),
                 "--deadline: expected --tokens or --samples of the run too, found none");
}

TEST(LayoutCommand, PacksSequences) {
  const std::string lengths = scratch_file("lengths.txt");
  std::ofstream(lengths) << "256 3\n512 1\n";
  const Words words = {"--world", "8", "--dp", "8", "--software", "fsdp"};
  Words packed = words;
  packed.insert(packed.end(), {"--lengths", lengths});
  const Json of_whole = json_of(layout("eval", words)), whole = of_whole["layouts"][0];
  const Json of_pieces = json_of(layout("eval", packed)), pieces = of_pieces["layouts"][0];
  // The same peak, of which `mfu` is the share.
  const auto peak = [](const Json& json) {
    const Json& one = json["layouts"][0];
    return json["flop_per_token"].get<double>() * one["tokens_per_s_per_gpu"].get<double>() /
           one["mfu"].get<double>();
  };
  EXPECT_LT(of_pieces["flop_per_token"], of_whole["flop_per_token"]);
  EXPECT_NEAR(peak(of_pieces), peak(of_whole), 1e-4 * peak(of_whole));
  EXPECT_EQ(whole["attention_share"], 1.0);
  EXPECT_LT(pieces["attention_share"], 0.5);
  EXPECT_LT(pieces["terms_ms"]["compute"], whole["terms_ms"]["compute"]);
  EXPECT_THAT(run(layout("eval", packed)).out, HasSubstr("on the slowest rank"));
  packed.back() = "nowhere.txt";
  expect_refused(layout("eval", packed), "nowhere.txt: lengths: expected a file of lengths");
}

TEST(LayoutCommand, FindsTheFewestGpusForADeadline) {
  const Json node = json_of(layout("rank", {"--world", "8", "--tokens", "10G"}));
  const double deadline = node["run"]["days"]["expected"].get<double>() * 0.9;
  const Json json =
      json_of(layout("rank", {"--tokens", "10G", "--deadline", fmt::format("{:.6f}d", deadline)}));
  const Json& tried = json["tried"];
  ASSERT_GE(tried.size(), 2u);
  for (std::size_t i = 0; i < tried.size(); ++i) {
    EXPECT_EQ(tried[i]["meets_deadline"].get<bool>(), i + 1 == tried.size()) << i;
  }
  EXPECT_EQ(tried.back()["gpus"], json["gpus"]);
  EXPECT_LE(json["run"]["days"]["expected"].get<double>(), deadline);
}

// The tables that people see: ten layouts at most, what the first consists of, and less memory.
TEST(LayoutCommand, PrintsItsRanking) {
  const std::string text = output_of(layout("rank", {"--world", "8"}));
  expect_narrow(text);
  const Json best = json_of(layout("rank", {"--world", "8"}))["layouts"][0];
  for (const std::string& part :
       {fmt::format("\n  {:.1f} ms per step (", best["predicted_step_ms"].get<double>()),
        fmt::format("MFU {:.1f} %\n  dp {} ", 100 * best["mfu"].get<double>(),
                    best["dp"].get<int>()),
        std::string("machine   8 x NVIDIA H100 80GB HBM3 (SXM5), hgx-h100"),
        std::string("job       32 sequences of 1024 tokens per step, bf16, flash attention"),
        std::string("\n  10  "), std::string("\n  Less memory for more time"),
        std::string("(chosen by layout)")}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("\n  11  ")));
}

TEST(LayoutCommand, PrintsTheDifferenceOfTwo) {
  const Words two = layout("compare", {"--world", "8", "--layout", "micro_batch=4,zero=1",
                                       "--layout", "tp=2,micro_batch=4"});
  const std::string text = output_of(two);
  expect_narrow(text);
  const Json layouts = json_of(two)["layouts"];
  const double first = layouts[0]["predicted_step_ms"], second = layouts[1]["predicted_step_ms"];
  EXPECT_THAT(text, HasSubstr(fmt::format("The second takes {:+.1f} % of the first's time and ",
                                          100 * (second / first - 1))));
  EXPECT_THAT(text, HasSubstr("\n  first   dp 8 micro-batch 4 ZeRO-1\n"));
  EXPECT_THAT(text, HasSubstr("\n  second  dp 4 tp 2 micro-batch 4\n"));
  // Half of the weights each; a layout without tensor parallelism has none of its traffic.
  EXPECT_THAT(text, ContainsRegex("\n  weights  +0\\.4 +0\\.2 +-0\\.2\n"));
  EXPECT_THAT(text, ContainsRegex("\n  tp traffic +0\\.00 +([0-9.]+) +\\+[0-9.]+\n"));
}

TEST(LayoutCommand, EvaluatesOne) {
  const Json json = json_of(layout("eval", {"--dp", "2", "--tp", "2", "--pp", "2", "--zero", "1"}));
  ASSERT_EQ(json["layouts"].size(), 1u);
  const Json& one = json["layouts"][0];
  double sum = 0;
  for (const auto& [name, ms] : one["terms_ms"].items()) sum += ms.get<double>();
  EXPECT_NEAR(sum, one["predicted_step_ms"].get<double>(), 1e-4 * sum);
  const Outcome text = run(layout("eval", {"--world", "8", "--tp", "2"}));
  EXPECT_EQ(text.status, 0);
  EXPECT_THAT(text.out,
              HasSubstr("attention by cudnn (chosen by layout)"));  // a default that is said
  EXPECT_THAT(text.out, Not(HasSubstr("Warnings")));
  EXPECT_THAT(text.out, HasSubstr("dp 4 tp 2 micro-batch 1"));
}

TEST(LayoutCommand, ExportsWhatReplaysAsPredicted) {
  const fs::path prefix = scratch() / "exported";
  const Json json =
      json_of(layout("export", {"--world", "8", "--tp", "2", "--pp", "2", "--every-rank", "-o",
                                prefix.string(), "--timeline", scratch_file("timeline.json")}));
  EXPECT_EQ(json["exported"]["ranks"], 8);
  Words words = {"replay"};
  for (int rank = 0; rank < 8; ++rank) {
    words.push_back(prefix.string() + "." + std::to_string(rank) + ".et");
  }
  const Json replayed = json_of(words);
  const double predicted_us = json["layouts"][0]["predicted_step_ms"].get<double>() * 1e3;
  for (const Json& iteration : replayed["iterations"]) {
    EXPECT_NEAR(iteration["replayed_us"].get<double>(), predicted_us, 0.01 * predicted_us);
  }
  const Json timeline = Json::parse(read(scratch() / "timeline.json"), nullptr, false);
  EXPECT_GT(timeline["traceEvents"].size(), 100u);
  EXPECT_TRUE(fs::exists(prefix.string() + ".groups.json"));
  // One file per stage.
  const Json stages =
      json_of(layout("export", {"--world", "8", "--pp", "4", "-o", scratch_file("stages")}));
  EXPECT_EQ(stages["exported"]["ranks"], 4);
  EXPECT_EQ(stages["exported"]["ranks_per_file"], 2);
}

TEST(LayoutCommand, SaysWhatIsImpossible) {
  expect_refused(layout("rank"), "expected --world");
  expect_refused(layout("eval", {"--world", "8", "--tp", "3"}), "world: expected GPUs that dp N");
  expect_refused(layout("eval", {"--world", "8", "--dp", "3"}), "world: expected GPUs that dp 3");
  expect_refused(layout("eval", {"--tp", "16"}), "heads: expected a multiple of tp = 16, found 8");
  expect_refused(layout("eval", {"--tp", "1,2"}), "--tp: expected one value");
  expect_refused(layout("eval", {"--zero", "4"}), "zero: expected one of 0, none, 1, 2, 3");
  expect_refused(layout("eval", {"--software", "megatorn"}), "expected a framework");
  expect_refused({"layout", "eval", "--gpu", "h100-sxm-80gb", "--global-batch", "8"},
                 "expected a model or its sizes");
  expect_refused({"layout", "eval", "llama3-9b", "--gpu", "h100-sxm-80gb", "--global-batch", "8"},
                 "llama3-8b");
  expect_refused({"layout", "rank", "llama3-405b", "--gpu", "h100-sxm-80gb", "--world", "8",
                  "--global-batch", "8", "--offload", "none"},
                 "no layout of 8 GPUs fits: the least memory found is");
  // A node without a network.
  Json alone = Json::parse(read(fs::path(PERFMODEL_SOURCE_DIR) / "data/topologies/hgx-h100.json"));
  alone["nic"] = nullptr;
  alone["default_for"] = Json::array();
  const std::string file = scratch_file("hgx-h100-alone.json");
  std::ofstream(file) << alone;
  expect_refused(layout("eval", {"--world", "16", "--topology", file}),
                 "world: expected at most the 8 GPUs of a");
  EXPECT_EQ(run(layout("eval", {"--world", "8", "--topology", file})).status, 0);
  // Wider types would be priced in its place.
  expect_refused({"layout", "eval", "gpt2", "--gpu", "v100-sxm2-32gb", "--global-batch", "8"},
                 "precision: expected a type that v100-sxm2-32gb has units for (fp16, fp32), found "
                 "bf16");
}

TEST(LayoutCommand, NamesFieldsThatItDoesNotKnow) {
  const fs::path folder = scratch() / "odd-model";
  fs::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"model_type": "llama", "hidden_size": 1024,
    "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 4096,
    "vocab_size": 32000, "max_position_embeddings": 1024, "mixture_of_depths": 3, "zebra": 1})";
  const Outcome outcome =
      run({"layout", "eval", folder.string(), "--gpu", "h100-sxm-80gb", "--global-batch", "8"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("mixture_of_depths, zebra"));
}

// --- eval --table ------------------------------------------------------------------------------

constexpr const char* kHead =
    "layers,hidden,heads,kv_heads,feed_forward,gated,vocabulary,tied,sequence,global_batch,gpus,dp,"
    "tp,pp,vp,cp,ep,zero,micro_batch,recompute,sequence_parallel,precision";

// Rows as maps from column to cell.
std::vector<std::map<std::string, std::string>> priced(const std::string& table,
                                                       std::string* complaint = nullptr) {
  const fs::path in = scratch() / "layouts.csv", out = scratch() / "priced.csv";
  std::ofstream(in) << table;
  const Outcome outcome =
      run({"layout", "eval", "--table", in.string(), "--gpu", "h100-sxm-80gb", "-o", out.string()});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  if (complaint) *complaint = outcome.err;
  std::vector<std::map<std::string, std::string>> rows;
  std::istringstream lines(read(out));
  std::vector<std::string> head;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> cells(1);
    bool quoted = false;
    for (const char c : line) {
      if (c == '"')
        quoted = !quoted;
      else if (c == ',' && !quoted)
        cells.emplace_back();
      else
        cells.back() += c;
    }
    if (head.empty()) {
      head = cells;
      continue;
    }
    EXPECT_EQ(cells.size(), head.size()) << line;
    auto& row = rows.emplace_back();
    for (std::size_t i = 0; i < std::min(head.size(), cells.size()); ++i) row[head[i]] = cells[i];
  }
  return rows;
}

TEST(LayoutTable, AddsWhatItPromises) {
  const auto rows = priced(std::string("run,") + kHead +
                           "\na,8,1024,8,8,4096,1,32000,0,1024,32,8,2,2,2,1,1,1,1,2,none,1,bf16\n");
  ASSERT_EQ(rows.size(), 1u);
  const auto& row = rows[0];
  EXPECT_EQ(row.at("run"), "a");
  EXPECT_EQ(row.at("error"), "");
  EXPECT_EQ(row.at("fits"), "1");
  for (const char* key : {"predicted_step_ms", "low_ms", "high_ms", "tokens_per_s_per_gpu", "mfu",
                          "memory_gb", "allocated_gb", "bubble_share", "exposed_comm_share"}) {
    EXPECT_GT(std::stod(row.at(key)), 0) << key;
  }
  EXPECT_LT(std::stod(row.at("mfu")), 1);
  EXPECT_LE(std::stod(row.at("allocated_gb")), std::stod(row.at("memory_gb")));
  EXPECT_NE(row.at("limit"), "");
  // The row equals the command's answer for its layout, run by the program whose H100 runs are
  // nearest.
  const Json json = json_of(layout("eval", {"--world", "8", "--tp", "2", "--pp", "2", "--zero", "1",
                                            "--micro-batch", "2", "--software", "nanotron"}));
  EXPECT_NEAR(std::stod(row.at("predicted_step_ms")),
              json["layouts"][0]["predicted_step_ms"].get<double>(), 1e-3);
}

TEST(LayoutTable, EmptyCellsMeanOneNoneAndBf16) {
  const auto rows = priced(std::string(kHead) +
                           "\n8,1024,8,,4096,,32000,,1024,32,,,,,,,,,,,,\n"
                           "8,1024,8,8,4096,1,32000,1,1024,32,1,1,1,1,1,1,1,0,1,none,1,bf16\n");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("error"), "");
  EXPECT_EQ(rows[0].at("predicted_step_ms"), rows[1].at("predicted_step_ms"));
  EXPECT_EQ(rows[0].at("memory_gb"), rows[1].at("memory_gb"));
}

TEST(LayoutTable, MissingColumnsMeanTheSameAndFlagsAreNamed) {
  std::string complaint;
  const auto rows = priced(
      "layers,hidden,heads,feed_forward,vocabulary,sequence,global_batch\n"
      "8,1024,8,4096,32000,1024,32\n",
      &complaint);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].at("error"), "");
  EXPECT_THAT(complaint, HasSubstr("no column gated, tied, sequence_parallel: taken as 1"));
  EXPECT_THAT(complaint, HasSubstr("taken are the costs of nanotron (1 rows)"));
}

TEST(LayoutTable, ReadsHowContextAndExpertsAreShared) {
  const std::string sizes = "\nmixtral-8x7b,32768,16,nemo,8,2,8,";
  const auto rows =
      priced("model,sequence,global_batch,software,dp,cp,ep,context_balanced,overlap_experts" +
             sizes + "," + sizes + "1,0" + sizes + "0,0" + sizes + "1,1" + sizes + "2,\n");
  ASSERT_EQ(rows.size(), 5u);
  std::vector<double> ms;
  for (std::size_t i = 0; i < 4; ++i) ms.push_back(std::stod(rows[i].at("predicted_step_ms")));
  EXPECT_GT(ms[2], ms[1]);  // the others wait for the rank with the late tokens
  EXPECT_LT(ms[3], ms[1]);
  EXPECT_LE(ms[0], ms[1]);
  EXPECT_THAT(rows[4].at("error"), HasSubstr("context_balanced: expected 0 or 1"));
}

TEST(LayoutTable, RowsThatCannotBePricedSayWhy) {
  const std::string sizes = "8,1024,8,8,4096,1,32000,0,1024,32,";
  const auto rows = priced(std::string(kHead) + "\n" +                 //
                           sizes + "8,,3,,,,,,,,,\n" +                 // does not make up 8 GPUs
                           sizes + "8,8,2,1,1,1,1,0,1,none,1,bf16\n"   // 16 GPUs, not 8
                           + sizes + ",1,1,1,1,3,1,0,1,none,1,bf16\n"  // 1,024 tokens among 3
                           + sizes + ",1,1,1,1,1,1,9,1,none,1,bf16\n"  // no such ZeRO
                           + sizes + ",x,1,1,1,1,1,0,1,none,1,bf16\n"  // no number
                           + "8,1024,,,4096,1,32000,0,1024,32,8,,,,,,,,,,,\n"           // no heads
                           + "80,8192,64,8,28672,1,128256,0,8192,32,8,,8,,,,,,,,,\n");  // too large
  ASSERT_EQ(rows.size(), 7u);
  const char* const reasons[] = {"gpus: world: expected GPUs",
                                 "gpus: world: expected GPUs",
                                 "sequence: expected a multiple of 2 cp = 6",
                                 "zero: expected one of",
                                 "dp: expected a whole number",
                                 "heads: expected a whole number"};
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_THAT(rows[i].at("error"), HasSubstr(reasons[i])) << i;
    EXPECT_EQ(rows[i].at("predicted_step_ms"), "");
  }
  EXPECT_EQ(rows[6].at("error"), "");  // keeps its time
  EXPECT_EQ(rows[6].at("fits"), "0");
  EXPECT_GT(std::stod(rows[6].at("predicted_step_ms")), 0);
}

TEST(LayoutTable, FlagsOfOneLayoutAreNotIgnored) {
  std::ofstream(scratch() / "layouts.csv") << kHead << "\n";
  const std::string table = scratch_file("layouts.csv");
  expect_refused({"layout", "eval", "--table", table, "--gpu", "h100-sxm-80gb", "--tp", "2"},
                 "found --tp with --table");
  expect_refused({"layout", "eval", "gpt2", "--table", table, "--gpu", "h100-sxm-80gb"},
                 "expected a MODEL or --table, found both");
  expect_refused({"layout", "eval", "--table", table}, "expected --gpu or a column gpu");
}

/// A table of steps of the model of `layout`, as long as predicted times `factor`.
std::string steps_table(const std::string& name, const std::string& model, double factor) {
  std::string text = (model.empty() ? ""
                                    : "layers,hidden,heads,feed_forward,vocabulary,sequence,"
                                      "global_batch,") +
                     std::string("dp,tp,micro_batch,step_ms\n");
  for (const int tp : {1, 2, 4}) {
    const Json one = json_of(
        layout("eval", {"--world", "8", "--tp", std::to_string(tp), "--software", "megatron"}));
    const double ms = one["layouts"][0]["predicted_step_ms"].get<double>() * factor;
    text += model + std::to_string(8 / tp) + "," + std::to_string(tp) + ",1," + std::to_string(ms) +
            "\n";
  }
  const fs::path file = scratch() / name;
  std::ofstream(file) << text;
  return file.string();
}

double step_of(const Words& more) {
  Words all = {"--world", "8", "--tp", "2", "--micro-batch", "2", "--software", "megatron"};
  all.insert(all.end(), more.begin(), more.end());
  return json_of(layout("eval", all))["layouts"][0]["predicted_step_ms"].get<double>();
}

TEST(LayoutMeasured, CalibratesByATableAndByTheFileThatItWrites) {
  const std::string table = steps_table("steps.csv", "", 1.2);
  // Three steps of one microbatch each cannot tell the host's share from the kernels'.
  EXPECT_NEAR(step_of({"--measured", table}) / step_of({}), 1.2, 0.06);
  const std::string machine = scratch_file("machine.json");
  const Outcome written =
      run(layout("calibrate", {"--measured", table, "--software", "megatron", "-o", machine}));
  EXPECT_EQ(written.status, 0) << written.err;
  EXPECT_THAT(written.out, HasSubstr("each by the others"));
  EXPECT_NEAR(step_of({"--measured", machine}), step_of({"--measured", table}), 1e-3);
  const Json file = Json::parse(read(machine));
  EXPECT_EQ(file["gpu"], "h100-sxm-80gb");
  EXPECT_EQ(file["source"], table);
  EXPECT_EQ(file["fit"]["steps"], 3);
  const Json json = json_of(layout("eval", {"--world", "8", "--measured", machine}));
  EXPECT_EQ(json["measured"]["steps"], 3);
  EXPECT_GT(json["worth_measuring"].size(), 1u);
}

TEST(LayoutMeasured, RefusesStepsOfAnotherModelAndOfAnotherGpu) {
  const std::string other = steps_table("other.csv", "8,2048,16,8192,32000,1024,32,", 1);
  expect_refused(layout("eval", {"--world", "8", "--measured", other}),
                 "expected some of the given sizes (layers of hidden 1024");
  expect_refused(layout("rank", {"--world", "8", "--measured", "h100-of-ours"}), "h100-of-ours");
  expect_refused(layout("calibrate"), "expected --measured");
  const std::string bare = scratch_file("bare.csv");
  std::ofstream(bare) << "tp,micro_batch\n1,1\n";
  expect_refused(layout("eval", {"--world", "8", "--measured", bare}), "expected a column step_ms");
  const std::string machine = scratch_file("machine-h100.json");
  run(layout("calibrate", {"--measured", steps_table("own.csv", "", 1), "-o", machine}));
  Words words = layout("eval", {"--world", "8", "--measured", machine});
  std::ranges::replace(words, std::string("h100-sxm-80gb"), std::string("a100-sxm-80gb"));
  expect_refused(words, "expected a machine measured on a100-sxm-80gb");
  for (const std::string key : {"attention", "optimizer", "grad_dtype"}) {
    Json changed = Json::parse(read(machine));
    changed[key] = "adam";
    const std::string file = scratch_file("machine-" + key + ".json");
    std::ofstream(file) << changed;
    expect_refused(layout("eval", {"--world", "8", "--measured", file}), "/" + key + ": expected ");
  }
}

TEST(LayoutMeasured, TakesATraceOfOneStep) {
  // Two kernels of 30 ms and a collective of 5 ms in a step of 70 ms.
  const fs::path file = scratch() / "step.json";
  const auto event = [](const char* category, const char* name, int us, int length, int stream) {
    return Json{
        {"ph", "X"},     {"cat", category},
        {"name", name},  {"pid", stream ? 0 : 1},
        {"tid", stream}, {"ts", us},
        {"dur", length}, {"args", Json{{"device", 0}, {"stream", stream}, {"correlation", us}}}};
  };
  Json events = Json::array({event("user_annotation", "ProfilerStep#1", 0, 70000, 0)});
  for (const auto& [name, us, length] : {std::tuple("gemm", 100, 30000),
                                         {"gemm", 30200, 30000},
                                         {"ncclDevKernel_AllReduce", 60300, 5000}}) {
    events.push_back(event("cuda_runtime", "cudaLaunchKernel", us - 50, 10, 0));
    events.back()["args"]["correlation"] = us;
    events.push_back(event("kernel", name, us, length, 7));
  }
  std::ofstream(file) << Json{{"traceEvents", events}};
  const Outcome outcome =
      run(layout("eval", {"--world", "8", "--tp", "2", "--measured", file.string()}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("taken on trust"));
  EXPECT_THAT(outcome.out, HasSubstr("2 steps, missed by"));
}

TEST(LayoutSchedules, ZeroBubbleWaitsLessAndSaysWhatItNeeds) {
  const auto of = [](const std::string& schedule) {
    return json_of(
        layout("eval", {"--world", "4", "--pp", "4", "--schedule", schedule}))["layouts"][0];
  };
  const Json plain = of("1f1b"), h1 = of("zb-h1"), v = of("zb-v");
  const auto bubble = [](const Json& one) { return one["terms_ms"]["bubble"].get<double>(); };
  EXPECT_LT(bubble(h1), 0.8 * bubble(plain));
  EXPECT_LT(bubble(v), bubble(h1));
  EXPECT_EQ(h1["schedule"], "zb-h1");
  EXPECT_EQ(v["vp"], 2);
  EXPECT_GE(h1["memory_gb"].get<double>(), plain["memory_gb"].get<double>());
  expect_refused(layout("eval", {"--world", "8", "--schedule", "zb-v"}),
                 "expected pipeline stages");
  expect_refused(layout("eval", {"--world", "4", "--pp", "4", "--vp", "4", "--schedule", "zb-v"}),
                 "vp: expected 2 with schedule zb-v");
  expect_refused(layout("eval", {"--world", "4", "--pp", "4", "--schedule", "zb"}),
                 "schedule: expected one of 1f1b, gpipe, zb-h1");
  expect_refused(
      layout("eval", {"--world", "4", "--pp", "4", "--micro-batch", "8", "--schedule", "dualpipe"}),
      "at least 2 pp = 8");
  const Json found =
      json_of(layout("rank", {"--world", "8", "--pp", "4", "--schedule", "1f1b,zb-h1,zb-v"}));
  EXPECT_NE(found["layouts"][0]["schedule"], "1f1b");
}

TEST(LayoutSchedules, SearchedStagesAreNotSlower) {
  const auto of = [](const std::string& stages) {
    return json_of(layout("eval", {"--world", "4", "--pp", "4", "--stages", stages}))["layouts"][0];
  };
  const Json equal = of("equal"), searched = of("searched");
  EXPECT_LE(searched["predicted_step_ms"].get<double>(), equal["predicted_step_ms"].get<double>());
  EXPECT_TRUE(equal["stage_layers"].empty());
  int layers = 0;
  for (const Json& stage : searched["stage_layers"]) layers += stage.get<int>();
  EXPECT_EQ(layers, 8);
}

TEST(LayoutCollectives, AreThoseOfTheFile) {
  const fs::path example =
      fs::path(PERFMODEL_SOURCE_DIR) / "examples" / "collectives" / "astra-sim-h100.json";
  const auto traffic = [](const std::string& file) {
    return json_of(layout("eval", {"--world", "8", "--tp", "8", "--collectives",
                                   file}))["layouts"][0]["terms_ms"]["tensor_parallel"]
        .get<double>();
  };
  Json network = Json::parse(read(example));
  const double before = traffic(example.string());
  network["inside"]["gib_per_s"] = 40;
  const fs::path slow = scratch() / "slow-collectives.json";
  std::ofstream(slow) << network;
  EXPECT_GT(traffic(slow.string()), 2 * before);
  network["inside"]["shape"] = "torus";
  std::ofstream(slow) << network;
  expect_refused(layout("eval", {"--world", "8", "--collectives", slow.string()}),
                 "/inside/shape: expected \"ring\", \"switch\" or \"fully-connected\"");
}

TEST(LayoutSweep, NamesTheBestOfEachValue) {
  const Json json =
      json_of(layout("sweep", {"--axis", "world", "--values", "8,11,16", "--micro-batch", "1"}));
  ASSERT_EQ(json["rows"].size(), 3u);
  EXPECT_TRUE(json["rows"][0]["error"].is_null());
  EXPECT_TRUE(json["rows"][1]["best"].is_null());
  EXPECT_THAT(json["rows"][1]["error"].get<std::string>(), HasSubstr("11 GPUs"));
}

}  // namespace layout_test
}  // namespace perfmodel::test_support
