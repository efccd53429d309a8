#include "memory_results.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>

namespace perfmodel {
namespace {

OrderedNumbers held_by_purpose(const PredictedMemory& memory) {
  OrderedNumbers purposes;
  for (const auto& [purpose, bytes] : memory.held.by_purpose()) {
    purposes[std::string(purpose)] = bytes;
  }
  return purposes;
}

OrderedJson name_or_null(const std::optional<Gpu>& gpu) {
  return gpu ? OrderedJson(gpu->name) : OrderedJson();
}

void make_null(OrderedJson& json, std::initializer_list<const char*> keys) {
  for (const char* key : keys) json[key] = nullptr;
}

}  // namespace

const ResultFields<PredictedMemory> kHeldMemoryFields = {
    PERFMODEL_FIELDS(PredictedMemory, static_bytes, static_fits),
    {"by_purpose", held_by_purpose, Digits::kWhole},
};

const ResultFields<PredictedMemory> kMemoryFields = {
    PERFMODEL_FIELDS(PredictedMemory, peak_allocated_bytes, peak_reserved_bytes, context_bytes,
                     needed_bytes, low_bytes, high_bytes, device_bytes, fits, headroom_bytes,
                     activation_bytes),
};

const ResultFields<LargeStorage> kLargeStorageFields = {
    {"bytes", &LargeStorage::bytes, Digits::kWhole, "GiB", gib_text},
    {"purpose", &LargeStorage::purpose, "<purpose"},
    {"op", &LargeStorage::made_by, "largest at the peak",
     [](const std::string& op) { return op.empty() ? "from outside" : op; }},
    {"node", &LargeStorage::node, "node",
     [](std::int64_t node) { return node >= 0 ? std::to_string(node) : ""; }},
    {"shape", &LargeStorage::shape, "<tensor",
     [](const LargeStorage& storage) {
       return fmt::format("{} [{}]", to_string(storage.dtype), fmt::join(storage.shape, " "));
     }},
    {"dtype", &LargeStorage::dtype},
};

const ResultFields<WayToFit> kWayFields = {
    {"how", &WayToFit::how, "ways to fit"},
    {"needed_bytes", [](const auto& way) { return way.answer.memory.needed_bytes(); }, "GiB",
     gib_text},
    {"batch", [](const auto& way) { return way.answer.batch; }, "batch",
     [](std::int64_t batch) { return std::to_string(batch); }},
    {"gpus", [](const auto& way) { return way.answer.ranks; }},
    {"e2e_us", [](const auto& way) { return way.answer.e2e_us; }, "step ms",
     [](double us) { return fmt::format("{:.2f}", us / 1000); }},
    {"time_per_sample_ratio", &WayToFit::slowdown, "time per sample",
     [](double slowdown) { return signed_percent(slowdown - 1); }},
};

OrderedJson predicted_memory_json(const PredictedMemory& memory, bool all_digits) {
  if (!(memory.needed_bytes() > 0)) return nullptr;  // a trace has none
  static const auto kFields = named_fields(
      joined_fields<PredictedMemory>({kHeldMemoryFields, kMemoryFields}),
      {"static_bytes", "activation_bytes", "peak_allocated_bytes", "peak_reserved_bytes",
       "needed_bytes", "device_bytes", "static_fits", "fits", "by_purpose"});
  return json_object(memory, kFields, all_digits);
}

OrderedNumbers named_purposes(const MemoryByPurpose& bytes) {
  OrderedNumbers purposes;
  for (std::size_t i = 0; i < kMemoryPurposes; ++i) {
    purposes[std::string(to_string(static_cast<MemoryPurpose>(i)))] = bytes[i];
  }
  return purposes;
}

OrderedJson memory_json(const MemoryAnswer& answer) {
  const MemoryReport& report = answer.report;
  MemoryByPurpose own = report.each_peak;
  for (std::size_t i = 0; i < kMemoryPurposes; ++i) {
    own[i] = std::max(own[i], report.memory.by_purpose[i]);
  }
  OrderedJson json = {{"graph", answer.graph_file},
                      {"gpu", name_or_null(answer.gpu)},
                      {"batch", json_value(answer.batch)},
                      {"world", answer.zero.world},
                      {"zero", answer.zero.stage}};
  json.update(json_object(report.memory, kMemoryFields));
  if (!answer.gpu) make_null(json, {"device_bytes", "fits", "headroom_bytes"});
  json.update(
      {{"activations", report.activations},
       {"bytes_per_sample", with_digits(json_value(answer.bytes_per_sample), Digits::kWhole)},
       {"by_purpose", with_digits(named_purposes(report.memory.by_purpose), Digits::kWhole)},
       {"own_peaks", with_digits(named_purposes(own), Digits::kWhole)},
       {"peak", {{"op", report.peak_op}, {"node", report.peak_node}}},
       {"largest", json_list(report.largest, kLargeStorageFields)}});
  if (!answer.rewrites.empty()) json["rewrites"] = answer.rewrites;
  if (answer.most) json["max_batch"] = answer.most->batch;
  if (answer.ways) json["ways"] = json_list(answer.ways->fitting, kWayFields);
  json["warnings"] = answer.warnings;
  return json;
}

OrderedJson memory_json(const MemoryOfTrace& recorded) {
  const bool measured = recorded.measured();
  OrderedJson json = {{"graph", recorded.file},
                      {"gpu", name_or_null(recorded.gpu)},
                      {"measured", measured},
                      {"device", measured ? OrderedJson(recorded.device) : OrderedJson()},
                      {"batch", nullptr}};
  json.update(json_object(recorded.memory, kMemoryFields));
  json.update({{"bytes_per_sample", nullptr},
               {"by_purpose", nullptr},
               {"peak", {{"op", recorded.peak_op}, {"node", nullptr}}},
               {"warnings", recorded.warnings}});
  make_null(json, {"activation_bytes"});
  if (!recorded.gpu) make_null(json, {"device_bytes"});
  if (!recorded.fits()) make_null(json, {"fits", "headroom_bytes"});
  if (!measured) {
    make_null(json, {"peak_allocated_bytes", "peak_reserved_bytes", "needed_bytes", "low_bytes",
                     "high_bytes"});
  }
  return json;
}

std::string gib_text(double bytes) { return fmt::format("{:.2f}", bytes / (1 << 30)); }

}  // namespace perfmodel
