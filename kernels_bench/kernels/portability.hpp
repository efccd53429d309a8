#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

/// Lets kernel bodies compile for CUDA, for HIP and, in tests, as plain C++.
#if defined(__HIPCC__)
#include <hip/hip_runtime.h>
#define PM_HD __host__ __device__
#elif defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define PM_HD __host__ __device__
#else
#include <atomic>
#define PM_HD
#endif

#if defined(__CUDA_ARCH__)
#define PM_CUDA_DEVICE 1
#else
#define PM_CUDA_DEVICE 0
#endif
#if defined(__HIP_DEVICE_COMPILE__) && __HIP_DEVICE_COMPILE__
#define PM_HIP_DEVICE 1
#else
#define PM_HIP_DEVICE 0
#endif

/// Before loops of constant length, whose arrays should be in registers.
#if PM_CUDA_DEVICE || PM_HIP_DEVICE
#define PM_UNROLL _Pragma("unroll")
#else
#define PM_UNROLL
#endif

namespace kernels_bench::kernels {

/// Storage only: arithmetic is in fp32. The same two structs on host and device, whatever the
/// vendor calls its own.
struct Half {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

template <class To, class From>
PM_HD inline To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

PM_HD inline float to_float(float value) { return value; }

PM_HD inline float to_float(BFloat16 value) {
  return bits_as<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

PM_HD inline float to_float(Half value) {
#if PM_CUDA_DEVICE
  return __half2float(__ushort_as_half(value.bits));
#elif PM_HIP_DEVICE
  return static_cast<float>(bits_as<_Float16>(value.bits));
#else
  const std::uint32_t sign = (value.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fU, fraction = value.bits & 0x3ffU;
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24, exact in fp32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xffU : exponent + 112;
  return bits_as<float>(sign | wide << 23 | fraction << 13);
#endif
}

PM_HD inline void from_float(float value, float& result) { result = value; }

PM_HD inline void from_float(float value, BFloat16& result) {
#if PM_CUDA_DEVICE
  result.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
  const auto bits = bits_as<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {  // rounding must not turn NaN into infinity
    result.bits = 0x7fffU;
    return;
  }
  result.bits = static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
#endif
}

PM_HD inline void from_float(float value, Half& result) {
#if PM_CUDA_DEVICE
  result.bits = __half_as_ushort(__float2half_rn(value));
#elif PM_HIP_DEVICE
  result.bits = bits_as<std::uint16_t>(static_cast<_Float16>(value));
#else
  const auto bits = bits_as<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000U, magnitude = bits & 0x7fffffffU;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000U) {
    half = 0x7fffU;                       // NaN
  } else if (magnitude >= 0x477ff000U) {  // rounds to 65536 or more
    half = 0x7c00U;
  } else if (magnitude >= 0x38800000U) {  // normal: from the exponent's bias 127 to 15
    half = (magnitude - 0x38000000U + 0xfffU + (magnitude >> 13 & 1U)) >> 13;
  } else {  // subnormal: adding 0.5 lets the FPU round to multiples of 2^-24
    half = bits_as<std::uint32_t>(bits_as<float>(magnitude) + 0.5F) - 0x3f000000U;
  }
  result.bits = static_cast<std::uint16_t>(sign | half);
#endif
}

template <class T>
PM_HD inline T from_float(float value) {
  T result;
  from_float(value, result);
  return result;
}

/// N elements that one instruction loads or stores, or several where that is more than 16 bytes;
/// N * sizeof(T) is a power of two.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vector {
  T values[N];
};

/// Elements in the widest load, 16 bytes.
template <class T>
inline constexpr int kWidest = 16 / static_cast<int>(sizeof(T));

template <int N, class T>
PM_HD inline Vector<T, N> load(const T* from) {
  return *reinterpret_cast<const Vector<T, N>*>(from);
}

template <int N, class T>
PM_HD inline void store(T* to, const Vector<T, N>& vector) {
  *reinterpret_cast<Vector<T, N>*>(to) = vector;
}

/// N floats go out as loads and stores of at most 16 bytes each: fp32 next to half rows has vectors
/// of 32 bytes.
template <int N>
PM_HD inline void load_floats(const float* from, float (&to)[N]) {
  constexpr int kPart = N < 4 ? N : 4;
  PM_UNROLL
  for (int i = 0; i < N; i += kPart) {
    const Vector<float, kPart> part = load<kPart>(from + i);
    PM_UNROLL
    for (int k = 0; k < kPart; ++k) to[i + k] = part.values[k];
  }
}

template <int N>
PM_HD inline void store_floats(float* to, const float (&from)[N]) {
  constexpr int kPart = N < 4 ? N : 4;
  PM_UNROLL
  for (int i = 0; i < N; i += kPart) {
    Vector<float, kPart> part;
    PM_UNROLL
    for (int k = 0; k < kPart; ++k) part.values[k] = from[i + k];
    store(to + i, part);
  }
}

template <int N, class T>
PM_HD inline void unpack(const Vector<T, N>& vector, float (&to)[N]) {
  PM_UNROLL
  for (int k = 0; k < N; ++k) to[k] = to_float(vector.values[k]);
}

template <class T, int N>
PM_HD inline Vector<T, N> pack(const float (&from)[N]) {
  Vector<T, N> vector;
  PM_UNROLL
  for (int k = 0; k < N; ++k) vector.values[k] = from_float<T>(from[k]);
  return vector;
}

/// Adds atomically; no one needs the old value.
PM_HD inline void atomic_add(float* to, float value) {
#if PM_CUDA_DEVICE
  atomicAdd(to, value);
#elif PM_HIP_DEVICE
  unsafeAtomicAdd(to, value);  // the hardware's own add; plain atomicAdd loops on gfx9
#elif defined(__CUDACC__) || defined(__HIPCC__)
  *to += value;  // host half of a device source: never called
#else
  std::atomic_ref<float>(*to).fetch_add(value, std::memory_order_relaxed);
#endif
}

/// The old value where `*to` was `expected` (and now is `desired`), else what `*to` is.
PM_HD inline std::uint32_t atomic_compare_exchange(std::uint32_t* to, std::uint32_t expected,
                                                   std::uint32_t desired) {
#if PM_CUDA_DEVICE || PM_HIP_DEVICE
  return atomicCAS(to, expected, desired);
#elif defined(__CUDACC__) || defined(__HIPCC__)
  (void)to, (void)desired;
  return expected;
#else
  std::atomic_ref<std::uint32_t>(*to).compare_exchange_strong(expected, desired,
                                                              std::memory_order_relaxed);
  return expected;
#endif
}

PM_HD inline std::uint32_t pair_of(Half low, Half high) {
  return static_cast<std::uint32_t>(high.bits) << 16 | low.bits;
}

PM_HD inline Half low_half(std::uint32_t pair) {
  return {static_cast<std::uint16_t>(pair & 0xffffU)};
}

PM_HD inline Half high_half(std::uint32_t pair) { return {static_cast<std::uint16_t>(pair >> 16)}; }

/// Adds to both halves of an aligned pair at once. No GPU has an atomic add for one half.
PM_HD inline void atomic_add_pair(std::uint32_t* to, float low, float high) {
#if PM_CUDA_DEVICE
  atomicAdd(reinterpret_cast<__half2*>(to), __floats2half2_rn(low, high));
#else
  std::uint32_t seen = atomic_compare_exchange(to, 0, 0);  // an atomic load
  for (;;) {
    const std::uint32_t sum = pair_of(from_float<Half>(to_float(low_half(seen)) + low),
                                      from_float<Half>(to_float(high_half(seen)) + high));
    const std::uint32_t old = atomic_compare_exchange(to, seen, sum);
    if (old == seen) return;
    seen = old;
  }
#endif
}

PM_HD inline void atomic_add(Half* to, float value) {
  const bool high = (reinterpret_cast<std::uintptr_t>(to) & 2U) != 0;
  auto* pair = reinterpret_cast<std::uint32_t*>(high ? to - 1 : to);
  atomic_add_pair(pair, high ? 0.0F : value, high ? value : 0.0F);
}

/// Past the L1 cache where the instruction set can say so.
PM_HD inline Vector<std::uint32_t, 4> load_from_l2(const std::uint32_t* from) {
#if PM_CUDA_DEVICE
  const uint4 loaded = __ldcg(reinterpret_cast<const uint4*>(from));
  return {{loaded.x, loaded.y, loaded.z, loaded.w}};
#else
  return load<4>(from);
#endif
}

/// Divides numbers of [0, limit] by one divisor with a multiplication where 31 bits suffice
/// (Granlund and Montgomery 1994): 64-bit division would dominate a copying kernel.
class Divider {
 public:
  Divider() = default;
  Divider(std::int64_t divisor, std::int64_t limit) : divisor_(divisor) {
    constexpr std::int64_t kMax = 0x7fffffff;
    if (limit > kMax || divisor > kMax) return;
    multiply_ = true;
    while ((std::int64_t{1} << shift_) < divisor) ++shift_;
    const auto power = std::uint64_t{1} << shift_;
    const auto unsigned_divisor = static_cast<std::uint64_t>(divisor);
    magic_ = static_cast<std::uint32_t>(
        (power - unsigned_divisor) * (std::uint64_t{1} << 32) / unsigned_divisor + 1);
  }

  PM_HD std::int64_t quotient(std::int64_t number) const {
    if (!multiply_) return number / divisor_;
    const auto small = static_cast<std::uint32_t>(number);
    const auto high = static_cast<std::uint32_t>(static_cast<std::uint64_t>(small) * magic_ >> 32);
    return (high + small) >> shift_;
  }

  PM_HD void split(std::int64_t number, std::int64_t& quotient_out, std::int64_t& remainder) const {
    quotient_out = quotient(number);
    remainder = number - quotient_out * divisor_;
  }

 private:
  std::int64_t divisor_ = 1;
  std::uint32_t magic_ = 1;
  int shift_ = 0;
  bool multiply_ = false;
};

constexpr std::int64_t ceil_divide(std::int64_t number, std::int64_t divisor) {
  return (number + divisor - 1) / divisor;
}

}  // namespace kernels_bench::kernels
