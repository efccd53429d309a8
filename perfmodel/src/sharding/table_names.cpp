#include "table_names.hpp"

#include <algorithm>
#include <array>

namespace perfmodel::sharding {
namespace {

struct ElementType {
  std::string_view name, full_name;
  int bytes;
};

constexpr std::array<ElementType, 13> kElementTypes = {{{"fp32", "float32", 4},
                                                        {"float32", "float32", 4},
                                                        {"fp16", "float16", 2},
                                                        {"float16", "float16", 2},
                                                        {"bf16", "bfloat16", 2},
                                                        {"bfloat16", "bfloat16", 2},
                                                        {"fp8", "float8", 1},
                                                        {"float8", "float8", 1},
                                                        {"int8", "int8", 1},
                                                        {"uint8", "uint8", 1},
                                                        {"fp64", "float64", 8},
                                                        {"float64", "float64", 8},
                                                        {"tf32", "tf32", 4}}};

const ElementType* find(std::string_view name) {
  const auto* at = std::ranges::find(kElementTypes, name, &ElementType::name);
  return at == kElementTypes.end() ? nullptr : at;
}

bool is_stored(const ElementType& type) { return type.name != "tf32"; }  // a format of GEMMs

}  // namespace

std::optional<int> dtype_bytes(std::string_view dtype) {
  const ElementType* type = find(dtype);
  return type && is_stored(*type) ? std::optional(type->bytes) : std::nullopt;
}

std::string_view full_dtype_name(std::string_view dtype) {
  const ElementType* type = find(dtype);
  return type ? type->full_name : std::string_view();
}

std::vector<std::string_view> dtype_names() {
  std::vector<std::string_view> names;
  for (const ElementType& type : kElementTypes) {
    if (is_stored(type)) names.push_back(type.name);
  }
  return names;
}

}  // namespace perfmodel::sharding
