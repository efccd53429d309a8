#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fields/field.hpp"
#include "layout_request.hpp"

namespace perfmodel {

struct LayoutField : Field<LayoutAsk> {
  /// Where a search keeps its values of the field; none: a search has one value, too.
  std::variant<std::monostate, std::vector<std::int64_t> LayoutLists::*,
               std::vector<std::string> LayoutLists::*>
      list = {};
  /// `--table` takes it from a column, not from the flag.
  bool is_of_row = false;
};

/// Fields of the model, of the job and of the layout, in the order of the help.
std::span<const LayoutField> layout_fields();

/// Nullptr: no such field.
const LayoutField* find_layout_field(std::string_view name);

}  // namespace perfmodel
