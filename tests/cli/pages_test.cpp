// Manual page, completion, and what the program says of itself: all that --help has, nothing else.

#include <gtest/gtest.h>

#include <functional>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "program.hpp"

namespace pages_test {

using namespace perfmodel::test_support;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

struct Help {
  std::vector<std::string> commands;
  std::set<std::string> options;  ///< "-h", "--help"
};

// Reads the printed help, so that it shares no code with the maker of the pages.
Help help_of(Words path) {
  path.push_back("--help");
  const Outcome outcome = run(path);
  EXPECT_EQ(outcome.status, 0) << shown(path);
  Help help;
  std::string section;
  for (const std::string& line : lines_of(outcome.out)) {
    if (!line.starts_with(' ')) section = line;
    const auto words = words_of(line);
    const bool entry = line.starts_with("  ") && line.size() > 2 && line[2] != ' ';
    if (!entry) continue;
    if (section == "Subcommands:") help.commands.push_back(words.front());
    if (!words.front().starts_with('-')) continue;
    std::istringstream names(words.front());
    for (std::string name; std::getline(names, name, ',');) {
      help.options.insert(name.substr(0, name.find('{')));  // --no-nesterov{false}
    }
  }
  return help;
}

// Every command of the program, with its path.
void each_command(const Words& path, const std::function<void(const Words&, const Help&)>& visit) {
  const Help help = help_of(path);
  visit(path, help);
  for (const std::string& command : help.commands) {
    Words below = path;
    below.push_back(command);
    each_command(below, visit);
  }
}

std::string joined(const Words& path) {
  std::string text;
  for (const std::string& word : path) text += (text.empty() ? "" : " ") + word;
  return text;
}

// The shown text of roff.
std::string plain(const std::string& roff) {
  return std::regex_replace(std::regex_replace(roff, std::regex(R"(\\f[BIR]|\\&)"), ""),
                            std::regex(R"(\\-)"), "-");
}

TEST(ManualPage, HasEveryCommandAndOptionOfHelp) {
  const Outcome page = run({"man"});
  ASSERT_EQ(page.status, 0) << page.err;
  const std::string text = plain(page.out);
  std::size_t commands = 0, options = 0;
  each_command({}, [&](const Words& path, const Help& help) {
    const std::string head = path.empty() ? "\n.SH OPTIONS\n" : "\n.SS " + joined(path) + "\n";
    const std::size_t begin = text.find(head);
    ASSERT_NE(begin, std::string::npos) << joined(path);
    const std::size_t end = text.find("\n.S", begin + 1);
    const std::string section = text.substr(begin, end - begin) + "\n";
    for (const std::string& option : help.options) {
      const std::regex entry("\n\\.TP\n(-[-\\w]+, )*" + option + "[ ,\n]");
      EXPECT_TRUE(std::regex_search(section, entry)) << joined(path) << " " << option;
      ++options;
    }
    ++commands;
  });
  EXPECT_GT(commands, 30U);
  EXPECT_GT(options, 300U);
}

TEST(ManualPage, IsRoffWithoutWarnings) {
  if (std::system("command -v groff >/dev/null") != 0) {
    GTEST_SKIP() << "groff is not installed";
  }
  const fs::path page = scratch() / "perfpredict.1";
  ASSERT_EQ(run({"man", "-o", page.string()}).status, 0);
  const fs::path said = scratch() / "groff.txt";
  const std::string command = "groff -man -Tutf8 -K utf8 -ww -rLL=100n '" + page.string() +
                              "' >/dev/null 2>'" + said.string() + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(read(said), "");
}

// Completions of bash after these words.
std::set<std::string> completions(const Words& words) {
  const fs::path script = scratch() / "completion.bash", out = scratch() / "offered.txt";
  if (!fs::exists(script)) {
    EXPECT_EQ(run({"completion", "bash", "-o", script.string()}).status, 0);
  }
  std::string command = ". '" + script.string() + "'; COMP_WORDS=(perfpredict";
  for (const std::string& word : words) command += " \"" + word + "\"";
  command += "); COMP_CWORD=" + std::to_string(words.size()) +
             "; _perfpredict; printf \"%s\\n\" \"${COMPREPLY[@]}\"";
  EXPECT_EQ(
      std::system(("bash --norc -u -c '" + std::regex_replace(command, std::regex("'"), "'\\''") +
                   "' >" + out.string())
                      .c_str()),
      0);
  std::set<std::string> offered;
  for (const std::string& line : lines_of(read(out))) {
    if (!line.empty()) offered.insert(line);
  }
  return offered;
}

TEST(Completion, OffersWhatHelpHas) {
  each_command({}, [&](const Words& path, const Help& help) {
    SCOPED_TRACE(joined(path));
    Words words = path;
    words.push_back("");
    const auto offered = completions(words);
    EXPECT_EQ(offered, std::set<std::string>(help.commands.begin(), help.commands.end()));
    words.back() = "-";
    EXPECT_EQ(completions(words), help.options);
  });
}

TEST(Completion, OffersValuesAndWhatBeginsAlike) {
  using Set = std::set<std::string>;
  EXPECT_EQ(completions({"predict", "graph.json", "--use", ""}), (Set{"all", "comm"}));
  EXPECT_EQ(completions({"predict", "--use", "c"}), Set{"comm"});
  EXPECT_EQ(completions({"re"}), (Set{"replay", "report", "rewrite"}));
  EXPECT_EQ(completions({"build", "g"}), Set{"gpt"});
  EXPECT_EQ(completions({"gpus", "--js"}), Set{"--json"});
  // A file that is called like a command is one.
  EXPECT_TRUE(completions({"predict", "trace", "--timel"}).contains("--timeline"));
}

TEST(Completion, OfZshIsThatOfBash) {
  const Outcome bash = run({"completion", "bash"}), zsh = run({"completion", "zsh"});
  EXPECT_EQ(zsh.status, 0);
  EXPECT_TRUE(zsh.out.starts_with("#compdef perfpredict\n"));
  EXPECT_TRUE(zsh.out.ends_with(bash.out));
  EXPECT_EQ(run({"completion", "tcsh"}).status, 2);
}

TEST(Version, IsThatOfReportsAndDocuments) {
  const Outcome outcome = run({"--version"});
  std::smatch parts;
  ASSERT_TRUE(std::regex_match(
      outcome.out, parts,
      std::regex(R"(perfpredict (\d+\.\d+\.\d+) \(git ([0-9a-f]{12}(?:-dirty)?|unknown), .*\)\n)")))
      << outcome.out;
  const std::string version = parts[1], git = parts[2];
  const Json document = Json::parse(run({"gpus", "t4", "--json"}).out);
  const std::string data = document["program"]["data"];
  EXPECT_TRUE(std::regex_match(data, std::regex("[0-9a-f]{16}"))) << data;
  EXPECT_EQ(document["program"],
            Json({{"name", "perfpredict"}, {"version", version}, {"git", git}, {"data", data}}));
  const Json told = Json::parse(run({"--version", "--json"}).out);
  EXPECT_EQ(told["schema"], "perfmodel-version");
  EXPECT_EQ(told["program"], document["program"]);
  const auto report = lines_of(run({"gpus", "t4"}).out);
  ASSERT_FALSE(report.empty());
  EXPECT_EQ(report.back(), "  perfpredict " + version + " (git " + git + ")");
}

// Another figure in one file, or another file, is other data.
TEST(Version, ChangedDataHasAnotherHash) {
  const fs::path data = scratch() / "changed-data";
  fs::create_directories(data);
  fs::copy(fs::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus", data / "gpus");
  const auto hash = [&] {
    const Outcome told = run({"--version", "--json"}, "PERFMODEL_DATA='" + data.string() + "'");
    return Json::parse(told.out)["program"]["data"].get<std::string>();
  };
  const std::string before = hash();
  EXPECT_EQ(hash(), before);
  std::ofstream(data / "gpus" / "t4.json", std::ios::app) << " ";
  const std::string appended = hash();
  EXPECT_NE(appended, before);
  fs::rename(data / "gpus" / "t4.json", data / "gpus" / "t5.json");
  EXPECT_NE(hash(), appended);
}

}  // namespace pages_test
