#include "index_statistics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "json/csv_file.hpp"
#include "price/index_skew.hpp"

namespace perfmodel::sharding {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

Unexpected refuse_indices(const std::filesystem::path& file, const std::string& expected,
                          const std::string& found_text) {
  return fail(ErrorCode::kFormat, fmt::format("expected {}, found {}", expected, found_text), file);
}

// The value of a key of the header's Python dictionary, up to the next comma outside of brackets.
std::string header_value(const std::string& header, const std::string& key) {
  const std::size_t at = header.find("'" + key + "'");
  if (at == std::string::npos) return "";
  std::size_t begin = header.find(':', at);
  if (begin == std::string::npos) return "";
  begin = header.find_first_not_of(' ', begin + 1);
  int depth = 0;
  std::size_t end = begin;
  for (; end < header.size(); ++end) {
    if (header[end] == '(') ++depth;
    if (header[end] == ')') --depth;
    if ((header[end] == ',' && depth == 0) || header[end] == '}') break;
  }
  return begin == std::string::npos ? "" : header.substr(begin, end - begin);
}

template <class Integer>
Result<std::vector<std::int64_t>> read_integers(std::ifstream& stream,
                                                const std::filesystem::path& file,
                                                std::int64_t count) {
  std::vector<std::int64_t> indices;
  std::vector<Integer> block(1 << 16);
  while (count > 0) {
    const auto wanted = std::min<std::int64_t>(count, static_cast<std::int64_t>(block.size()));
    const auto bytes =
        static_cast<std::streamsize>(wanted) * static_cast<std::streamsize>(sizeof(Integer));
    stream.read(reinterpret_cast<char*>(block.data()), bytes);
    if (stream.gcount() != bytes) {
      return refuse_indices(file, fmt::format("{} more indices", count), "the end of the file");
    }
    for (std::int64_t i = 0; i < wanted; ++i) {
      const auto index = static_cast<std::int64_t>(block[i]);
      if (index < 0) return refuse_indices(file, "indices of at least 0", std::to_string(index));
      indices.push_back(index);
    }
    count -= wanted;
  }
  return indices;
}

Result<std::vector<std::int64_t>> read_npy(const std::filesystem::path& file) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  constexpr std::int64_t kMostIndices = std::int64_t{1} << 31;
  std::ifstream stream(file, std::ios::binary);
  char start[8] = {};
  if (!stream.read(start, sizeof start)) {
    return refuse_indices(file, "a NumPy file", "one that cannot be read or is too short");
  }
  if (std::string_view(start, kMagic.size()) != kMagic) {
    return refuse_indices(file, "a NumPy file (.npy)", "another beginning");
  }
  unsigned char size[4] = {};
  stream.read(reinterpret_cast<char*>(size), start[6] == 1 ? 2 : 4);
  const std::size_t length = size[0] | std::size_t{size[1]} << 8U | std::size_t{size[2]} << 16U |
                             std::size_t{size[3]} << 24U;
  constexpr std::size_t kLongestHeader = 1 << 16;
  if (!stream || length > kLongestHeader) return refuse_indices(file, "a NumPy header", "none");
  std::string header(length, ' ');
  if (!stream.read(header.data(), static_cast<std::streamsize>(length))) {
    return refuse_indices(file, "a NumPy header", "the end of the file");
  }
  const std::string type = header_value(header, "descr");
  std::int64_t count = 1;
  const std::string shape = header_value(header, "shape");
  for (std::size_t i = 0; i < shape.size();) {
    if (std::isdigit(static_cast<unsigned char>(shape[i])) == 0) {
      ++i;
      continue;
    }
    std::int64_t extent = 0;
    for (; i < shape.size() && std::isdigit(static_cast<unsigned char>(shape[i])) != 0; ++i) {
      extent = std::min(kMostIndices, 10 * extent + (shape[i] - '0'));
    }
    count = std::min(kMostIndices, count * extent);
  }
  if (count >= kMostIndices) {
    return refuse_indices(file, fmt::format("fewer than {} indices", kMostIndices), shape);
  }
  if (type == "'<i8'") return read_integers<std::int64_t>(stream, file, count);
  if (type == "'<i4'") return read_integers<std::int32_t>(stream, file, count);
  if (type == "'<u4'") return read_integers<std::uint32_t>(stream, file, count);
  return refuse_indices(file, "indices of type <i8, <i4 or <u4", type.empty() ? "none" : type);
}

