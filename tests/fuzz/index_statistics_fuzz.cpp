// Recorded indices of embedding tables (.npy or CSV) and tables of how often rows are read.
#include <cmath>

#include "fuzz.hpp"
#include "sharding/index_statistics.hpp"

using namespace perfmodel;
using namespace perfmodel::sharding;

namespace {

void check_histogram(const AccessHistogram& histogram) {
  PERFMODEL_CHECK(!histogram.buckets.empty());
  double before = 0;
  for (const auto& bucket : histogram.buckets) {
    PERFMODEL_CHECK(bucket.most_reads > before && bucket.rows >= 0 && bucket.lookups >= 0);
    before = bucket.most_reads;
  }
  for (const double rows : {10.0, 1e6}) {
    const RowSkew skew = fitted_skew(histogram, rows, rows / 2);
    PERFMODEL_CHECK(std::isfinite(skew.exponent) && skew.exponent >= 0);
  }
}

void check_sample(const std::filesystem::path& file) {
  const auto sample = read_index_sample(file);
  if (!sample) return fuzz::check_error(sample.error());
  PERFMODEL_CHECK(sample->lookups > 0 && sample->largest >= 0);
  PERFMODEL_CHECK(sample->touched_rows > 0 && sample->touched_rows <= sample->lookups);
  check_histogram(sample->histogram);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  check_sample(fuzz::file_with(text, text.starts_with("\x93NUMPY") ? ".npy" : ".csv"));
  const auto histograms = read_access_histograms(fuzz::file_with(text, ".csv"));
  if (!histograms) {
    fuzz::check_error(histograms.error());
    return 0;
  }
  for (const AccessHistogram& histogram : *histograms) check_histogram(histogram);
  return 0;
}
