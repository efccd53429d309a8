#include "perfmodel/graph/detail/collective_name.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/lower_case.hpp"

namespace perfmodel {
namespace {

// Makes "_allgather_base" and "ncclDevKernel_AllGather_RING" alike and cuts the name at a bracket.
std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name.substr(0, name.find('('))) {
    if (c != '_') plain += lower_case(c);
  }
  return plain;
}

}  // namespace

std::string_view collective_in_name(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
      {"allreduce", "all_reduce"},
      {"crossdevicereduce", "all_reduce"},  // vLLM's, SGLang's
      {"allgather", "all_gather"},
      {"reducescatter", "reduce_scatter"},
      {"alltoall", "all_to_all"},
      {"sendrecv", "all_to_all"},
      {"dispatch", "all_to_all"},  // carries tokens to experts, and back
      {"combine", "all_to_all"},
      {"broadcast", "broadcast"},
      {"barrier", "all_reduce"},
      {"send", "send"},
      {"recv", "recv"},
      {"reduce", "reduce"},
      {"gather", "gather"},
      {"scatter", "scatter"}};
  const std::string plain = plain_name(name);
  for (const auto& [text, kind] : kKinds) {
    if (plain.find(text) != std::string::npos) return kind;
  }
  return {};
}

std::string_view collective_of_op(std::string_view op_name) {
  const std::size_t scope = op_name.find("::");
  if (scope == op_name.npos || op_name.starts_with("aten::")) return {};
  const std::string_view own = op_name.substr(scope + 2);
  const std::string_view kind = collective_in_name(own);
  std::string text(kind);
  std::erase(text, '_');
  return kind.find('_') != kind.npos && plain_name(own).find(text) != std::string::npos
             ? kind
             : std::string_view();
}

}  // namespace perfmodel