Result<std::vector<std::int64_t>> read_index_csv(const std::filesystem::path& file) {
  PERFMODEL_TRY(csv, CsvFile::open(file));
  const int column = csv->column("index");
  if (column < 0) return Unexpected{csv->missing_column("index", "")};
  std::vector<std::int64_t> indices;
  while (csv->next()) {
    const auto value = parse_double(csv->cell(column));
    constexpr double kMost = 9e15;
    if (!value || *value < 0 || *value > kMost || *value != std::floor(*value)) {
      return Unexpected{csv->expected(column, "a whole number of at least 0")};
    }
    indices.push_back(static_cast<std::int64_t>(*value));
  }
  if (csv->error()) return Unexpected{*csv->error()};
  return indices;
}

// Reads of each touched row, most read first.
std::vector<std::int64_t> reads_of(std::vector<std::int64_t>& indices) {
  std::sort(indices.begin(), indices.end());
  std::vector<std::int64_t> reads;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (i == 0 || indices[i] != indices[i - 1]) reads.push_back(0);
    ++reads.back();
  }
  std::sort(reads.rbegin(), reads.rend());
  return reads;
}

Result<void> check_sums(const CsvFile& csv, const AccessHistogram& histogram) {
  constexpr double kRounding = 0.02;
  double rows = 0, lookups = 0;
  for (const AccessHistogram::Bucket& bucket : histogram.buckets) {
    rows += bucket.rows;
    lookups += bucket.lookups;
  }
  for (const auto& [name, sum] : {std::pair{"frac_unique_rows", rows}, {"frac_lookups", lookups}}) {
    if (std::abs(sum - 1) <= kRounding) continue;
    return fail(ErrorCode::kFormat,
                fmt::format("expected {} that sum to 1{}, found a sum of {:.4g}", name,
                            histogram.table.empty() ? "" : " for table " + histogram.table, sum),
                csv.path());
  }
  return {};
}

}  // namespace

Result<IndexSample> read_index_sample(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  const bool is_csv = name.ends_with(".csv") || name.ends_with(".csv.gz");
  PERFMODEL_TRY(indices, is_csv ? read_index_csv(file) : read_npy(file));
  if (indices->empty()) return refuse_indices(file, "at least one index", "none");
  IndexSample sample;
  sample.lookups = static_cast<std::int64_t>(indices->size());
  const std::vector<std::int64_t> reads = reads_of(*indices);
  sample.largest = indices->back();
  sample.touched_rows = static_cast<std::int64_t>(reads.size());
  const double lookups = static_cast<double>(sample.lookups);
  const double rows = static_cast<double>(reads.size());
  sample.histogram.unique_share = rows / lookups;
  auto next = reads.rbegin();
  for (double most = 1; next != reads.rend(); most *= 2) {
    AccessHistogram::Bucket bucket{.most_reads = most};
    for (; next != reads.rend() && static_cast<double>(*next) <= most; ++next) {
      bucket.rows += 1 / rows;
      bucket.lookups += static_cast<double>(*next) / lookups;
    }
    sample.histogram.buckets.push_back(bucket);
  }
  return sample;
}

