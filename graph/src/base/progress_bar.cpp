#include "progress_bar.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <utility>

namespace perfmodel {
namespace {

using Seconds = std::chrono::duration<double>;
using std::chrono::steady_clock;

constexpr std::size_t kLabelWidth = 24;
constexpr std::size_t kBarWidth = 24;
constexpr auto kRedraw = std::chrono::milliseconds(100);
constexpr auto kQuiet = std::chrono::seconds(1);

thread_local bool quiet_here = false;

bool stderr_is_terminal() {
  if (quiet_here || !isatty(STDERR_FILENO)) return false;
  const char* terminal = std::getenv("TERM");
  return terminal && std::strcmp(terminal, "dumb") != 0;
}

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

std::size_t characters(const std::string& text) {
  return text.size() - static_cast<std::size_t>(std::count_if(text.begin(), text.end(), continues));
}

std::string shortened(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';  // a line break would stay on the screen
  }
  if (characters(text) <= kLabelWidth) return text;
  while (characters(text) >= kLabelWidth) {
    while (continues(text.back())) text.pop_back();
    text.pop_back();
  }
  return text + "…";
}

std::string remaining_text(Seconds remaining) {
  if (remaining > std::chrono::hours(99)) return "more than 99 h left";
  const auto seconds = std::lround(remaining.count());
  if (seconds < 60) return fmt::format("{} s left", seconds);
  if (seconds < 3600) return fmt::format("{} min {:02} s left", seconds / 60, seconds % 60);
  return fmt::format("{} h {:02} min left", seconds / 3600, seconds / 60 % 60);
}

}  // namespace

QuietProgress::QuietProgress() : outer_(quiet_here) { quiet_here = true; }
QuietProgress::~QuietProgress() { quiet_here = outer_; }

ProgressBar::ProgressBar(std::string label, std::size_t steps, Unit unit)
    : ProgressBar(std::move(label), steps, stderr_is_terminal() ? &std::cerr : nullptr,
                  steady_clock::now, unit) {}

ProgressBar::ProgressBar(std::string label, std::size_t steps, std::ostream* out, Clock clock,
                         Unit unit)
    : label_(shortened(std::move(label))),
      steps_(steps),
      unit_(unit),
      out_(out),
      clock_(std::move(clock)) {
  if (!out_) return;
  start_ = clock_();
  drawn_ = start_ - kRedraw;
  update(0);
}

void ProgressBar::update(std::size_t done) {
  const bool is_open = unit_ == Unit::kTries || (unit_ == Unit::kBytes && steps_ == 0);
  done_ = is_open ? done : std::min(done, steps_);
  if (!out_) return;
  const auto now = clock_();
  if (now - drawn_ < kRedraw) return;
  if (unit_ != Unit::kSteps && now - start_ < kQuiet) return;
  drawn_ = now;
  std::string text = line(now - start_);
  const std::size_t width = characters(text);
  if (width < width_) text.append(width_ - width, ' ');
  width_ = width;
  *out_ << '\r' << text << std::flush;
}

void ProgressBar::finish() {
  if (!out_) return;
  *out_ << '\r' << std::string(width_, ' ') << '\r' << std::flush;
  out_ = nullptr;
}

std::string ProgressBar::rate(Seconds elapsed) const {
  return fmt::format("{:.0f} MB/s", static_cast<double>(done_) * 1e-6 / elapsed.count());
}

std::string ProgressBar::line(Seconds elapsed) const {
  if (unit_ == Unit::kBytes && steps_ == 0) {
    return fmt::format("{} {:.0f} MB  {}", label_, static_cast<double>(done_) * 1e-6,
                       rate(elapsed));
  }
  if (unit_ == Unit::kTries)
    return fmt::format("{} {} tried  {:.0f} s", label_, done_, elapsed.count());
  const double share = steps_ == 0 ? 1.0 : static_cast<double>(done_) / static_cast<double>(steps_);
  const auto filled = static_cast<std::size_t>(share * static_cast<double>(kBarWidth));
  std::string text = fmt::format("{} [{:#>{}}{:.>{}}] {:3} %", label_, "", filled, "",
                                 kBarWidth - filled, static_cast<int>(share * 100));
  if (unit_ == Unit::kBytes) text += "  " + rate(elapsed);
  if (done_ > 0 && done_ < steps_ && elapsed >= Seconds(1)) {
    text += "  " + remaining_text(elapsed * (1 - share) / share);
  }
  return text;
}

}  // namespace perfmodel
