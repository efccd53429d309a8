#include "kernels/nccl_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <tuple>

#include "base/decimal_number.hpp"
#include "base/impossible.hpp"
#include "base/statistics.hpp"

namespace perfmodel {
namespace {

using LogWords = std::vector<std::string>;

/// Without the rank that mpirun ("[1,0]<stdout>:") and srun ("0: ") put before each line.
std::string_view without_rank(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == line.npos) return line;
  const std::string_view rank = line.substr(0, colon);
  const bool is_mpi = rank.starts_with('[') && rank.find(',') != rank.npos &&
                      (rank.ends_with(']') || rank.ends_with("<stdout>"));
  const bool is_srun = !rank.empty() && rank.find_first_not_of(" 0123456789") == rank.npos;
  return is_mpi || is_srun ? line.substr(colon + 1) : line;
}

LogWords words_of(std::string_view line) {
  std::istringstream in{std::string(line)};
  LogWords words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

/// "./build/all_reduce_perf" -> "all_reduce"; empty: no program of the tests.
std::string program_of(const LogWords& words) {
  for (const std::string& word : words) {
    const std::size_t end = word.rfind("_perf");
    if (end == word.npos || end + 5 != word.size()) continue;
    const std::size_t slash = word.rfind('/');
    return word.substr(slash == word.npos ? 0 : slash + 1,
                       end - (slash == word.npos ? 0 : slash + 1));
  }
  return {};
}

std::optional<CollectiveKind> kind_of_program(const std::string& program) {
  if (program == "alltoall") return CollectiveKind::kAllToAll;
  if (program == "sendrecv") return CollectiveKind::kSend;
  return collective_kind(program);
}

/// One line of the table: time, algbw and busbw, out of place and in place (0: "N/A").
struct LogRow {
  double bytes = 0, us[2] = {}, algorithm[2] = {}, bus[2] = {};
};

/// Size, count, type, then perhaps the operation and the root, then four columns out of place and
/// four in place. Nothing: the line is no such row.
std::optional<LogRow> row_of(const LogWords& words) {
  LogRow row;
  std::uint64_t bytes = 0, count = 0;
  if (words.size() < 7 || !read_decimal(words[0], bytes) || !read_decimal(words[1], count)) {
    return std::nullopt;
  }
  row.bytes = static_cast<double>(bytes);
  double number = 0;
  std::size_t at = 3;
  if (!read_decimal(words[at], number)) ++at;  // the operation
  if ((words.size() - at) % 4 == 1) ++at;      // the root
  const std::size_t sides = (words.size() - at) / 4;
  if ((words.size() - at) % 4 != 0 || sides < 1 || sides > 2) return std::nullopt;
  for (std::size_t side = 0; side < sides; ++side, at += 4) {
    if (words[at] == "N/A") continue;
    if (!read_decimal(words[at], row.us[side]) ||
        !read_decimal(words[at + 1], row.algorithm[side]) ||
        !read_decimal(words[at + 2], row.bus[side])) {
      return std::nullopt;
    }
    double wrong = 0;  // or "N/A"; old versions print a relative error
    if (read_decimal(words[at + 3], wrong) && wrong >= 1) return std::nullopt;
  }
  return row;
}

bool is_near(double value, double wanted, double rounding) {
  return std::abs(value - wanted) <= rounding + 0.02 * wanted;
}

class LogReader {
 public:
  LogReader(const std::filesystem::path& file, const NcclLogOptions& options)
      : file_(file), options_(options), program_(options.op) {}

  using Times =
      std::map<std::tuple<CollectiveKind, int, int>, std::map<double, std::vector<double>>>;

  Result<void> read(Times& times) {
    std::ifstream in(file_);
    if (!in) return error("a readable log of nccl-tests", "none");
    std::string text;
    while (std::getline(in, text)) {
      ++line_;
      const LogWords words = words_of(without_rank(text));
      if (words.empty()) continue;
      if (const std::string program = program_of(words); !program.empty()) begin_run(program);
      if (words[0].starts_with('#')) {
        read_comment(words);
      } else if (words[0].find_first_not_of("0123456789") == std::string::npos) {
        PERFMODEL_TRY_TO(read_row(words, times));
      }
    }
    if (rows_ == 0) return error("rows of nccl-tests (size, count, type, ..., time)", "none");
    return {};
  }

 private:
  void begin_run(const std::string& program) {
    if (options_.op.empty()) program_ = program;
    devices_.clear();
    hosts_.clear();
  }

  void read_comment(const LogWords& words) {
    if (words.size() > 1 && words[1] == "nThread") {
      devices_.clear();
      hosts_.clear();
    }
    const auto on = std::ranges::find(words, "on");
    if (words.size() < 6 || words[1] != "Rank" || on == words.end() || on + 1 == words.end())
      return;
    devices_.insert(words[2]);
    hosts_.insert(*(on + 1));
  }

  Result<void> read_row(const LogWords& words, Times& times) {
    const auto row = row_of(words);
    if (!row) {
      return error(
          "a row of nccl-tests with right results (size, count, type, time, algbw, busbw, "
          "#wrong)",
          fmt::format("{} words that are none", words.size()));
    }
    ++rows_;
    const auto kind = kind_of_program(program_);
    if (!kind) {
      return error("a line before that names the program (all_reduce_perf), or --op",
                   program_.empty() ? "none" : program_ + "_perf");
    }
    const int ranks = options_.world ? options_.world : static_cast<int>(devices_.size());
    const int nodes = options_.nodes ? options_.nodes : static_cast<int>(hosts_.size());
    if (ranks < 2 || nodes < 1 || ranks % nodes != 0) {
      return error(
          "devices before it (\"# Rank 0 ... on HOST\"), equally many per host, or --world "
          "and --nodes",
          fmt::format("{} on {} hosts", ranks, nodes));
    }
    const std::size_t side = options_.in_place ? 1 : 0;
    const double us = row->us[side];
    if (row->bytes == 0 || row->us[side] == 0) return {};  // "N/A", or nothing was sent
    const double algorithm = row->bytes / us * 1e-3;
    if (!is_near(row->algorithm[side], algorithm, 0.006)) {
      return error(fmt::format("algbw {:.2f} (size / time)", algorithm),
                   fmt::format("{}", row->algorithm[side]));
    }
    const double bus = row->algorithm[side] * bus_factor(*kind, ranks);
    if (!is_near(row->bus[side], bus, 0.02)) {
      return error(fmt::format("busbw {:.2f} of {} between {} GPUs", bus, to_string(*kind), ranks),
                   fmt::format("{}", row->bus[side]));
    }
    times[{*kind, ranks, nodes}][row->bytes].push_back(us);
    return {};
  }

  Unexpected error(const std::string& expected, const std::string& found) const {
    return Unexpected{Error{.code = ErrorCode::kFormat,
                            .message = fmt::format("expected {}, found {}", expected, found),
                            .file = file_,
                            .line = rows_ || line_ ? line_ : 0}};
  }

  std::filesystem::path file_;
  const NcclLogOptions& options_;
  std::string program_;
  std::set<std::string> devices_, hosts_;
  int line_ = 0, rows_ = 0;
};

}  // namespace

std::string MeasuredGroup::text() const {
  return fmt::format("{} of {} GPUs on {} node{}", to_string(kind), ranks, nodes,
                     nodes == 1 ? "" : "s");
}

Result<std::vector<MeasuredGroup>> read_nccl_logs(const std::vector<std::filesystem::path>& files,
                                                  const NcclLogOptions& options) {
  LogReader::Times times;
  for (const auto& file : files) PERFMODEL_TRY_TO(LogReader(file, options).read(times));
  std::vector<MeasuredGroup> groups;
  for (const auto& [key, sizes] : times) {
    const auto [kind, ranks, nodes] = key;
    MeasuredGroup group{.kind = kind, .ranks = ranks, .nodes = nodes};
    for (const auto& [bytes, repeated] : sizes) group.sizes.push_back({bytes, median_of(repeated)});
    groups.push_back(std::move(group));
  }
  if (groups.empty()) return impossible("measured times", "\"N/A\" alone");
  return groups;
}

}  // namespace perfmodel
