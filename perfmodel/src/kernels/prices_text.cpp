#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "price_kernel_table.hpp"

namespace perfmodel {
namespace {

/// `value` x 1000, rounded as "{:.3f}" rounds it; -1 where that needs more than 64 bits. A double
/// of 1 or more is m 2^-s with m < 2^53 and s <= 52, so that 1000 m holds every digit.
std::int64_t thousandths(double value) {
  if (!(value >= 1 && value < 0x1p52)) return -1;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t mantissa = (bits & ((std::uint64_t{1} << 52) - 1)) | std::uint64_t{1} << 52;
  const int shift = 1075 - static_cast<int>(bits >> 52);
  const std::uint64_t product = 1000 * mantissa;
  const std::uint64_t rest = product & ((std::uint64_t{1} << shift) - 1);
  const std::uint64_t half = std::uint64_t{1} << (shift - 1);
  if (rest == half) return -1;  // a tie: the library knows how it rounds it
  return static_cast<std::int64_t>((product >> shift) + (rest > half ? 1 : 0));
}

/// "000" to "999", four characters apart, with room for a copy of four from any of them.
constexpr auto kGroups = [] {
  std::array<char, 4 * 1000 + 2> groups{};
  for (std::size_t i = 0; i < 1000; ++i) {
    groups[4 * i] = static_cast<char>('0' + i / 100);
    groups[4 * i + 1] = static_cast<char>('0' + i / 10 % 10);
    groups[4 * i + 2] = static_cast<char>('0' + i % 10);
  }
  return groups;
}();

/// Writes three digits or, of a number's first group, those from the first that is not 0; returns
/// their end. The copy is of four characters: up to three after the end are overwritten.
char* put_group(char* to, std::uint64_t number, bool is_first) {
  const int zeros = !is_first || number >= 100 ? 0 : number >= 10 ? 1 : 2;
  std::memcpy(to, kGroups.data() + 4 * number + zeros, 4);
  return to + 3 - zeros;
}

char* put_whole(char* to, std::uint64_t number) {
  if (number < 1000) return put_group(to, number, true);
  to = put_whole(to, number / 1000);
  return put_group(to, number % 1000, false);
}

/// Writes a time of at most 314 characters; returns its end.
char* put_time(char* to, Microseconds time) {
  const double us = time.count();
  if (const std::int64_t number = thousandths(us); number >= 0) {
    to = put_whole(to, static_cast<std::uint64_t>(number) / 1000);
    *to++ = '.';
    return put_group(to, static_cast<std::uint64_t>(number) % 1000, false);
  }
  if (us == 0 || std::abs(us) >= 1) return fmt::format_to(to, "{:.3f}", us);
  return fmt::format_to(to, "{:.4g}", us);
}

char* put(char* to, std::string_view name) { return std::copy(name.begin(), name.end(), to); }

/// Writes a cell, twice its length at most and two quotes; returns its end.
char* put_quoted(char* to, std::string_view cell) {
  const auto needs_quotes = [](char c) { return c == ',' || c == '"' || c == '\n' || c == '\r'; };
  if (std::ranges::none_of(cell, needs_quotes)) return put(to, cell);
  *to++ = '"';
  for (const char c : cell) {
    if (c == '"') *to++ = '"';
    *to++ = c;
  }
  *to++ = '"';
  return to;
}

std::string_view bound_of(const KernelRow& row, const Price& price) {
  return row.is_free ? "fused" : to_string(price.bound);
}
std::string_view model_of(const KernelRow& row, const Price& price) {
  return row.is_free ? "fused" : price.model;
}
std::string_view knowledge_of(const KernelRow& row, const Price& price) {
  if (row.is_free) return "fused";
  return price.knowledge ? to_string(*price.knowledge) : "";
}

}  // namespace

void append_prices(const KernelTable& table, std::span<const Price> prices, std::string& text) {
  constexpr std::size_t kMostOfTimes = 1024;  // three times and the words of enumerations
  constexpr std::size_t kRoom = std::size_t{1} << 16;
  std::size_t size = text.size();
  for (std::size_t i = 0; i < prices.size(); ++i) {
    const KernelRow& row = table.rows[i];
    const Price& price = prices[i];
    const std::string_view model = model_of(row, price);
    const std::size_t most = size + 2 * row.id.size() + model.size() + kMostOfTimes;
    if (text.size() < most) text.resize(most + kRoom);
    char* to = put_quoted(text.data() + size, row.id);
    *to++ = ',';
    to = put_time(to, price.time);
    *to++ = ',';
    to = put(to, model);
    *to++ = ',';
    to = put(to, bound_of(row, price));
    to = put(to, price.in_range ? ",1," : ",0,");
    to = put_time(to, price.low);
    *to++ = ',';
    to = put_time(to, price.high);
    *to++ = ',';
    to = put(to, knowledge_of(row, price));
    *to++ = '\n';
    size = static_cast<std::size_t>(to - text.data());
  }
  text.resize(size);
}

void append_price_json(const KernelTable& table, std::span<const Price> prices, std::string& text) {
  OrderedJson list = OrderedJson::array();
  for (std::size_t i = 0; i < prices.size(); ++i) {
    const KernelRow& row = table.rows[i];
    const Price& price = prices[i];
    list.push_back({{"id", row.id},
                    {"gpu", table.gpus[row.gpu].name},
                    {"op", table.ops[row.op]},
                    {"time_us", price.time.count()},
                    {"model", model_of(row, price)},
                    {"bound", bound_of(row, price)},
                    {"in_range", price.in_range},
                    {"low_us", price.low.count()},
                    {"high_us", price.high.count()},
                    {"knowledge", knowledge_of(row, price)}});
  }
  if (list.empty()) return;
  const std::string whole = OrderedJson{{"kernels", std::move(list)}}.dump(
      1, ' ', false, OrderedJson::error_handler_t::replace);
  const std::size_t begin = whole.find("[\n") + 2, end = whole.rfind("\n ]");
  text += ",\n";  // the first block's is left out
  text.append(whole, begin, end - begin);
}

}  // namespace perfmodel
