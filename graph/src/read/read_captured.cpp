#include "read_captured.hpp"

#include <fmt/format.h>

#include "base/secrets.hpp"
#include "perfmodel/graph/captured.hpp"

namespace perfmodel {
namespace {

namespace dom = simdjson::dom;

// " (3 times, first at train.py:41)"
std::string circumstances(dom::element assumption) {
  std::int64_t count = 1;
  std::string_view where;
  const bool often = assumption["count"].get(count) == simdjson::SUCCESS && count > 1;
  const bool known = assumption["where"].get(where) == simdjson::SUCCESS && !where.empty();
  if (!often && !known) return "";
  const std::string times = often ? fmt::format("{} times", count) : "";
  return fmt::format(" ({}{}{}{})", times, often && known ? ", first " : "", known ? "at " : "",
                     shown_text(where));
}

}  // namespace

void read_captured(dom::element head, ExecutionGraph& graph) {
  constexpr std::size_t kLongestSentence = 400;
  if (!head.is_object()) {
    graph.warnings.emplace_back("the head \"captured\" is no object and is left out");
    return;
  }
  const std::string text = simdjson::minify(head);
  graph.captured = mask_secrets(text) ? "{}" : text;
  dom::array assumptions;
  if (head["assumptions"].get(assumptions) != simdjson::SUCCESS) return;
  for (dom::element assumption : assumptions) {
    std::string_view sentence;
    if (assumption["text"].get(sentence) != simdjson::SUCCESS) continue;
    graph.warnings.push_back(fmt::format("{}{}{}", kCapturedPrefix,
                                         shown_text(sentence, kLongestSentence),
                                         circumstances(assumption)));
  }
}

}  // namespace perfmodel
