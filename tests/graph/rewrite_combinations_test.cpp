// Rewrites compose with compilation. On every transformer that we or others recorded, each rewrite
// of today's programs holds the invariants or is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/graph/rewrites/retarget.hpp"
#include "rewrite_invariants.hpp"
#include "rewrites/rewrite_options.hpp"
#include "small_models.hpp"
#include "step/unique_ids.hpp"

namespace perfmodel {
namespace rewrite_combinations_test {

using namespace test_support;
namespace fs = std::filesystem;
using Graphs = std::map<std::string, ExecutionGraph>;
using testing::HasSubstr;

const fs::path kMeasurements = PERFMODEL_SOURCE_DIR "/data/measurements";

NamedRewrite rewrite_called(const std::string& text) {
  const std::size_t space = std::min(text.find(' '), text.size());
  const RewriteOption* option = find_rewrite_option(text.substr(0, space));
  return named_rewrite(*option, space < text.size() ? text.substr(space + 1) : "").value();
}

Result<ExecutionGraph> rewritten(const ExecutionGraph& graph, const std::string& text) {
  const NamedRewrite rewrite = rewrite_called(text);
  return apply_rewrites(graph, {&rewrite, 1});
}

/// As a GPU runs it, with ids that are versions: every tensor that is read has a maker.
ExecutionGraph on_gpu(const ExecutionGraph& graph) {
  const auto made = retarget(graph);
  return with_unique_ids(made ? *made : graph);
}

/// Broken structure or memory, or a tensor that is read and that nothing makes any more.
std::string broken(const ExecutionGraph& source, const ExecutionGraph& made) {
  if (const auto found = broken_structure(source, made)) return *found;
  return read_before_made(source, made, true).value_or("");
}

// ---- precision x attention x compilation x ranks ----

using Combination = std::vector<std::string>;

std::vector<Combination> combinations() {
  const std::vector<std::vector<std::string>> axes = {
      {"", "--precision bf16"},
      {"", "--attention flash", "--attention efficient"},
      {"--compile default", "--compile reduce-overhead", "--compile max-autotune,step"},
      {"", "--data-parallel 8"}};
  std::vector<Combination> all = {{}};
  for (const auto& axis : axes) {
    std::vector<Combination> longer;
    for (const Combination& one : all) {
      for (const std::string& text : axis) {
        longer.push_back(one);
        if (!text.empty()) longer.back().push_back(text);
      }
    }
    all = std::move(longer);
  }
  return all;
}

/// A graph, and how many of the combinations it can take: flash attention has no fp32, the kernels
/// want heads of a multiple of 8 in bf16, and a ResNet has no attention.
struct ComposedCase {
  std::string name;
  ExecutionGraph graph;
  std::size_t combinations = 0;
};

std::vector<ComposedCase> composed_cases() {
  Graphs models = small_models();
  const auto recorded = [](const char* name) {
    return on_gpu(read_execution_graph(kMeasurements / "h200-sxm-141gb" / name).value());
  };
  return {{"gpt", models["gpt_gpu"], 30},
          {"bert", models["bert_gpu"], 24},
          {"llama", models["llama_gpu"], 24},
          {"resnet", models["resnet_gpu"], 12},
          {"recorded gpt2", recorded("gpt2-small-512-b4.et.json.gz"), 30},
          {"recorded bert", recorded("bert-base-384-b8.et.json.gz"), 30}};
}

// Whether the graph takes all of them, each with its invariants.
bool takes(const ExecutionGraph& graph, const Combination& rewrites) {
  ExecutionGraph made = graph;
  for (const std::string& text : rewrites) {
    SCOPED_TRACE(text);
    auto next = rewritten(made, text);
    if (!next) {
      EXPECT_THAT(next.error().message, HasSubstr("attention: expected "));
      return false;
    }
    EXPECT_EQ(broken(made, *next), "");
    made = std::move(*next);
  }
  return true;
}

TEST(RewriteCombinations, PrecisionAttentionAndRanksComposeWithCompilation) {
  for (const ComposedCase& one : composed_cases()) {
    SCOPED_TRACE(one.name);
    std::size_t taken = 0;
    for (const Combination& rewrites : combinations()) taken += takes(one.graph, rewrites);
    EXPECT_EQ(taken, one.combinations);
  }
}

TEST(RewriteCombinations, CheckpointsComposeWithCompilationThatFollows) {
  for (const ComposedCase& one : composed_cases()) {
    SCOPED_TRACE(one.name);
    const ExecutionGraph compiled = rewritten(one.graph, "--compile default").value();
    for (const char* checkpoints : {"--checkpoint 1", "--recompute full"}) {
      const auto after = rewritten(compiled, checkpoints);
      ASSERT_FALSE(after) << checkpoints;
      EXPECT_THAT(after.error().message,
                  HasSubstr("expected a program that is not compiled, found"));
      const auto first = rewritten(one.graph, checkpoints);
      if (!first) continue;  // layers that do not repeat
      EXPECT_TRUE(takes(*first, {"--compile default", "--data-parallel 8"})) << checkpoints;
    }
  }
}

// ---- each rewrite on every transformer ----

std::set<std::string_view> op_names(const ExecutionGraph& graph) {
  std::set<std::string_view> names;
  for (const Node& node : graph.nodes) names.insert(graph.name(node));
  return names;
}

bool is_transformer(const ExecutionGraph& graph) {
  const std::set<std::string_view> names = op_names(graph);
  const bool calls = std::ranges::any_of(
      names, [](std::string_view name) { return name.find("scaled_dot_product_") != name.npos; });
  return calls || (names.contains("aten::_softmax") && names.contains("aten::bmm"));
}

// Execution graphs of our own recordings and, where they are, of public ones.
std::vector<fs::path> recorded_graphs() {
  std::vector<fs::path> folders = {kMeasurements}, files;
  if (const char* root = std::getenv("PERFMODEL_PUBLIC_DATA"); root && *root) {
    folders.push_back(fs::path(root) / "traces");
    folders.push_back(fs::path(root) / "traces_cpu");
  }
  for (const fs::path& folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      const bool is_graph = name.ends_with(".et.json.gz") || name.find("_et.json") != name.npos ||
                            name.find("_et_1.") != name.npos;
      if (is_graph) files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  return files;
}

struct Refusal {
  std::string rewrite;  ///< how it begins
  const char* message;
};

/// All that these graphs lack.
const Refusal kRefusals[] = {
    {"--attention", "flash kernels have no other types, so --precision comes first"},
    {"--attention", "cudnn kernels have no other types, so --precision comes first"},
    {"--attention", "expected a program that is not compiled, found"},
    {"--compile", "expected a program that is not compiled, found"},
    {"--fuse-norms", "found aten::native_layer_norm, a norm in one kernel"},
    {"--fuse-norms", "expected a program that is not compiled, found"},
    {"--fuse-loss", "expected a cross-entropy over classes of what a linear layer gives, found"},
    {"--fuse-loss", "expected a program that is not compiled, found"},
    {"--channels-last", "expected a convolution to lay out images for, found none"}};

constexpr const char* kTodaysRewrites[] = {
    "--attention flash", "--attention efficient",     "--attention cudnn",      "--attention math",
    "--compile default", "--compile reduce-overhead", "--compile max-autotune", "--fuse-norms",
    "--fuse-loss liger", "--fuse-loss linear",        "--channels-last"};

const Refusal* known_refusal(std::string_view rewrite, const std::string& message) {
  const auto* known = std::ranges::find_if(kRefusals, [&](const Refusal& one) {
    return rewrite.starts_with(one.rewrite) && message.find(one.message) != message.npos;
  });
  return known == std::end(kRefusals) ? nullptr : known;
}

TEST(RewriteCombinations, HoldOnEveryTransformerOrAreRefusedByName) {
  std::set<const Refusal*> met;
  std::set<std::string> applied;
  std::size_t transformers = 0;
  for (const fs::path& file : recorded_graphs()) {
    const auto graph = read_execution_graph(file);
    if (!graph || !is_transformer(*graph)) continue;
    ++transformers;
    const ExecutionGraph source = on_gpu(*graph);
    for (const char* text : kTodaysRewrites) {
      SCOPED_TRACE(file.filename().string() + " " + text);
      const auto made = rewritten(source, text);
      if (made) {
        applied.insert(text);
        EXPECT_EQ(broken(source, *made), "");
        continue;
      }
      const Refusal* known = known_refusal(text, made.error().message);
      EXPECT_TRUE(known) << made.error().message;
      met.insert(known);
    }
  }
  EXPECT_GE(transformers, 16U);
  for (const Refusal& one : kRefusals) EXPECT_TRUE(met.contains(&one)) << one.message;
  for (const char* text : kTodaysRewrites) {
    const bool lacks_a_graph = std::string_view(text) == "--fuse-norms" ||  // all call one kernel
                               std::string_view(text) == "--channels-last";
    EXPECT_EQ(applied.contains(text), !lacks_a_graph) << text;
  }
}

// A trace does not say which tensors are the same.
TEST(RewriteCombinations, AreRefusedByNameOnATraceOfATransformer) {
  const char* root = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (!root || !*root) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const auto program = read_recorded_program(fs::path(root) / "traces" /
                                             "bert_small_infer_h100_torch26_kineto.json.gz");
  ASSERT_TRUE(program) << to_string(program.error());
  ASSERT_TRUE(is_transformer(program->graph));
  for (const char* text : kTodaysRewrites) {
    const auto made = rewritten(program->graph, text);
    ASSERT_FALSE(made) << text;
    const bool is_named = made.error().message.find("trace") != std::string::npos ||
                          known_refusal(text, made.error().message);
    EXPECT_TRUE(is_named) << text << ": " << made.error().message;
  }
}

// ---- what compiled code reads ----

// Numbers on the host are made by ops that no kernel holds, gradients by functions of libraries.
TEST(RewriteCombinations, CompiledProgramsReadNothingThatNobodyMakes) {
  const auto check = [](const std::string& name, const ExecutionGraph& graph) {
    for (const char* text : {"--compile default", "--compile default,model"}) {
      const auto made = rewritten(graph, text);
      if (made) {
        EXPECT_EQ(broken(graph, *made), "") << name << " " << text;
      }
    }
  };
  for (const char* family : {"bert", "dlrm", "gpt", "inception", "llama", "opt", "t5", "vgg"}) {
    ModelRequest model{.family = family};
    const std::string_view name = family;
    if (name != "dlrm" && name != "inception" && name != "vgg") model.layers = 2;
    check(family, build_model(model).value());
  }
  for (const fs::path& file : recorded_graphs()) {
    const auto graph = read_execution_graph(file);
    if (graph) check(file.filename().string(), on_gpu(*graph));
  }
}

}  // namespace rewrite_combinations_test
}  // namespace perfmodel