Result<std::vector<AccessHistogram>> read_access_histograms(const std::filesystem::path& file) {
  PERFMODEL_TRY(csv, CsvFile::open(file));
  for (const char* name : {"reuse_gt", "reuse_le", "frac_unique_rows", "frac_lookups"}) {
    if (csv->column(name) < 0) return Unexpected{csv->missing_column(name, "")};
  }
  const int above = csv->column("reuse_gt"), most = csv->column("reuse_le");
  const int rows = csv->column("frac_unique_rows"), lookups = csv->column("frac_lookups");
  // Files of several recordings have a row range for each: the first one of a table counts.
  const int of_table = csv->column("table"), of_file = csv->column("file");
  std::vector<AccessHistogram> histograms;
  std::string of;
  while (csv->next()) {
    const std::string key =
        std::string(csv->cell(of_table)) + "\n" + std::string(csv->cell(of_file));
    if (histograms.empty() || key != of) {
      of = key;
      histograms.emplace_back().table = csv->cell(of_table);
    }
    AccessHistogram& histogram = histograms.back();
    const double reached = histogram.buckets.empty() ? 0 : histogram.buckets.back().most_reads;
    const auto from = parse_double(csv->cell(above));
    if (!from || *from != reached) {
      return Unexpected{csv->expected(above, fmt::format("{}, where the range before ends",
                                                         std::isinf(reached) ? 0 : reached))};
    }
    AccessHistogram::Bucket bucket{.most_reads = kNoLimit};
    if (!csv->cell(most).empty()) {
      const auto to = parse_double(csv->cell(most));
      if (!to || !(*to > reached)) {
        return Unexpected{csv->expected(most, "a number above reuse_gt, or nothing")};
      }
      bucket.most_reads = *to;
    }
    for (const auto& [column, share] :
         {std::pair{rows, &bucket.rows}, {lookups, &bucket.lookups}}) {
      const auto value = parse_double(csv->cell(column));
      if (!value || !(*value >= 0) || *value > 1) {
        return Unexpected{csv->expected(column, "a share from 0 to 1")};
      }
      *share = *value;
    }
    histogram.buckets.push_back(bucket);
  }
  if (csv->error()) return Unexpected{*csv->error()};
  if (histograms.empty()) return refuse_indices(file, "a row per range of reads", "a header only");
  for (const AccessHistogram& histogram : histograms) PERFMODEL_TRY_TO(check_sums(*csv, histogram));
  return histograms;
}

RowSkew fitted_skew(const AccessHistogram& histogram, double rows, double touched) {
  const auto error = [&](double exponent) {
    const IndexSkew skew(ZipfLaw{.rows = std::max(1.0, rows), .exponent = exponent});
    double sum = 0, hot_rows = 0, hot_lookups = 0;
    for (std::size_t i = histogram.buckets.size(); i-- > 1;) {
      hot_rows += histogram.buckets[i].rows;
      hot_lookups += histogram.buckets[i].lookups;
      // Shares of rows are rounded to 0.001: the shares of the very hottest rows say nothing.
      constexpr double kLeastShare = 0.0005;
      if (hot_rows < kLeastShare && touched * hot_rows < 1) continue;
      const double difference =
          skew.top_mass(std::max(1.0, std::min(rows, hot_rows * touched))) - hot_lookups;
      sum += difference * difference;
    }
    return sum;
  };
  constexpr double kMost = 3;
  constexpr int kSteps = 60;
  double best = 0, least = error(0);
  for (int i = 1; i <= kSteps; ++i) {
    const double exponent = kMost * i / kSteps;
    if (const double here = error(exponent); here < least) {
      least = here;
      best = exponent;
    }
  }
  double low = std::max(0.0, best - kMost / kSteps), high = best + kMost / kSteps;
  constexpr int kThirds = 20;
  for (int i = 0; i < kThirds; ++i) {
    const double a = low + (high - low) / 3, b = high - (high - low) / 3;
    (error(a) < error(b) ? high : low) = error(a) < error(b) ? b : a;
  }
  return {.exponent = best == 0 && error(0) <= error(low) ? 0 : (low + high) / 2};
}

Result<double> mean_pooling(std::span<const double> bags) {
  double all = 0, ids = 0;
  for (std::size_t n = 0; n < bags.size(); ++n) {
    if (!(bags[n] >= 0) || !std::isfinite(bags[n])) {
      return decline(fmt::format("expected counts of at least 0, found {}", bags[n]));
    }
    all += bags[n];
    ids += static_cast<double>(n) * bags[n];
  }
  if (all <= 0 || ids <= 0) {
    return decline("expected counts of bags of which some have ids, found none");
  }
  return ids / all;
}

}  // namespace perfmodel::sharding
