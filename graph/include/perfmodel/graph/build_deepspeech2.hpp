#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/recurrent.hpp"
#include "perfmodel/graph/training_options.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Deep Speech 2 (Amodei et al., arXiv 1512.02595) as the MLPerf v0.5 and TBD benchmarks train it:
/// spectrograms [B, 1, F, T] through 2-D convolutions with batch norm and a ReLU clipped at 20,
/// recurrent layers in both directions whose outputs are added up, batch norm between them, a
/// linear layer without bias onto the characters, CTC loss.
struct Deepspeech2Config {
  /// Kernels over frequency x time.
  struct Convolution {
    std::int64_t channels = 32;
    std::int64_t frequency_kernel = 41, time_kernel = 11;
    std::int64_t frequency_stride = 2, time_stride = 2;
    std::int64_t frequency_padding = 20, time_padding = 5;
  };

  std::string name = "deepspeech2";
  std::int64_t frequencies = 161;  ///< of a window of 20 ms at 16 kHz
  std::vector<Convolution> convolutions = {
      {}, {.frequency_kernel = 21, .time_stride = 1, .frequency_padding = 10}};
  RecurrentCell cell = RecurrentCell::kGru;
  std::int64_t layers = 5, hidden = 800;
  std::int64_t characters = 29;
  std::int64_t batch = 32;
  std::int64_t frames = 800;       ///< of every sample
  std::int64_t target_steps = 80;  ///< characters of every transcript
  TrainingOptions training;
};

/// mlperf: 5 GRU layers of 800, convolutions without padding (MLPerf training v0.5); librispeech: 5
/// LSTM layers of 1,024 (default of deepspeech.pytorch); tbd: 5 GRU layers of 1,760, as TBD takes
/// MXNet's example (Zhu et al., IISWC 2018; widths from memory).
Result<Deepspeech2Config> deepspeech2_preset(std::string_view name);

/// Steps that are left behind the convolutions.
std::int64_t output_steps(const Deepspeech2Config& config);
/// Values per step behind the convolutions.
std::int64_t recurrent_input(const Deepspeech2Config& config);
std::int64_t parameter_count(const Deepspeech2Config& config);

/// The execution graph of one training step. All samples have full length, so nothing is packed or
/// masked.
///
/// Errors: sizes below 1, kernels larger than their padded input, targets longer than the steps
/// that CTC aligns them with, tensors of 2^60 elements or more.
Result<ExecutionGraph> build_deepspeech2(const Deepspeech2Config& config);

}  // namespace perfmodel
