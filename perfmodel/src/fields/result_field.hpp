#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/each_name.hpp"
#include "base/number_text.hpp"
#include "perfmodel/detail/check.hpp"

namespace perfmodel {

using OrderedJson = nlohmann::ordered_json;
using OrderedNumbers = nlohmann::ordered_map<std::string, double>;

/// Three decimals: nanoseconds, where the value is in microseconds. Infinite or no number: null.
OrderedJson rounded(double value);
/// To six digits: of figures that may be tiny.
OrderedJson six_digits(double value);

/// How a number is written. By its name: `*_us` with three decimals, `*_bytes` whole, others with
/// six digits. In tables four decimals: JSON has all digits.
enum class Digits : std::uint8_t { kByName, kThreeDecimals, kSix, kWhole, kAll, kFourInTables };

/// All numbers within `value`.
OrderedJson with_digits(OrderedJson value, Digits digits);

std::string csv_cell(const OrderedJson& value, Digits digits);

/// "{:.6g}"
std::string six_digits_text(double value);

template <class Value>
inline constexpr bool kIsOptional = false;
template <class Value>
inline constexpr bool kIsOptional<std::optional<Value>> = true;

template <class Value>
OrderedJson json_value(const Value& value) {
  if constexpr (kIsOptional<Value>) {
    return value ? json_value(*value) : OrderedJson(nullptr);
  } else if constexpr (std::is_enum_v<Value>) {
    return to_string(value);
  } else {
    return value;
  }
}

/// Microseconds as milliseconds, counts in groups of digits.
struct UsualText {
  bool is_time = false;

  template <class Value>
  std::string operator()(const Value& value) const {
    if constexpr (std::is_floating_point_v<Value>) {
      return is_time ? milliseconds(value) : six_digits_text(value);
    } else if constexpr (std::is_integral_v<Value>) {
      return grouped(static_cast<std::size_t>(value));
    } else if constexpr (std::is_enum_v<Value>) {
      return std::string(to_string(value));
    } else if constexpr (std::is_convertible_v<Value, std::string_view>) {
      return std::string(value);
    } else {
      return "";
    }
  }
};

/// For a field of a text member that is null where the text is empty.
auto text_or_null(auto member) {
  return [member](const auto& result) {
    return (result.*member).empty() ? OrderedJson(nullptr) : OrderedJson(result.*member);
  };
}

/// A figure of a result, written once. JSON, CSV and tables of text are made of it.
template <class Result>
struct ResultField {
  /// `get`: a member or a function of the result; JSON that it makes is written as it is. `write`:
  /// a function of the value, or of the result.
  template <class Get, class Text = UsualText>
  ResultField(std::string_view name_, Get get, Digits digits_, std::string_view title_ = {},
              Text write = {})
      : name(name_), title(title_), digits(digits_) {
    using Value = std::decay_t<std::invoke_result_t<Get, const Result&>>;
    if constexpr (std::is_same_v<Value, OrderedJson>) digits = Digits::kAll;
    if constexpr (std::is_same_v<Text, UsualText>) write.is_time = name.ends_with("_us");
    if (digits == Digits::kByName) {
      digits = name.ends_with("_us")      ? Digits::kThreeDecimals
               : name.ends_with("_bytes") ? Digits::kWhole
                                          : Digits::kSix;
    }
    value = [get](const Result& result) { return json_value<Value>(std::invoke(get, result)); };
    text = [get, write](const Result& result) -> std::string {
      if constexpr (!std::is_same_v<Text, UsualText> && std::is_invocable_v<Text, const Result&>) {
        return write(result);
      } else if constexpr (kIsOptional<Value>) {
        const Value& one = std::invoke(get, result);
        return one ? write(*one) : "";
      } else {
        return write(std::invoke(get, result));
      }
    };
  }
  template <class Get, class Text = UsualText>
  ResultField(std::string_view name_, Get get, std::string_view title_ = {}, Text write = {})
      : ResultField(name_, get, Digits::kByName, title_, write) {}

  std::string_view name;   ///< JSON key and CSV column
  std::string_view title;  ///< header in tables of text
  Digits digits;
  std::function<OrderedJson(const Result&)> value;  ///< with all its digits
  std::function<std::string(const Result&)> text;   ///< cell in tables of text
};

template <class Result>
using ResultFields = std::vector<ResultField<Result>>;

/// The field of a name, which there is.
template <class Result>
const ResultField<Result>& named_field(const ResultFields<Result>& fields, std::string_view name) {
  const auto found = std::ranges::find(fields, name, &ResultField<Result>::name);
  PERFMODEL_CHECK(found != fields.end());
  return *found;
}

template <class Result>
ResultFields<Result> named_fields(const ResultFields<Result>& fields,
                                  const std::vector<std::string_view>& names) {
  ResultFields<Result> named;
  for (const std::string_view name : names) named.push_back(named_field(fields, name));
  return named;
}

template <class Result>
ResultFields<Result> joined_fields(const std::vector<ResultFields<Result>>& parts) {
  ResultFields<Result> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// Fields of what `get` makes of a result.
template <class Result, class Get, class Part>
ResultFields<Result> part_fields(Get get, const ResultFields<Part>& fields) {
  ResultFields<Result> whole;
  for (const ResultField<Part>& field : fields) {
    const auto value = [get, of_part = field.value](const Result& result) {
      return of_part(std::invoke(get, result));
    };
    const auto text = [get, of_part = field.text](const Result& result) {
      return of_part(std::invoke(get, result));
    };
    whole.push_back({field.name, value, field.digits, field.title});
    whole.back().digits = field.digits;
    whole.back().text = text;
  }
  return whole;
}

/// `all_digits`: as programs that ask get numbers, not as documents have them.
template <class Result>
OrderedJson json_object(const Result& result, const ResultFields<Result>& fields,
                        bool all_digits = false) {
  OrderedJson json = OrderedJson::object();
  for (const ResultField<Result>& field : fields) {
    json[std::string(field.name)] =
        with_digits(field.value(result), all_digits ? Digits::kAll : field.digits);
  }
  return json;
}

template <class Rows, class Result>
OrderedJson json_list(const Rows& rows, const ResultFields<Result>& fields,
                      bool all_digits = false) {
  OrderedJson list = OrderedJson::array();
  for (const Result& row : rows) list.push_back(json_object(row, fields, all_digits));
  return list;
}

/// For a field that is a list of rows, or a part of the result.
template <class Whole, class Row>
auto list_of(std::vector<Row> Whole::*rows, const ResultFields<Row>& fields) {
  return [rows, &fields](const Whole& whole) { return json_list(whole.*rows, fields); };
}
template <class Whole, class Part>
auto object_of(Part Whole::*part, const ResultFields<Part>& fields) {
  return [part, &fields](const Whole& whole) { return json_object(whole.*part, fields); };
}

/// "a,b,c", or the cells of a result: with commas between them, no line end.
template <class Result>
std::string csv_header(const ResultFields<Result>& fields) {
  std::string line;
  for (const auto& field : fields) line.append(line.empty() ? "" : ",").append(field.name);
  return line;
}
template <class Result>
std::string csv_cells(const Result& result, const ResultFields<Result>& fields) {
  std::string line;
  for (const auto& field : fields) {
    if (&field != &fields.front()) line += ',';
    line += csv_cell(field.value(result), field.digits);
  }
  return line;
}

}  // namespace perfmodel
