#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "perfmodel/detail/advice.hpp"

namespace perfmodel {

/// The members of a document of `optimize`; `number` writes a figure with as many digits as the
/// document has.
nlohmann::ordered_json advice_json(const Advice& advice,
                                   const std::function<nlohmann::ordered_json(double)>& number);

}  // namespace perfmodel
