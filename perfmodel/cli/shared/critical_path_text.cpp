#include "critical_path_text.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/number_text.hpp"
#include "explain/op_title.hpp"
#include "prediction_parts.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {

std::string critical_path_text(const CriticalPath& path, const std::string& title, std::size_t top,
                               bool bold) {
  const TimeUnit time(path.step_us);
  const std::string unit = time.name();
  TextTable shares{"Critical path of the " + title, unit, "share"};
  for (const auto& share : path.shares) {
    shares.row({share.category, time(share.us), percent_of(share.us, path.step_us)});
  }
  std::string text = "\n" + shares.text(bold);

  TextTable steps{"Longest on it", "<what", unit, "share", "tasks", "step if free " + unit};
  for (std::size_t i = 0; i < std::min(top, path.steps.size()); ++i) {
    const auto& step = path.steps[i];
    steps.row({op_title(step.op), step.category, time(step.us), percent_of(step.us, path.step_us),
               grouped(step.count), step.step_if_free_us >= 0 ? time(step.step_if_free_us) : ""});
  }
  if (!steps.empty()) text += "\n" + steps.text(bold);
  if (top > 0 && path.steps.size() > top)
    text += fmt::format("  ({} more)\n", path.steps.size() - top);

  TextTable beside{"Beside it", "<what", "own " + unit, "slack " + unit};
  for (std::size_t i = 0; i < std::min(top, path.off_path.size()); ++i) {
    const auto& step = path.off_path[i];
    beside.row({op_title(step.op), step.category, time(step.own_us),
                step.slack_us < path.step_us ? time(step.slack_us) : "a whole step"});
  }
  if (!beside.empty()) text += "\n" + beside.text(bold);
  return text;
}

}  // namespace perfmodel::cli
