#include <fmt/format.h>

#include <array>
#include <utility>

#include "perfmodel/graph/rewrites/retarget.hpp"
#include "rewrite_flags.hpp"

namespace perfmodel::cli {
namespace {

using Vendor = RetargetOptions::Vendor;
using Inputs = RetargetOptions::Inputs;

constexpr std::array<std::pair<std::string_view, Vendor>, 2> kVendors = {
    {{"nvidia", Vendor::kNvidia}, {"amd", Vendor::kAmd}}};
constexpr std::array<std::pair<std::string_view, Inputs>, 3> kInputs = {
    {{"pinned", Inputs::kPinned},
     {"pageable", Inputs::kPageable},
     {"on-device", Inputs::kOnDevice}}};

template <class Choices, class Choice>
bool choose(const Choices& choices, std::string_view name, Choice& chosen) {
  for (const auto& [known, value] : choices) {
    if (known == name) {
      chosen = value;
      return true;
    }
  }
  return false;
}

Result<Rewrite> parse_retarget(const std::string& text) {
  RetargetOptions options;
  const std::string_view all = text;
  const std::size_t comma = all.find(',');
  if (!choose(kVendors, all.substr(0, comma), options.vendor)) {
    return fail(
        ErrorCode::kUnknownName,
        fmt::format("expected a GPU vendor (nvidia, amd), found \"{}\"", all.substr(0, comma)));
  }
  if (comma != all.npos && !choose(kInputs, all.substr(comma + 1), options.inputs)) {
    return fail(
        ErrorCode::kUnknownName,
        fmt::format("expected where the inputs lie (pinned, pageable, on-device), found \"{}\"",
                    all.substr(comma + 1)));
  }
  return [options](const ExecutionGraph& graph) { return retarget(graph, options); };
}

}  // namespace

RewriteOption retarget_option() {
  return {.flag = "--retarget",
          .value = "VENDOR[,INPUTS]",
          .help =
              "Turn a graph of a machine without a GPU into the one that a GPU of this vendor "
              "(nvidia, amd) would have given; inputs are pinned (default), pageable or on-device",
          .parse = parse_retarget};
}

}  // namespace perfmodel::cli
