#include "perfmodel/prediction.hpp"
#include "perfmodel/detail/overhead_table.hpp"

#include <iterator>

namespace perfmodel {

std::string_view to_string(Term term) {
  if (static_cast<std::size_t>(term) < std::size(kHostTerms)) {
    return kHostTerms[static_cast<std::size_t>(term)].name;
  }
  switch (term) {
    case Term::kKernel: return "kernel";
    case Term::kCopy: return "copy";
    case Term::kSet: return "set";
    case Term::kCollective: return "collective";
    case Term::kDataLoading: return "data loading";
    case Term::kUnrecorded: return "unrecorded device work";
    default:  // terms of the host
      break;
  }
  return "";
}

}  // namespace perfmodel
