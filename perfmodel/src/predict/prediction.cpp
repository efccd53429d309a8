#include "perfmodel/prediction.hpp"

namespace perfmodel {

std::string_view to_string(Term term) {
  switch (term) {
    case Term::kT1:
      return "T1";
    case Term::kT2:
      return "T2";
    case Term::kT3:
      return "T3";
    case Term::kT4:
      return "T4";
    case Term::kT5:
      return "T5";
    case Term::kTx:
      return "TX";
    case Term::kKernel:
      return "kernel";
    case Term::kCopy:
      return "copy";
    case Term::kSet:
      return "set";
    case Term::kCollective:
      return "collective";
    case Term::kDataLoading:
      return "data loading";
    case Term::kUnrecorded:
      return "unrecorded device work";
  }
  return "";
}

}  // namespace perfmodel
