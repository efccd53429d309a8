#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>

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

void append_time(std::string& text, Microseconds time) {
  const double us = time.count();
  if (const std::int64_t number = thousandths(us); number >= 0) {
    char digits[24];
    char* const end = std::to_chars(std::begin(digits), std::end(digits), number / 1000).ptr;
    const auto rest = static_cast<int>(number % 1000);
    end[0] = '.';
    end[1] = static_cast<char>('0' + rest / 100);
    end[2] = static_cast<char>('0' + rest / 10 % 10);
    end[3] = static_cast<char>('0' + rest % 10);
    text.append(digits, static_cast<std::size_t>(end + 4 - digits));
  } else if (us == 0 || std::abs(us) >= 1) {
    fmt::format_to(std::back_inserter(text), "{:.3f}", us);
  } else {
    fmt::format_to(std::back_inserter(text), "{:.4g}", us);
  }
}

void append_quoted(std::string& text, std::string_view cell) {
  if (cell.find_first_of(",\"\n\r") == std::string_view::npos) {
    text += cell;
    return;
  }
  text += '"';
  for (const char c : cell) {
    if (c == '"') text += '"';
    text += c;
  }
  text += '"';
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
  for (std::size_t i = 0; i < prices.size(); ++i) {
    const KernelRow& row = table.rows[i];
    const Price& price = prices[i];
    append_quoted(text, row.id);
    text += ',';
    append_time(text, price.time);
    text += ',';
    text += model_of(row, price);
    text += ',';
    text += bound_of(row, price);
    text += price.in_range ? ",1," : ",0,";
    append_time(text, price.low);
    text += ',';
    append_time(text, price.high);
    text += ',';
    text += knowledge_of(row, price);
    text += '\n';
  }
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
