#include "command_examples.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "terminal/command_tree.hpp"

namespace perfmodel::cli {
namespace {

struct CommandExample {
  std::string_view question;  // empty: the one above
  std::string_view path, words;
};

// Files have the names that other examples write.
constexpr CommandExample kExamples[] = {
    {"How long does a step take, and why?", "predict",
     "gpt2 --gpu h100 --batch 8 --precision bf16"},
    {"", "predict", "recorded/rank0_trace.json.gz --gpu h100"},
    {"", "whatif", "gpt2 --gpus a100,h100 --batch 8,16 --precision same,bf16"},
    {"", "report", "gpt2 --gpu h100 -o step.html"},
    {"", "suite", "tbd --gpu h100"},
    {"", "sweep", "examples/sweep.json -o rows.csv.gz"},
    {"", "serve", "--socket /run/perfpredict.sock --threads 4"},
    {"Is that normal, and did a change make it slower?", "diagnose",
     "gpt2 --gpu a100-80gb --batch 8 --measured-step 2s"},
    {"", "gate", "base.log new.log --threshold 3%"},
    {"", "gate", "base.json new.json --gpus h100,a100,4090"},
    {"Does it fit, and on how many GPUs?", "memory", "llama2-7b --gpu a100-80gb --max-batch"},
    {"", "duration", "gpt2 --gpus a100-80gb,h100 --worlds 1,8,64 --samples 1e8"},
    {"", "layout", "llama3-70b --gpu h100 --world 64 --global-batch 1024"},
    {"", "layout", "train.toml --gpu h100 --world 8"},
    {"", "layout rank", "llama3-70b --gpu h100 --world 64 --global-batch 1024"},
    {"", "layout eval", "llama3-8b --gpu h100 --world 64 --global-batch 1024 --tp 2 --zero 1"},
    {"", "layout compare", "llama3-8b --gpu h100 --world 64 --global-batch 1024 --layout tp=2"},
    {"", "layout sweep", "llama3-8b --gpu h100 --global-batch 512 --axis world --values 32,64"},
    {"", "layout export", "llama3-8b --gpu h100 --world 16 --global-batch 64 --tp 2 --pp 2 -o job"},
    {"", "layout calibrate", "llama3-8b --gpu h100 --measured steps.csv -o machine.json"},
    {"", "shard", "dlrm.json.gz --gpu h100 --world 8"},
    {"", "shard", "tables.csv --gpu h100 --world 16 --batch-per-gpu 4096"},
    {"", "shard rank", "tables.csv --gpu h100 --world 16 --batch-per-gpu 4096"},
    {"", "shard eval", "study.json --plan plan.json"},
    {"", "shard compare", "study.json --plan plan.json"},
    {"", "shard sweep", "study.json --axis world --values 8,16,32"},
    {"", "shard study", "tables.csv --gpu h100 --world 16 --batch-per-gpu 4096"},
    {"", "shard export", "study.json --plan plan.json --format csv -o plan.csv"},
    {"", "sync", "--workers fast:3:1000:100,slow:1:2000:100"},
    {"What should be changed?", "optimize", "gpt2 --gpu a100-80gb --world 8"},
    {"", "analyze", "gpt2 --gpu a100-80gb"},
    {"", "rewrite", "gpt2.json --precision bf16 --optimizer fused -o changed.json"},
    {"", "build", "gpt --preset gpt2 --batch 8 -o gpt2.json"},
    {"", "build dlrm", "--preset default --batch 2048 -o dlrm.json.gz"},
    {"", "build torchrec", "--preset v100-8 -o rank0.json.gz"},
    {"What does a recording say?", "trace", "recorded/rank0_trace.json.gz"},
    {"", "replay", "recorded/rank0_trace.json.gz --scale-kernels 0.5"},
    {"", "overheads", "recorded/rank0_trace.json.gz -o host.json"},
    {"What does one part cost?", "kernels", "queries.csv --gpu h100 --dtype bf16"},
    {"", "gemm", "1024 1024 4096 --gpu a100 --space mma"},
    {"", "gemm", "512 10240 10240 --gpu a100,h100 --hash 1048576"},
    {"", "collective", "all_reduce 64MiB --gpu h100 --world 16"},
    {"", "collective", "all_reduce 64KiB --gpu a100 --world 16 --network efa-p4d --nics 4"},
    {"", "collective", "all_to_all 1KiB:1GiB --gpu a100 --world 8 --plot a2a.svg"},
    {"", "topology", "fit all_reduce.log --gpu h100 -o our-cluster.json"},
    {"", "topology fit", "all_reduce.log --gpu h100 -o our-cluster.json"},
    {"", "gpus", "h100"},
    {"How good are the models of kernels?", "eval", "measured.csv.gz --model mine.json"},
    {"", "train", "measured.csv.gz -o mine.json"},
    {"How do a shell and `man` know the program?", "completion", "bash -o perfpredict.bash"},
    {"", "man", "-o perfpredict.1"},
};

// Flags of commands whose own help only lists what is below them.
constexpr std::pair<std::string_view, std::string_view> kMainFlags[] = {
    {"layout",
     "Main flags (`perfpredict layout rank --help` has all):\n"
     "  MODEL --gpu NAME --world N --global-batch N --sequence N --software NAME --precision TYPE\n"
     "  [--tp N,...] [--pp N,...] [--zero N,...] [--recompute KIND] [--topology NAME] [--json]\n"},
    {"shard",
     "Main flags (`perfpredict shard rank --help` has all):\n"
     "  TABLES --gpu NAME --world N --batch-per-gpu N --dtype TYPE --optimizer NAME\n"
     "  [--topology NAME] [--time-budget S] [--format FORMAT] [-o FILE] [--json]\n"},
};

// Names of flags and commands in other programs, with the words that do the same here.
constexpr std::pair<std::string_view, std::string_view> kInstead[] = {
    {"--fp16", "--precision fp16"},
    {"--half", "--precision fp16"},
    {"--bf16", "--precision bf16"},
    {"--fp8", "--precision fp8"},
    {"--tf32", "--precision tf32"},
    {"--amp", "--precision bf16 or --precision fp16"},
    {"--mixed-precision", "--precision bf16 or --precision fp16"},
    {"--csv", "--json"},
    {"--format", "--json"},
    {"--output", "--json > FILE"},
    {"--model", "the model's name alone, or a file, in front of the flags"},
    {"--preset", "the family first: `perfpredict build gpt --preset gpt2 -o gpt2.json`"},
    {"--nodes", "--world, the number of GPUs"},
    {"--gpus", "--gpu for one, `perfpredict whatif` to compare several"},
    {"--list", "perfpredict gpus, perfpredict build --help and perfpredict suite list"},
    {"--verbose", "--full"},
    {"--batch", "--global-batch, of all GPUs"},
    {"--step", "--measured-step"},
    {"--port", "--listen"},
    {"--inference", "`perfpredict build gpt --preset gpt2 --phase forward -o forward.json`"},
    {"--gpu", "`perfpredict predict FILE --gpu GPU`"},
    {"models", "`perfpredict build --help` for families, `predict NAME` for a model"},
    {"list", "`perfpredict gpus`, `perfpredict build --help` or `perfpredict suite list`"},
    {"compare", "`perfpredict trace A --compare B`, or `whatif` for two GPUs"},
    {"simulate", "`perfpredict predict`"},
    {"estimate", "`perfpredict predict`"},
    {"profile", "`perfpredict trace FILE` for a recording"},
    {"gpu", "`perfpredict gpus`"},
};

std::string examples_of(const CommandText& command) {
  std::string text;
  for (const CommandExample& row : kExamples) {
    if (row.path == command.path) {
      text += fmt::format("  perfpredict {} {}\n", row.path, row.words);
    }
  }
  if (text.empty() && !example_of(command.path).empty()) {
    text = "  " + example_of(command.path) + "\n";
  }
  return text.empty() ? text : "Examples:\n" + text;
}

std::string examples_by_question() {
  std::string text = "Questions:\n";
  std::string_view last;
  for (const CommandExample& row : kExamples) {
    if (!row.question.empty()) text += fmt::format("  {}\n", row.question);
    const bool is_first = row.path != last && row.path.find(' ') == row.path.npos;
    if (is_first) text += fmt::format("    perfpredict {} {}\n", row.path, row.words);
    last = row.path;
  }
  return text;
}

std::string footer_of(const CommandText& command) {
  if (command.path.empty()) return examples_by_question() + "\n" + command.footer;
  const auto* flags = std::ranges::find(kMainFlags, command.path,
                                        &std::pair<std::string_view, std::string_view>::first);
  const std::string main(flags == std::end(kMainFlags) ? "" : flags->second);
  const std::string examples = examples_of(command);
  return main + examples + (command.footer.empty() ? "" : "\n") + command.footer;
}

void add_footers(const CommandParser& parser, const std::string& path,
                 const std::vector<CommandText>& tree) {
  const auto text = std::ranges::find(tree, path, &CommandText::path);
  if (text != tree.end()) parser.footer(footer_of(*text));
  for (const CommandParser& below : parser.subcommands()) {
    add_footers(below, path.empty() ? below.name() : path + " " + below.name(), tree);
  }
}

}  // namespace

std::string example_of(std::string_view path) {
  const auto* row = std::ranges::find(kExamples, path, &CommandExample::path);
  const std::string_view family = path.substr(path.find(' ') + 1);
  if (path.starts_with("build ") && row == std::end(kExamples)) {
    return fmt::format("perfpredict {} -o {}.json.gz", path, family);
  }
  if (row == std::end(kExamples)) return {};
  return fmt::format("perfpredict {} {}", row->path, row->words);
}

void add_examples(const CommandParser& program) { add_footers(program, "", command_tree(program)); }

std::vector<std::string> in_own_words(std::vector<std::string> words) {
  if (words.empty()) return words;
  if (words.front() == "version") words.front() = "--version";
  if (words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  return words;
}

std::string instead_of(std::string_view word) {
  const std::string_view flag = word.substr(0, word.find('='));
  const auto* row =
      std::ranges::find(kInstead, flag, &std::pair<std::string_view, std::string_view>::first);
  return row == std::end(kInstead) ? "" : std::string(row->second);
}

}  // namespace perfmodel::cli
