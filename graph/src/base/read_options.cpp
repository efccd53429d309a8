#include "perfmodel/graph/detail/read_options.hpp"

#include <fmt/format.h>

#include <limits>

#include "byte_amount.hpp"

namespace perfmodel {
namespace {

struct Limit {
  std::string_view name;
  std::uint64_t most;
  void (*set)(ReadLimits&, std::uint64_t);
};

constexpr std::uint64_t kUnbounded = std::numeric_limits<std::int64_t>::max();

constexpr Limit kLimits[] = {
    {"nesting", ReadLimits::kMostNesting, [](ReadLimits& l, std::uint64_t v) { l.nesting = v; }},
    {"depth", ReadLimits::kMostDepth, [](ReadLimits& l, std::uint64_t v) { l.depth = v; }},
    {"string-bytes", kUnbounded, [](ReadLimits& l, std::uint64_t v) { l.string_bytes = v; }},
    {"element-bytes", (std::uint64_t{1} << 32) - 1,
     [](ReadLimits& l, std::uint64_t v) { l.element_bytes = v; }},
    {"elements", ReadLimits::kMostElements, [](ReadLimits& l, std::uint64_t v) { l.elements = v; }},
    {"kept-bytes", kUnbounded, [](ReadLimits& l, std::uint64_t v) { l.kept_bytes = v; }},
    {"inflation", kUnbounded, [](ReadLimits& l, std::uint64_t v) { l.inflation = v; }},
};

}  // namespace

std::string read_limit_names() {
  std::string names;
  for (const Limit& limit : kLimits) {
    if (!names.empty()) names += ", ";
    names += limit.name;
  }
  return names;
}

Result<void> set_limit(ReadLimits& limits, std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  const std::string_view name = assignment.substr(0, equals);
  for (const Limit& limit : kLimits) {
    if (limit.name != name) continue;
    if (equals == std::string_view::npos) break;
    const std::string_view text = assignment.substr(equals + 1);
    const auto value = byte_amount(text);
    if (!value || *value < 1 || *value > limit.most) {
      return fail(ErrorCode::kFormat,
                  fmt::format("expected {} from 1 to {} (or with KiB, MiB, GiB), found {}", name,
                              limit.most, text));
    }
    limit.set(limits, *value);
    return {};
  }
  return fail(ErrorCode::kUnknownName, fmt::format("expected NAME=VALUE, NAME one of {}, found {}",
                                                   read_limit_names(), assignment));
}

}  // namespace perfmodel
