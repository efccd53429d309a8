#pragma once

#include <string>
#include <string_view>

namespace perfmodel {

/// A kernel's name without return type, scopes and parameters, which are alike in most names:
/// "void at::native::f<4, at::native::Sum<float> >(int, float*)" -> "f<4, Sum<float> >".
std::string without_scopes(std::string_view name);

}  // namespace perfmodel
