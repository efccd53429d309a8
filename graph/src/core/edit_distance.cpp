#include "edit_distance.hpp"

#include <algorithm>
#include <numeric>

namespace perfmodel {
namespace {

constexpr std::size_t kMostCompared = 256;

std::size_t rest(std::string_view text) {
  return text.size() - std::min(text.size(), kMostCompared);
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  const std::size_t behind = std::max(rest(a), rest(b));
  a = a.substr(0, kMostCompared);
  b = b.substr(0, kMostCompared);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row.back() + behind;
}

std::string nearest_three(std::vector<std::pair<std::size_t, std::string>> names) {
  std::ranges::sort(names);
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, names.size()); ++i) {
    text += (i > 0 ? ", " : "") + names[i].second;
  }
  return text;
}

}  // namespace perfmodel
