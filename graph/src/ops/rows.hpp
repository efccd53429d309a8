#pragma once

#include <span>
#include <string_view>

namespace perfmodel {

/// A line of rows.txt, which explains its columns.
struct OpRow {
  std::string_view name;        ///< with overload: "aten::sum.dim_IntList"
  std::string_view schema;      ///< empty: no builder writes the op
  std::string_view facts;       ///< kind and members of OpFacts; empty: an overload of another row
  std::string_view derivative;  ///< empty: none
};

std::span<const OpRow> op_rows();

/// The row of an op by its name with overload. One without a schema is a defect of the caller.
const OpRow& row_of_overload(std::string_view op);

/// Schema of an op by its name with overload, as PyTorch registers it.
inline std::string_view schema_of(std::string_view op) { return row_of_overload(op).schema; }

/// Takes the text before the first `separator` off `text`, and the separator with it.
std::string_view take_before(std::string_view& text, std::string_view separator);

}  // namespace perfmodel
