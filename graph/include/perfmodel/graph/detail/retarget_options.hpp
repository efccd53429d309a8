#pragma once

namespace perfmodel {

struct RetargetOptions {
  /// Whose libraries take over: cuDNN (`aten::cudnn_convolution`, ...) or MIOpen
  /// (`aten::miopen_convolution`, ...).
  enum class Vendor { kNvidia, kAmd } vendor = Vendor::kNvidia;

  /// The step's inputs lie in pinned or pageable host memory and are copied at the start of the
  /// step, or are on the GPU already.
  enum class Inputs { kPinned, kPageable, kOnDevice } inputs = Inputs::kPinned;
};

}  // namespace perfmodel
