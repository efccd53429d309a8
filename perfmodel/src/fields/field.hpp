#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "base/decimal_number.hpp"

namespace perfmodel {

/// The member in which a question keeps a field; optional fields may be left out. `More`: types
/// that few questions have.
template <class Question, class... More>
using FieldMember = std::variant<std::optional<std::int64_t> Question::*,
                                 std::optional<bool> Question::*, std::optional<double> Question::*,
                                 double Question::*, std::string Question::*, More Question::*...>;

struct FieldRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool holds(double number) const { return number >= low && number <= high; }
};

/// A field of a question, written once. Flags, JSON keys, columns and checks are made of it.
template <class Question, class... More>
struct Field {
  std::string_view name;  ///< JSON key and column
  FieldMember<Question, More...> member;
  std::string_view help;
  std::string_view takes = {};    ///< shown for a value in the help: N, TYPE; for a list N,...
  FieldRange range = {};          ///< accepted by a flag
  std::string_view choices = {};  ///< the only values, with spaces between them; empty: any
  /// Says what was expected in the place of a word that is no value; empty: it is one.
  std::string (*refuse)(std::string_view word) = nullptr;
  std::string_view needs = {};  ///< the field without which this one says nothing
};

/// "micro_batch" -> "--micro-batch"
std::string flag_of(std::string_view name);

/// Reads a value from text. False: it is empty, no value of this kind, or out of range.
template <class Question, class... More>
bool set_field(Question& question, const Field<Question, More...>& field, std::string_view text) {
  const auto number = [&](auto value) -> decltype(std::optional(value)) {
    if (!read_decimal(text, value) || !std::isfinite(static_cast<double>(value))) return {};
    return field.range.holds(static_cast<double>(value)) ? std::optional(value) : std::nullopt;
  };
  const auto set = [&](auto member) {
    using Value = std::remove_cvref_t<decltype(question.*member)>;
    if constexpr (std::is_same_v<Value, std::optional<bool>>) {
      if (text != "0" && text != "1") return false;
      question.*member = text == "1";
    } else if constexpr (std::is_same_v<Value, std::optional<std::int64_t>>) {
      const auto value = number(std::int64_t{});
      if (!value) return false;
      question.*member = value;
    } else if constexpr (std::is_same_v<Value, std::optional<double>>) {
      const auto value = number(double{});
      if (!value) return false;
      question.*member = value;
    } else if constexpr (std::is_same_v<Value, std::string>) {
      question.*member = text;
    } else {
      return false;
    }
    return true;
  };
  return !text.empty() && std::visit(set, field.member);
}

}  // namespace perfmodel
