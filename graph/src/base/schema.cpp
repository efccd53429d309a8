#include "schema.hpp"

#include <fmt/format.h>

namespace perfmodel {

std::string version_problem(const Schema& schema, std::int64_t version) {
  if (version == schema.version) return {};
  return fmt::format("expected version {}, found {}{}", schema.version, version,
                     version > schema.version   ? ", which needs a newer program"
                     : version < schema.version ? ", which an older program wrote"
                                                : "");
}

}  // namespace perfmodel
