#pragma once

#include <cstdint>
#include <span>
#include <vector>

/// Pipeline schedules that split the backward pass: the gradient of a chunk's input (B), which the
/// stage before waits for, and the gradient of its weights (W), which no stage waits for and which
/// fills bubbles.
namespace perfmodel::parallel {

enum class SplitSchedule : std::uint8_t { kZbH1, kZbV, kDualPipeV };

/// Model chunks per stage: 1 of ZB-H1, else 2, laid out as a V: stage r holds the places r and
/// 2p - 1 - r of the model.
std::int64_t chunks_of(SplitSchedule schedule);

/// One operation of a stage's list.
struct SplitOp {
  enum class Kind : std::uint8_t {
    kForward,
    kInput,     ///< B
    kWeights,   ///< W
    kBackward,  ///< B and W
    kTogether,  ///< a forward and a whole backward pass, one's collectives during the other's
                ///< kernels
  };
  Kind kind = Kind::kForward;
  std::int32_t chunk = 0, microbatch = 0;
  std::int32_t other_chunk = 0, other_microbatch = 0;  ///< kTogether: the backward pass
};

/// The list of a stage.
///
/// - ZB-H1 (Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024): 1F1B whose stage r does the
///   weights of microbatch i after the inputs of microbatch i + r, and the rest at the end. Equal
///   stages, F, B and W per microbatch, all of them at most F + B:
///   makespan m (F + B + W) + (p - 1)(F + B - W), activations as stage 0 of 1F1B holds on all.
/// - ZB-V (Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024), as PyTorch's
///   ScheduleZBVZeroBubble has it. F = B = W, m >= 2 p - 1: makespan 6 m F + (p - 1) F, F of a
///   chunk: no stage waits once it has begun.
/// - DualPipeV (DeepSeek-AI 2025, github.com/deepseek-ai/DualPipe, cut in half): m >= 2 p. Without
///   collectives to hide and F = B = W: makespan 6 m F + 2 (p - 1) F.
///
/// Sizes are not checked.
std::vector<SplitOp> split_order(SplitSchedule schedule, std::int64_t stages,
                                 std::int64_t microbatches, std::int64_t stage);

/// Times by place in the model (ZB-H1: stages; else 2 stages) [us].
struct SplitTimes {
  SplitSchedule schedule = SplitSchedule::kZbH1;
  std::int64_t stages = 1, microbatches = 1;
  std::span<const double> forward_us, input_us, weights_us;
  /// Time of a forward's and of a whole backward pass's collectives that the kernels of another
  /// pass can hide.
  std::span<const double> forward_hides_us, backward_hides_us;
  double hop_us = 0;  ///< from one stage to another
};

struct SplitEnds {
  double makespan_us = 0;
  std::vector<double> last_backward_us;  ///< per stage: of its last operation
  std::vector<double> hidden_us;         ///< per stage: collectives hidden by another pass
};

/// Runs every stage's list. Beyond `most_microbatches` it goes on at the pace of the last ones.
SplitEnds split_ends(const SplitTimes& times, std::int64_t most_microbatches = 256);

/// Most forward passes of chunks whose weights' gradients are not done, on a stage.
std::int64_t split_live_chunks(SplitSchedule schedule, std::int64_t stages,
                               std::int64_t microbatches, std::int64_t stage);

/// Most forward passes of a stage's last chunk whose inputs' gradients are not done.
std::int64_t split_live_losses(SplitSchedule schedule, std::int64_t stages,
                               std::int64_t microbatches, std::int64_t stage);

}  // namespace perfmodel::parallel
