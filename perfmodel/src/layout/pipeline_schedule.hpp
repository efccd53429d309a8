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

/// `forward_us[r][c]`, `backward_us[r][c]`: time of chunk c of one microbatch on stage r, so p rows
/// of v columns. Model order: chunk 0 of stages 0..p-1, then chunk 1 of stages 0..p-1, ...
struct PipelineWork {
  PipelineSchedule schedule = PipelineSchedule::k1F1B;
  std::int64_t microbatches = 1;  ///< m; a multiple of p when interleaved
  std::vector<std::vector<double>> forward_us = {}, backward_us = {};
  double hop_delay_us = 0;  ///< from one stage to another, both ways; occupies no stage
};

/// One operation of a stage's list.
struct PipelineOp {
  std::int32_t microbatch = 0, chunk = 0;
  bool backward = false;
};

struct PipelineTimeline {
  double makespan_us = 0;
  std::vector<double> busy_us;                         ///< per stage
  std::vector<std::int64_t> peak_live_forward_chunks;  ///< per stage
  std::vector<double> end_of_last_backward_us;         ///< per stage
  /// 1 - (largest busy time) / makespan: what a perfect overlap of the same stages would save.
  double bubble_share = 0;
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

/// Runs every stage's list: an operation starts when its stage is free and its predecessor (the
/// same microbatch one chunk earlier in the model, or later in backward) has ended, `hop_delay_us`
/// later if that was on another stage. The first backward of a microbatch follows its last forward.
///
/// `peak_live_forward_chunks` counts forwards in a stage's list whose backward has not ended: the
/// activations held. Closed forms for equal stages without hops: GPipe and 1F1B (m + p - 1)(F + B);
/// interleaved m(F + B) + (p-1)(F + B)/v, F and B per stage and microbatch.
///
/// O(p v m) time and memory: a million operations take about half a second. Errors: as
/// `pipeline_order`; rows that differ in length, negative or NaN times.
Result<PipelineTimeline> pipeline_timeline(const PipelineWork& work);

}  // namespace perfmodel::parallel
