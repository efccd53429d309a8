#pragma once

#include <string>

#include "fields/result_field.hpp"
#include "what_if_report.hpp"

namespace perfmodel {

/// The keys of a document of `whatif`.
OrderedJson what_if_json(const WhatIfReport& report);
std::string what_if_csv(const WhatIfReport& report);

}  // namespace perfmodel
