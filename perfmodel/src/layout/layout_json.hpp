#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "perfmodel/layout.hpp"

namespace perfmodel {

/// One layout with its price, as `layouts[]` of documents have it: memory in 1e9 B, shares in 0..1.
/// `number` writes a figure with as many digits as the document has.
nlohmann::ordered_json layout_json(const RankedLayout& ranked,
                                   const std::function<nlohmann::ordered_json(double)>& number);

}  // namespace perfmodel
