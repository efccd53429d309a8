#include "draw.hpp"
#include "family.hpp"

/// Copies and sets of the runtime, 1 KiB ... 4 GiB, and kernels that only move data: strided copy,
/// transpose, concat, gather, scatter-add.
namespace kernels_bench {
namespace {

constexpr double kLeast = 1024, kMost = 4.0 * 1024 * 1024 * 1024;

DType type(Draw& draw) {
  return draw.pick({DType::kFloat32, DType::kFloat32, DType::kBFloat16, DType::kFloat16});
}

Case runtime_copy(Draw& draw) {
  using Kind = MemoryCase::Kind;
  MemoryCase point;
  point.kind = draw.pick({Kind::kHostToDevice, Kind::kDeviceToHost, Kind::kDeviceToDevice});
  point.pinned = draw.chance(0.5);
  // Copies over PCIe take a tenth of a second for 4 GiB; one eighth of that tells as much.
  const double most = point.kind == Kind::kDeviceToDevice ? kMost : kMost / 8;
  point.bytes = draw.log_uniform(kLeast, most);
  return point;
}

Case set(Draw& draw) {
  return MemoryCase{.kind = MemoryCase::Kind::kSet, .bytes = draw.log_uniform(kLeast, kMost)};
}

Case strided_copy(Draw& draw) {
  MemoryCase point{.kind = MemoryCase::Kind::kStrided};
  point.row_bytes = 4 * draw.log_uniform(1, 16384);
  const std::int64_t rows = draw.log_uniform(16, kMost / 4 / static_cast<double>(point.row_bytes));
  point.bytes = rows * point.row_bytes;
  return point;
}

Case transpose(Draw& draw) {
  TransposeCase point{.dtype = type(draw)};
  point.batch = draw.chance(0.5) ? 1 : draw.log_uniform(1, 1024);
  point.rows = draw.size(4, 16384);
  point.cols = draw.size(4, 16384);
  return point;
}

Case concat(Draw& draw) {
  ConcatCase point{.dtype = type(draw)};
  point.rows = draw.log_uniform(1, 65536);
  point.cols_a = draw.size(1, 16384);
  point.cols_b = draw.size(1, 16384);
  return point;
}

Case gather(Draw& draw) {
  GatherCase point;
  point.scatter_add = draw.chance(0.5);
  point.dtype = point.scatter_add ? DType::kFloat32 : type(draw);
  point.table_rows = draw.log_uniform(1000, 1e7);
  point.count = draw.log_uniform(16, 1e6);
  point.cols = draw.size(1, 2048);
  return point;
}

std::optional<Case> draw_memory(std::uint64_t seed, std::uint64_t index, const Limits& limits) {
  constexpr Case (*kKinds[])(Draw&) = {runtime_copy, set, strided_copy, transpose, concat, gather};
  // 3 of 10 points are runtime copies, which come in five kinds.
  constexpr std::size_t kTurns[] = {0, 3, 5, 0, 1, 4, 5, 0, 2, 3};
  Draw draw(seed, "memory", index);
  const auto make = kKinds[kTurns[index % std::size(kTurns)]];
  Case point = first_within(limits, [&] { return make(draw); });
  return point;
}

constexpr std::string_view kColumns[] = {"op",        "dtype",  "b",         "rows",
                                         "cols",      "bytes",  "copy_kind", "pinned",
                                         "row_bytes", "cols_a", "table_rows"};

}  // namespace

const Family kMemoryFamily = {"memory", "copies, sets, transposes, concats, gathers and scatters",
                              2500,     true,
                              kColumns, draw_memory};

}  // namespace kernels_bench
