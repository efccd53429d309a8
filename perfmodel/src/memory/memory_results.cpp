#include "memory_results.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace perfmodel {
namespace {

OrderedNumbers held_by_purpose(const PredictedMemory& memory) {
  OrderedNumbers purposes;
  for (const auto& [purpose, bytes] : memory.held.by_purpose()) {
    purposes[std::string(purpose)] = bytes;
  }
  return purposes;
}

}  // namespace

const ResultFields<PredictedMemory> kHeldMemoryFields = {
    {"static_bytes", &PredictedMemory::static_bytes},
    {"static_fits", &PredictedMemory::static_fits},
    {"by_purpose", held_by_purpose, Digits::kWhole},
};

const ResultFields<PredictedMemory> kMemoryFields = {
    {"peak_allocated_bytes", &PredictedMemory::peak_allocated_bytes},
    {"peak_reserved_bytes", &PredictedMemory::peak_reserved_bytes},
    {"context_bytes", &PredictedMemory::context_bytes},
    {"needed_bytes", &PredictedMemory::needed_bytes},
    {"low_bytes", &PredictedMemory::low_bytes},
    {"high_bytes", &PredictedMemory::high_bytes},
    {"device_bytes", &PredictedMemory::device_bytes},
    {"fits", &PredictedMemory::fits},
    {"headroom_bytes", &PredictedMemory::headroom_bytes},
    {"activation_bytes", &PredictedMemory::activation_bytes},
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

OrderedJson predicted_memory_json(const PredictedMemory& memory, bool all_digits) {
  if (!(memory.needed_bytes() > 0)) return nullptr;  // of a trace
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

std::string gib_text(double bytes) { return fmt::format("{:.2f}", bytes / (1 << 30)); }

}  // namespace perfmodel
