#include "rewrite_flags.hpp"

#include <memory>
#include <optional>
#include <string>

#include "rewrites/rewrite_options.hpp"

namespace perfmodel::cli {
namespace {

NamedRewrite rewrite_or_bad_usage(const RewriteOption& option, const std::string& text) {
  auto rewrite = named_rewrite(option, text);
  if (!rewrite) bad_usage(option.flag, to_string(rewrite.error()));
  return std::move(*rewrite);
}

// A rewrite whose value may still get details; they may come before its flag, too.
struct OpenRewrite {
  std::string value, details;
  std::optional<std::size_t> position;  // among the rewrites

  void write(const RewriteOption& option, std::vector<NamedRewrite>& rewrites) {
    rewrites[*position] = rewrite_or_bad_usage(option, value + details);
  }
};

// The first sentence or clause of a help, and its details in brackets.
std::string brief(const std::string& help) {
  int depth = 0;
  for (std::size_t i = 0; i + 1 < help.size(); ++i) {
    depth += (help[i] == '(') - (help[i] == ')');
    const bool ends = help[i] == '.' || help[i] == ';' || help[i] == ':';
    if (depth == 0 && ends && help[i + 1] == ' ') return help.substr(0, i);
  }
  return help;
}

// How flags look in a help.
struct FlagStyle {
  bool is_brief = false;

  std::string help(const std::string& text) const { return is_brief ? brief(text) : text; }
  void place(Option option) const {
    if (is_brief) option.group("Rewrites, applied to the graph first");
  }
};

void add_detailed_option(CommandParser app, const RewriteOption& option, const FlagStyle& style,
                         std::vector<NamedRewrite>& rewrites) {
  const auto open = std::make_shared<OpenRewrite>();
  style.place(app.add_option_function<std::string>(
                     option.flag,
                     [&option, &rewrites, open](const std::string& text) {
                       if (open->position) open->details.clear();  // details of the previous one
                       open->value = text;
                       open->position = rewrites.size();
                       rewrites.emplace_back();
                       open->write(option, rewrites);
                     },
                     style.help(option.help))
                  .type_name(option.value)
                  .trigger_on_parse());
  for (const RewriteOption::Detail& detail : option.details) {
    style.place(app.add_option_function<std::string>(
                       detail.flag,
                       [&option, &rewrites, &detail, open](const std::string& text) {
                         open->details = with_detail(open->details, detail, text);
                         if (open->position) open->write(option, rewrites);
                       },
                       style.help(detail.help))
                    .type_name(detail.value)
                    .trigger_on_parse());
  }
}

}  // namespace

void add_rewrite_options(CommandParser app, std::vector<NamedRewrite>& rewrites,
                         RewriteFlags which) {
  const FlagStyle style{.is_brief = which == RewriteFlags::kFirst};
  for (const RewriteOption& option : rewrite_options()) {
    if (option.launching) continue;  // a file does not keep it
    if (which == RewriteFlags::kForBuild && !option.for_build) continue;
    if (!option.details.empty()) {
      add_detailed_option(app, option, style, rewrites);
      continue;
    }
    const auto add = [&option, &rewrites](const std::string& text) {
      rewrites.push_back(rewrite_or_bad_usage(option, text));
    };
    // Each value is read as it is met, so that the list has the order of the command line.
    if (option.value.empty()) {
      style.place(app.add_flag_callback(
                         option.flag, [add] { add(""); }, style.help(option.help))
                      .trigger_on_parse());
    } else {
      const Option made =
          app.add_option_function<std::string>(option.flag, add, style.help(option.help))
              .type_name(option.value)
              .trigger_on_parse();
      if (!option.without_value.empty()) made.expected(0, 1).default_str(option.without_value);
      style.place(made);
    }
  }
}

}  // namespace perfmodel::cli
