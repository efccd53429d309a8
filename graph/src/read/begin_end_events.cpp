#include "begin_end_events.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace perfmodel {

std::int32_t BeginEndEvents::number(std::string_view thread) {
  return threads_.try_emplace(std::string(thread), static_cast<std::int32_t>(threads_.size()))
      .first->second;
}

void BeginEndEvents::begin(std::string_view thread, std::string_view name, std::int64_t stamp_ns,
                           Place place) {
  borders_.push_back({number(thread), true, hash_text(name), stamp_ns, place});
}

void BeginEndEvents::end(std::string_view thread, std::string_view name, std::int64_t stamp_ns) {
  borders_.push_back({number(thread), false, name.empty() ? 0 : hash_text(name), stamp_ns, {}});
}

void BeginEndEvents::pair(Trace& trace) {
  std::ranges::stable_sort(borders_, {}, [](const Border& border) {
    return std::tuple(border.thread, border.stamp_ns);
  });
  std::size_t without_end = 0, without_begin = 0;
  std::vector<const Border*> open;
  std::int32_t thread = -1;
  for (const Border& border : borders_) {
    if (border.thread != thread) {
      without_end += open.size();
      open.clear();
      thread = border.thread;
    }
    if (border.is_begin) {
      open.push_back(&border);
    } else {
      auto at = open.rbegin();
      while (border.name != 0 && at != open.rend() && (*at)->name != border.name) ++at;
      if (at == open.rend()) {
        ++without_begin;
        continue;
      }
      const Border& begin = **at;
      // Events that began in it and have not ended never will.
      without_end += static_cast<std::size_t>(at - open.rbegin());
      open.erase(std::next(at).base(), open.end());
      const std::int64_t length = border.stamp_ns - begin.stamp_ns;
      if (begin.place.host >= 0) {
        trace.host[begin.place.host].duration_ns = length;
      } else if (begin.place.gpu >= 0) {
        trace.gpu[begin.place.gpu].duration_ns = length;
      }
    }
  }
  without_end += open.size();
  trace.recording.say(
      "begin_without_end", without_end,
      fmt::format("{} events begin (phase B) and never end: they count as events of "
                  "no length",
                  without_end));
  trace.recording.say("end_without_begin", without_begin,
                      fmt::format("{} ends of events (phase E) have no begin in the file and are "
                                  "left out",
                                  without_begin));
}

}  // namespace perfmodel
