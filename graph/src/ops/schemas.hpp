#pragma once

#include <span>
#include <string_view>

namespace perfmodel {

/// Schema of an op by its name with overload ("aten::sum.dim_IntList"), as PyTorch registers it.
/// An op that is missing in the table is a defect of the caller.
std::string_view schema_of(std::string_view op);

std::span<const std::string_view> op_schemas();

}  // namespace perfmodel
