#pragma once

#include <map>
#include <string>
#include <string_view>

#include "perfmodel/graph/build_model.hpp"

namespace perfmodel::cli {

inline std::map<std::string, RecurrentCell> cell_choices() {
  return {{"lstm", RecurrentCell::kLstm}, {"gru", RecurrentCell::kGru}};
}

inline std::map<std::string, RecurrentForm> form_choices() {
  return {{"library", RecurrentForm::kLibrary},
          {"cells", RecurrentForm::kCells},
          {"unfused", RecurrentForm::kUnfused}};
}

inline std::string_view name_of(RecurrentCell cell) {
  return cell == RecurrentCell::kLstm ? "LSTM" : "GRU";
}

inline std::string_view name_of(RecurrentForm form) {
  switch (form) {
    case RecurrentForm::kLibrary:
      return "library call";
    case RecurrentForm::kCells:
      return "fused cells";
    case RecurrentForm::kUnfused:
      break;
  }
  return "unfused cells";
}

}  // namespace perfmodel::cli
