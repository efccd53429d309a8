#include "field.hpp"

#include <algorithm>

namespace perfmodel {

std::string flag_of(std::string_view name) {
  std::string flag = "--" + std::string(name);
  std::ranges::replace(flag, '_', '-');
  return flag;
}

}  // namespace perfmodel
