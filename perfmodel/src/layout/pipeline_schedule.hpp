#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "perfmodel/result.hpp"

/// Pipeline-parallel schedules with static order.
namespace perfmodel::parallel {

enum class PipelineSchedule : std::uint8_t { kGpipe, k1F1B, kInterleaved };
std::string_view to_string(PipelineSchedule schedule);

/// One operation of a stage's list.
struct PipelineOp {
  std::int32_t microbatch = 0, chunk = 0;
  bool backward = false;
};

/// The list that stage `stage` of `stages` works off, `chunks` (v) model chunks per stage:
///
/// - GPipe: forwards 0..m-1, then backwards m-1..0.
/// - 1F1B: w = min(p-1-r, m) forwards, then forward/backward pairs, then the remaining backwards.
/// - Interleaved (Megatron): step k of m v handles chunk (k mod p v) div p of microbatch
///   (k div p v) p + k mod p, backwards the mirrored chunk v-1-c; w = 2(p-1-r) + (v-1)p forwards
///   first, all of them if m = p.
///
/// Errors: sizes below 1, GPipe or 1F1B with v > 1, interleaved with m no multiple of p.
Result<std::vector<PipelineOp>> pipeline_order(PipelineSchedule schedule, std::int64_t stages,
                                               std::int64_t chunks, std::int64_t microbatches,
                                               std::int64_t stage);

}  // namespace perfmodel::parallel
