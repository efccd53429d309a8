#include "json_kind.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/plain_text.hpp"
#include "json_stream.hpp"

namespace perfmodel {

std::vector<std::string_view> json_keys(std::string_view text) {
  std::vector<std::string_view> keys;
  std::size_t depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth == 0) break;
    if (c != '"') continue;
    const std::size_t begin = ++at;
    while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
    const std::size_t next = text.find_first_not_of(" \t\r\n", at + 1);
    const bool is_key = next != text.npos && text[next] == ':';
    if (depth == 1 && is_key) keys.push_back(text.substr(begin, at - begin));
    if (depth == 0) break;
  }
  return keys;
}

std::string_view document_of_key(std::string_view key) {
  constexpr std::pair<std::string_view, std::string_view> kDocuments[] = {
      {"e2e_us", "an answer of `predict`"},
      {"peak_allocated_bytes", "an answer of `memory`"},
      {"layouts", "an answer of `layout`"},
      {"plans", "an answer of `shard`"},
      {"findings", "an answer of `analyze`"},
      {"boost_clock_mhz", "a GPU file, which --gpu takes"},
      {"profiler_cost_us", "a table of overheads, which --overheads takes"},
      {"gpus_per_node", "a topology file, which --topology takes"},
      {"rewrites", "a sweep, which `sweep` takes"},
      {"model_type", "a Hugging Face config.json, which `layout` takes"},
      {"zero_optimization", "settings of DeepSpeed, which `layout --job` takes"},
  };
  const auto* row =
      std::ranges::find(kDocuments, key, &std::pair<std::string_view, std::string_view>::first);
  return row == std::end(kDocuments) ? std::string_view() : row->second;
}

bool is_memory_segment(const std::vector<std::string_view>& keys) {
  return std::ranges::any_of(keys, [](std::string_view key) {
    return key == "total_size" || key == "allocated_size" || key == "segment_type";
  });
}

void JsonKind::see(std::string_view key) {
  const bool is_open = kind_ == Kind::kUnknown || (kind_ == Kind::kChakra && !whole_);
  if (const auto own = document_of_key(key); is_open && !own.empty()) {
    kind_ = Kind::kOwn;
    own_ = own;
    whole_ = true;
  } else if (key == "rocprofiler-sdk-tool") {
    kind_ = Kind::kRocprofiler;
  } else if (key == "traceEvents" || key == "deviceProperties" || key == "traceName" ||
             key == "schemaVersion") {
    kind_ = Kind::kTrace;
  } else if (key == "workload_graph") {
    kind_ = Kind::kChakra;
  } else if (kind_ == Kind::kUnknown) {
    if (key == "segments" || key == "device_traces") kind_ = Kind::kSnapshot;
    if (key == "nodes") kind_ = Kind::kGraph;
    if (key == "$schema" || key == "activeProfileIndex") kind_ = Kind::kSpeedscope;
    if (key == "CudaEvent" || key == "NvtxEvent" || key == "TraceProcessEvent" || key == "Type") {
      kind_ = Kind::kNsight;
      whole_ = false;
    }
    // chakra_jsonizer prints a head with its version and a document per node.
    if (key == "version" || key == "ctrlDeps" || key == "dataDeps") {
      kind_ = Kind::kChakra;
      whole_ = false;
    }
  } else if (key == "nodes" && !whole_) {
    kind_ = Kind::kGraph;
    whole_ = true;
  }
}

void JsonKind::see_elements(const JsonStream& stream) {
  constexpr std::size_t kMost = 16;
  for (std::size_t i = 0; i < std::min(stream.element_count(), kMost); ++i) {
    see_element(stream.element_text(i));
  }
}

void JsonKind::see_element(std::string_view text) {
  if (kind_ != Kind::kUnknown) return;
  const std::vector<std::string_view> keys = json_keys(text);
  const auto has = [&](std::string_view key) { return std::ranges::find(keys, key) != keys.end(); };
  if (has("ph") || (has("ts") && has("name"))) {
    kind_ = Kind::kTrace;
  } else if (has("id") && has("name")) {
    kind_ = Kind::kGraph;
  } else if (is_memory_segment(keys)) {
    kind_ = Kind::kSnapshot;
  } else if (has("CudaEvent") || has("TraceProcessEvent")) {
    kind_ = Kind::kNsight;
  } else if (elements_.empty()) {
    elements_ = json_kind(text);
    for (std::size_t i = 0; i < std::min<std::size_t>(keys.size(), 3); ++i) {
      elements_ += fmt::format("{} \"{}\"", i == 0 ? " with" : ",", plain_text(keys[i]));
    }
  }
}

std::string JsonKind::found() const {
  switch (kind_) {
    case Kind::kGraph: return ", found an execution graph";
    case Kind::kTrace: return ", found a timed (Kineto) trace";
    case Kind::kChakra: return ", found a Chakra trace as JSON (the binary .et is read)";
    case Kind::kRocprofiler:
      return ", found JSON of rocprofiler-sdk (rocprofv3), which has no ops; record with "
             "torch.profiler";
    case Kind::kSnapshot:
      return ", found a snapshot of PyTorch's allocator (`trace` reads it as a file)";
    case Kind::kNsight:
      return ", found a JSON export of Nsight Systems (nsys), which has no ops; record with "
             "torch.profiler";
    case Kind::kSpeedscope: return ", found a profile for speedscope; record with torch.profiler";
    case Kind::kOwn: return fmt::format(", found {}", own_);
    case Kind::kUnknown: break;
  }
  return elements_.empty() ? "" : ", found an array whose first element is " + elements_;
}

}  // namespace perfmodel
