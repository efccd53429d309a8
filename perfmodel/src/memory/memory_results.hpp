#pragma once

#include "fields/result_field.hpp"
#include "memory/memory_answer.hpp"
#include "memory/memory_of_trace.hpp"

namespace perfmodel {

/// Figures of a step as documents about memory have them; a new figure is a line here.
extern const ResultFields<PredictedMemory> kMemoryFields;
/// The part that does not depend on the batch.
extern const ResultFields<PredictedMemory> kHeldMemoryFields;
extern const ResultFields<LargeStorage> kLargeStorageFields;
extern const ResultFields<WayToFit> kWayFields;

/// Memory as answers to `predict` have it; null: not known. `all_digits`: see `json_object`.
OrderedJson predicted_memory_json(const PredictedMemory& memory, bool all_digits = false);

/// The answer of `memory`, without the keys that every document begins with.
OrderedJson memory_json(const MemoryAnswer& answer);
/// The same keys of a trace; null if a trace does not record them.
OrderedJson memory_json(const MemoryOfTrace& recorded);

/// {"weights": 1, "gradients": 2, ...}
OrderedNumbers named_purposes(const MemoryByPurpose& bytes);

std::string gib_text(double bytes);  ///< "12.34"

}  // namespace perfmodel
