#include "rows.hpp"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "perfmodel/result.hpp"

namespace perfmodel {
namespace {

constexpr std::string_view kRows =
#include "rows.txt"
    ;

OpRow row_of_line(std::string_view line) {
  OpRow row;
  row.name = take_before(line, " | ");
  row.facts = take_before(line, " | ");
  row.derivative = line;
  if (row.name.find(" -> ") != std::string_view::npos) {
    row.schema = row.name;
    row.name = row.schema.substr(0, row.schema.find('('));
  }
  // A line without a kind, or a schema without "->".
  PERFMODEL_CHECK(!row.facts.empty() || !row.schema.empty());
  PERFMODEL_CHECK(!row.name.starts_with("aten::") || row.name.find('(') == std::string_view::npos);
  return row;
}

std::vector<OpRow> read_rows() {
  std::vector<OpRow> rows;
  for (std::string_view rest = kRows; !rest.empty();) {
    const std::string_view line = take_before(rest, "\n");
    if (!line.empty() && !line.starts_with("//")) rows.push_back(row_of_line(line));
  }
  return rows;
}

}  // namespace

std::string_view take_before(std::string_view& text, std::string_view separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(std::min(end + separator.size(), text.size()));
  return taken;
}

std::span<const OpRow> op_rows() {
  static const std::vector<OpRow> rows = read_rows();
  return rows;
}

const OpRow& row_of_overload(std::string_view op) {
  static const auto kByName = [] {
    std::unordered_map<std::string_view, const OpRow*> map;
    for (const OpRow& row : op_rows()) {
      if (!row.schema.empty()) map.emplace(row.name, &row);
    }
    return map;
  }();
  const auto known = kByName.find(op);
  PERFMODEL_CHECK(known != kByName.end());  // an op without schema: add it to rows.txt
  return *known->second;
}

}  // namespace perfmodel
