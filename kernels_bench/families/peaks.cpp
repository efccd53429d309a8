#include <cmath>

#include "family.hpp"

/// The bounds of everything else: bandwidth by size, multiply-adds, matrix units, and the fixed
/// costs of calls. A list, not a draw.
namespace kernels_bench {
namespace {

using Kind = PeakCase::Kind;

void add_sizes(std::vector<Case>& list, Kind kind, double low, double high, int per_octave) {
  const int steps = static_cast<int>(std::lround(std::log2(high / low) * per_octave));
  for (int i = 0; i <= steps; ++i) {
    const double bytes = low * std::exp2(static_cast<double>(i) / per_octave);
    list.push_back(PeakCase{.kind = kind, .bytes = std::llround(bytes / 1024) * 1024});
  }
}

std::vector<Case> make_list() {
  constexpr double kKib = 1024, kGib = 1024.0 * 1024 * 1024;
  std::vector<Case> list;
  // The largest copy first: rows tell their share of the peaks measured so far.
  list.push_back(PeakCase{.kind = Kind::kCopyBandwidth, .bytes = std::int64_t{1} << 31});
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    for (const double flop : {1e10, 1e11}) {
      list.push_back(
          PeakCase{.kind = Kind::kFma, .dtype = dtype, .bytes = static_cast<std::int64_t>(flop)});
    }
  }
  for (const DType dtype : {DType::kFloat32, DType::kTf32, DType::kBFloat16, DType::kFloat16}) {
    for (const std::int64_t side : {8192, 1024, 2048, 4096, 12288}) {
      list.push_back(PeakCase{.kind = Kind::kMatrix, .dtype = dtype, .bytes = side});
    }
  }
  for (const auto kind : {MemoryCase::Kind::kHostToDevice, MemoryCase::Kind::kDeviceToHost}) {
    list.push_back(MemoryCase{.kind = kind, .pinned = true, .bytes = std::int64_t{1} << 28});
  }
  add_sizes(list, Kind::kCopyBandwidth, 16 * kKib, 2 * kGib, 4);
  add_sizes(list, Kind::kReadBandwidth, 64 * kKib, 4 * kGib, 6);
  for (const Kind kind : {Kind::kLaunch, Kind::kEmptyKernel, Kind::kEventRecord, Kind::kEventWait,
                          Kind::kStreamSync}) {
    list.push_back(PeakCase{.kind = kind});
  }
  add_sizes(list, Kind::kCopyCall, kKib, kGib / 16, 1);
  for (std::int64_t nodes = 1; nodes <= 1024; nodes *= 2) {
    list.push_back(PeakCase{.kind = Kind::kGraphLaunch, .bytes = nodes});
  }
  return list;
}

std::optional<Case> draw_peaks(std::uint64_t, std::uint64_t index, const Limits&) {
  static const std::vector<Case> kList = make_list();
  if (index >= kList.size()) return std::nullopt;
  return kList[index];
}

constexpr std::string_view kColumns[] = {"op",     "dtype", "bytes", "copy_kind",
                                         "pinned", "flop",  "m",     "nodes"};

}  // namespace

const Family kPeaksFamily = {
    "peaks", "bandwidths, arithmetic peaks, fixed costs of calls", 227, true, kColumns, draw_peaks};

}  // namespace kernels_bench
