#pragma once

#include <string_view>

namespace perfmodel {

/// What torch.autocast does with an op.
enum class AutocastPolicy {
  kNone,      ///< runs in the type of its inputs
  kLower,     ///< fp32 arguments are cast to the half type
  kFp32,      ///< half arguments are cast to fp32
  kFp32Type,  ///< is asked for an fp32 result by its dtype argument
  kPromote,   ///< arguments are cast to the widest type among them
  kBanned,    ///< raises an error: programs call it outside, on fp32 inputs
};

AutocastPolicy autocast_policy(std::string_view op, bool on_gpu);

}  // namespace perfmodel
