#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "perfmodel/graph/trace.hpp"

namespace perfmodel {

/// Events written in two parts, phases "B" and "E" of Chrome's format: an end belongs to the last
/// begin of its thread and name that is still open, an end without a name to the last one. Begins
/// are kept as events of no length until then.
class BeginEndEvents {
 public:
  /// Place of a begin's event; neither: it is not read, but its end must find it.
  struct Place {
    std::int32_t host = -1, gpu = -1;
  };

  void begin(std::string_view thread, std::string_view name, std::int64_t stamp_ns, Place place);
  /// `name` may be empty.
  void end(std::string_view thread, std::string_view name, std::int64_t stamp_ns);

  std::size_t size() const { return borders_.size(); }
  void resize(std::size_t size) { borders_.resize(size); }

  /// Gives the begun events of `trace` their lengths. An event without an end keeps no length. Such
  /// events, and ends without a begin, are counted in `Trace::recording`.
  void pair(Trace& trace);

 private:
  struct Border {
    std::int32_t thread = 0;
    bool is_begin = false;
    std::uint64_t name = 0;  // its hash; 0: none
    std::int64_t stamp_ns = 0;
    Place place;
  };
  std::int32_t number(std::string_view thread);

  std::vector<Border> borders_;
  std::unordered_map<std::string, std::int32_t> threads_;
};

}  // namespace perfmodel
