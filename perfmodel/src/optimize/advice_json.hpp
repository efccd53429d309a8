#pragma once

#include "fields/result_field.hpp"
#include "perfmodel/detail/advice.hpp"

namespace perfmodel {

/// The members of a document of `optimize`, with all digits.
OrderedJson advice_json(const Advice& advice);

}  // namespace perfmodel
