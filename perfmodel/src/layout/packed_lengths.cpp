#include "packed_lengths.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/decimal_number.hpp"
#include "parallel_traffic.hpp"

namespace perfmodel {
namespace {

namespace fs = std::filesystem;

/// Lengths and, for each, how many documents there are up to it.
struct Documents {
  std::vector<double> lengths, counts_so_far;
};

Unexpected bad_line(const fs::path& file, int line, const std::string& text) {
  return Unexpected{
      Error{.code = ErrorCode::kFormat,
            .message = fmt::format("expected a length above 0, and how many documents "
                                   "have it unless it is one, found \"{}\"",
                                   text),
            .file = file,
            .line = line}};
}

bool is_count(std::string_view text, double& number) {
  constexpr double kMost = 1e15;
  return read_decimal(text, number) && number >= 1 && number <= kMost &&
         number == std::floor(number);
}

Result<Documents> read_documents(const fs::path& file) {
  std::ifstream in(file);
  if (!in) {
    return fail(ErrorCode::kIo, "lengths: expected a file of lengths, found none", file);
  }
  Documents made;
  std::string text;
  for (int line = 1; std::getline(in, text); ++line) {
    if (text.ends_with('\r')) text.pop_back();
    if (text.empty()) continue;
    const std::size_t end = std::min(text.find_first_of(", \t"), text.size());
    double length = 0, count = 1;
    if (!is_count(text.substr(0, end), length) ||
        (end < text.size() && !is_count(text.substr(end + 1), count))) {
      return bad_line(file, line, text);
    }
    made.lengths.push_back(length);
    made.counts_so_far.push_back(count +
                                 (made.counts_so_far.empty() ? 0 : made.counts_so_far.back()));
  }
  if (!made.lengths.empty()) return made;
  return fail(ErrorCode::kFormat, "lengths: expected at least one length, found none", file);
}

/// Documents one after another, each drawn at random by a generator that starts alike every time.
class Packer {
 public:
  Packer(const Documents& documents, std::int64_t sequence)
      : documents_(documents), sequence_(static_cast<double>(sequence)) {}

  double next_share() {
    double squares = 0;
    for (double left = sequence_; left > 0;) {
      if (rest_ == 0) rest_ = drawn();
      const double part = std::min(rest_, left);
      squares += part * part;
      rest_ -= part;
      left -= part;
    }
    return squares / (sequence_ * sequence_);
  }
  std::int64_t documents() const { return drawn_; }

 private:
  double drawn() {
    ++drawn_;
    const std::vector<double>& counts = documents_.counts_so_far;
    const double at = static_cast<double>(random_() >> 11) * 0x1p-53 * counts.back();
    const auto found = std::ranges::upper_bound(counts, at);
    return documents_.lengths[static_cast<std::size_t>(found - counts.begin())];
  }

  const Documents& documents_;
  double sequence_, rest_ = 0;
  std::int64_t drawn_ = 0;
  std::mt19937_64 random_{1};
};

}  // namespace

Result<PackedShare> packed_share(const fs::path& file, std::int64_t sequence) {
  PERFMODEL_TRY(documents, read_documents(file));
  constexpr int kLeast = 64, kMost = 4096;
  constexpr std::int64_t kEnoughDocuments = 4'000'000;
  Packer packer(*documents, sequence);
  double sum = 0, squares = 0, rows = 0;
  while (rows < kLeast || (rows < kMost && packer.documents() < kEnoughDocuments)) {
    const double share = packer.next_share();
    sum += share;
    squares += share * share;
    ++rows;
  }
  const double mean = sum / rows;
  return PackedShare{mean, std::sqrt(std::max(0.0, squares / rows - mean * mean))};
}

double slowest_packed_share(const LayoutJob& job, const ParallelLayout& layout) {
  if (job.packed_mean == 1) return 1;
  const double of_rank = static_cast<double>(job.global_batch) / static_cast<double>(layout.dp);
  const double more =
      job.packed_deviation / std::sqrt(of_rank) * expected_largest(static_cast<double>(layout.dp));
  return std::min(1.0, job.packed_mean + more);
}

Result<void> check_packed(const LayoutJob& job, const ParallelLayout& layout) {
  if (job.packed_mean == 1) return {};
  const char* found = job.attention == LayoutJob::Attention::kEager ? "eager attention"
                      : job.model.windowed_layers > 0               ? "layers with a window"
                      : job.model.sinks                             ? "sinks of attention"
                      : layout.cp > 1                               ? "cp above 1"
                                                                    : nullptr;
  if (!found) return {};
  return decline(fmt::format(
      "lengths: expected fused attention over whole sequences of a rank, found {}", found));
}

}  // namespace perfmodel
