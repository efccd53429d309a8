#include "perfmodel/graph/detail/event_names.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/lower_case.hpp"
#include "base/names_data.hpp"

namespace perfmodel {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 2> kCheckpointPrefixes = {
    "CheckpointFunction", "autograd::engine::evaluate_function: CheckpointFunctionBackward"};

constexpr std::array<std::string_view, 9> kLabelPrefixes = {"ProfilerStep",
                                                            "##",
                                                            "Optimizer.",
                                                            "enumerate(DataLoader)",
                                                            "DistributedDataParallel.",
                                                            "nn.Module:",
                                                            "[param|",
                                                            "[pytorch|",
                                                            "DLRM "};

template <std::size_t kCount>
bool starts_with_any(const std::array<std::string_view, kCount>& prefixes, std::string_view name) {
  if (name.empty()) return false;
  return std::any_of(prefixes.begin(), prefixes.end(), [name](std::string_view prefix) {
    return prefix.front() == name.front() && name.starts_with(prefix);
  });
}

// data/names/calls.json
class CallNames {
 public:
  CallNames() {
    const Json file = Json::parse(kCallNamesJson);
    for (const Json& row : file.at("rows")) {
      const auto [at, added] =
          kinds_.emplace(row.at("name").get<std::string>(), row.at("is").get<std::string>());
      if (at->second == "graph") graphs_.push_back(at->first);
    }
  }

  bool launches_graphs(std::string_view call) const {
    return std::ranges::find(graphs_, call) != graphs_.end();
  }

  /// "kernel", "copy", "set", "graph", "wait_stream", ...; empty: not known.
  std::string_view kind(std::string_view call) const {
    const auto found = kinds_.find(call);
    return found == kinds_.end() ? std::string_view() : found->second;
  }

 private:
  std::map<std::string, std::string, std::less<>> kinds_;
  std::vector<std::string> graphs_;  // asked for each piece of device work
};

const CallNames& call_names() {
  static const CallNames names;
  return names;
}

std::string_view kind_of_call(std::string_view name) { return call_names().kind(name); }

struct KernelNameHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const {
    return std::hash<std::string_view>()(name);
  }
};

// data/names/kernels.json
class KernelNames {
 public:
  KernelNames() {
    const Json file = Json::parse(kKernelNamesJson);
    file.at("generated").get_to(generated_);
    for (const Json& row : file.at("rows")) {
      const bool starts = row.contains("starts");
      rows_.push_back({.part = row.at(starts ? "starts" : "contains").get<std::string>(),
                       .kind = row.at("is").get<std::string>(),
                       .starts = starts});
    }
  }

  std::string_view kind(std::string_view kernel) const {
    std::string lower(kernel);
    std::ranges::transform(lower, lower.begin(), [](char c) { return lower_case(c); });
    const bool generated = std::ranges::any_of(
        generated_, [&](const std::string& prefix) { return lower.starts_with(prefix); });
    // FBGEMM is a library of embeddings, but its name contains "gemm".
    if (const auto at = lower.find("fbgemm"); at != lower.npos) lower.erase(at, 6);
    for (const Row& row : rows_) {
      if (generated && row.kind == "collective") continue;
      if (row.starts ? lower.starts_with(row.part) : lower.find(row.part) != lower.npos) {
        return row.kind;
      }
    }
    return {};
  }

 private:
  struct Row {
    std::string part, kind;
    bool starts = false;  // the name begins with the part; else it holds it
  };
  std::vector<Row> rows_;
  std::vector<std::string> generated_;
};

}  // namespace

bool is_label_name(std::string_view name) {
  return starts_with_any(kLabelPrefixes, name) || is_checkpoint_name(name);
}

bool is_checkpoint_name(std::string_view name) {
  return starts_with_any(kCheckpointPrefixes, name);
}

bool is_structural_name(std::string_view name) { return name.starts_with("[pytorch|"); }

bool is_launch_call(std::string_view name) {
  const std::string_view kind = kind_of_call(name);
  return !kind.empty() && !kind.starts_with("wait");
}

bool is_copy_call(std::string_view name) { return kind_of_call(name) == "copy"; }

bool is_kernel_call(std::string_view name) { return kind_of_call(name) == "kernel"; }

bool is_graph_launch_call(std::string_view name) {
  return name.ends_with("GraphLaunch") || call_names().launches_graphs(name);
}

SyncKind sync_kind(std::string_view name) {
  const std::string_view kind = kind_of_call(name);
  if (kind == "wait_stream") return SyncKind::kStream;
  if (kind == "wait_event") return SyncKind::kEvent;
  if (kind == "wait_device") return SyncKind::kDevice;
  // Variants of a version ("cudaStreamSynchronize_v3020", "cuStreamSynchronize_ptsz").
  const std::size_t at = name.find("Synchronize_");
  return at == name.npos ? SyncKind::kNone : sync_kind(name.substr(0, at + 11));
}

std::string_view kind_of_kernel(std::string_view name) {
  static const KernelNames names;
  // Traces repeat some hundred long names a million times.
  constexpr std::size_t kMostKnown = 4096;
  thread_local std::unordered_map<std::string, std::string_view, KernelNameHash, std::equal_to<>>
      known;
  if (const auto at = known.find(name); at != known.end()) return at->second;
  if (known.size() >= kMostKnown) known.clear();
  return known.emplace(name, names.kind(name)).first->second;
}

bool is_collective_kernel(std::string_view name) { return kind_of_kernel(name) == "collective"; }

bool is_compiled_region(std::string_view name) {
  constexpr std::array<std::string_view, 3> kPrefixes = {
      "Torch-Compiled Region", "CompiledFunction",
      "autograd::engine::evaluate_function: CompiledFunction"};
  return starts_with_any(kPrefixes, name);
}

bool is_profiler_step(std::string_view name) { return name.starts_with("ProfilerStep"); }

}  // namespace perfmodel
