#include "xplane_lanes.hpp"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "base/secrets.hpp"

namespace perfmodel {
namespace {

// The number after `before`, which may end the text or not.
std::optional<std::int64_t> number_behind(std::string_view text, std::string_view before) {
  const std::size_t at = text.find(before);
  if (at == text.npos) return {};
  std::int64_t value = 0;
  const char* const begin = text.data() + at + before.size();
  const auto [past, error] = std::from_chars(begin, text.data() + text.size(), value);
  if (error != std::errc()) return {};
  return value;
}

std::string lane_key(std::string_view process, std::string_view thread) {
  return fmt::format("{}\n{}", process, thread);
}

}  // namespace

void XplaneLanes::name_process(std::string_view process, std::string_view name) {
  constexpr std::size_t kMostProcesses = 4096;
  if (!name.starts_with("/device:") && !name.starts_with("/host:")) return;
  if (processes_.size() >= kMostProcesses) return;
  Process made{.name = std::string(name)};
  if (name.starts_with("/host:CPU") || name.starts_with("/host:python")) {
    made.kind = Kind::kHost;
  } else if (const auto device = number_behind(name, "/device:GPU:");
             device && *device >= 0 && *device < INT16_MAX) {
    made.kind = Kind::kStream;
    made.device = static_cast<std::int16_t>(*device);
  }
  processes_.insert_or_assign(std::string(process), std::move(made));
}

void XplaneLanes::name_thread(std::string_view process, std::string_view thread,
                              std::string_view name) {
  const auto of = processes_.find(process);
  if (of == processes_.end() || of->second.kind != Kind::kStream) return;
  const auto stream = number_behind(name, "Stream #");
  lanes_.insert_or_assign(lane_key(process, thread),
                          Lane{.kind = stream ? Kind::kStream : Kind::kDerived,
                               .device = of->second.device,
                               .stream = stream.value_or(0)});
}

XplaneLanes::Lane XplaneLanes::lane(std::string_view process, std::string_view thread) {
  const auto of = processes_.find(process);
  if (of == processes_.end()) return {};
  if (of->second.kind == Kind::kOther) ++of->second.unread;
  if (of->second.kind != Kind::kStream) return {.kind = of->second.kind};
  const auto known = lanes_.find(lane_key(process, thread));
  if (known == lanes_.end() || known->second.kind == Kind::kDerived) {
    ++derived_;
    return {.kind = Kind::kDerived};
  }
  return known->second;
}

std::string XplaneLanes::unread() const {
  std::string list;
  for (const auto& [id, process] : processes_) {
    if (process.unread == 0) continue;
    list += fmt::format("{}{} ({} events)", list.empty() ? "" : ", ", shown_text(process.name),
                        process.unread);
  }
  return list;
}

std::int64_t bytes_of_xplane_copy(std::string_view details) {
  return number_behind(details, "size:").value_or(0);
}

}  // namespace perfmodel
