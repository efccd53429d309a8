#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace perfmodel {

/// Where a question keeps a field; optional fields may be left out.
template <class Question>
using FieldMember =
    std::variant<std::optional<std::int64_t> Question::*, std::optional<bool> Question::*,
                 std::optional<double> Question::*, double Question::*, std::string Question::*>;

struct FieldRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

/// A field of a question, written once. Flags, JSON keys, columns and checks are made of it.
template <class Question>
struct Field {
  std::string_view name;  ///< JSON key and column
  FieldMember<Question> member;
  std::string_view help;
  std::string_view takes = {};    ///< what the help shows for a value: N, TYPE
  FieldRange range = {};          ///< that a flag accepts
  std::string_view choices = {};  ///< the only values, with spaces between them; empty: any
};

/// "micro_batch" -> "--micro-batch"
std::string flag_of(std::string_view name);

}  // namespace perfmodel
