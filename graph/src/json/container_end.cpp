#include "container_end.hpp"

#include <bit>
#include <cstdint>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace perfmodel {
namespace {

struct BlockMasks {
  std::uint64_t quote = 0, backslash = 0, open = 0, close = 0;
};

// One bit per character of a 64-byte block. '{' and '[' (and '}' and ']') differ in bit 5 only.
BlockMasks classify(const char* block) {
  BlockMasks masks;
  for (int i = 0; i < 64; ++i) {
    const std::uint64_t bit = std::uint64_t{1} << i;
    const char c = block[i];
    if (c == '"') masks.quote |= bit;
    if (c == '\\') masks.backslash |= bit;
    if (c == '{' || c == '[') masks.open |= bit;
    if (c == '}' || c == ']') masks.close |= bit;
  }
  return masks;
}

// Characters that a backslash protects; `carry` says whether the first one is.
std::uint64_t escaped_characters(std::uint64_t backslash, bool& carry) {
  std::uint64_t escaped = carry ? 1 : 0;
  carry = false;
  for (std::uint64_t left = backslash; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    if ((escaped >> i) & 1) continue;
    if (i == 63) {
      carry = true;
    } else {
      escaped |= std::uint64_t{2} << i;
    }
  }
  return escaped;
}

// Bit i of the result: parity of the quotes up to and including i.
std::uint64_t prefix_parity(std::uint64_t bits) {
  for (int shift = 1; shift < 64; shift *= 2) bits ^= bits << shift;
  return bits;
}

// Place within a block of the bracket that opens more than `nesting`, or -1. The container may end
// in the block before that.
int first_deeper(std::uint64_t open, std::uint64_t close, std::int64_t depth, std::size_t nesting) {
  for (std::uint64_t left = open | close; left != 0; left &= left - 1) {
    const int i = std::countr_zero(left);
    depth += (open >> i) & 1 ? 1 : -1;
    if (depth <= 0) return -1;
    if (static_cast<std::uint64_t>(depth) > nesting) return i;
  }
  return -1;
}

#if defined(__x86_64__)
// The same, 32 characters at a time.
[[gnu::target("avx2")]] inline BlockMasks classify_wide(const char* block) {
  BlockMasks masks;
  const __m256i bit5 = _mm256_set1_epi8(0x20);
  for (int i = 0; i < 2; ++i) {
    const __m256i text = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 32 * i));
    const __m256i folded = _mm256_or_si256(text, bit5);
    const __m256i equal[] = {_mm256_cmpeq_epi8(text, _mm256_set1_epi8('"')),
                             _mm256_cmpeq_epi8(text, _mm256_set1_epi8('\\')),
                             _mm256_cmpeq_epi8(folded, _mm256_set1_epi8('{')),
                             _mm256_cmpeq_epi8(folded, _mm256_set1_epi8('}'))};
    std::uint64_t* const to[] = {&masks.quote, &masks.backslash, &masks.open, &masks.close};
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      *to[k] |= std::uint64_t{static_cast<unsigned>(_mm256_movemask_epi8(equal[k]))} << (32 * i);
    }
  }
  return masks;
}
#endif

template <auto kClassify>
[[gnu::always_inline]] inline const char* walk_container(const char* begin, const char* end,
                                                         std::size_t nesting,
                                                         const char** too_deep) {
  std::int64_t depth = 0;
  bool escape_carry = false;
  std::uint64_t in_string = 0;  // all ones while a string crosses the block border
  for (const char* block = begin; block < end; block += 64) {
    const BlockMasks masks = kClassify(block);
    std::uint64_t quote = masks.quote;
    if (masks.backslash != 0 || escape_carry) {
      quote &= ~escaped_characters(masks.backslash, escape_carry);
    }
    const std::uint64_t string = prefix_parity(quote) ^ in_string;
    in_string = static_cast<std::uint64_t>(static_cast<std::int64_t>(string) >> 63);
    const std::uint64_t open = masks.open & ~string;
    std::uint64_t close = masks.close & ~string;
    if (static_cast<std::uint64_t>(depth + std::popcount(open)) > nesting) {
      if (const int at = first_deeper(open, close, depth, nesting); at >= 0 && block + at < end) {
        if (too_deep) *too_deep = block + at;
        return nullptr;
      }
    }
    if (depth <= std::popcount(close)) {
      for (; close != 0; close &= close - 1) {
        const int i = std::countr_zero(close);
        const std::uint64_t before = (std::uint64_t{1} << i) - 1;
        const auto opened = std::popcount(open & before);
        const auto closed = std::popcount(masks.close & ~string & (before | (before + 1)));
        if (depth + opened - closed == 0) {
          const char* past = block + i + 1;
          return past <= end ? past : nullptr;
        }
      }
      close = masks.close & ~string;
    }
    depth += std::popcount(open) - std::popcount(close);
  }
  return nullptr;
}

#if defined(__x86_64__)
[[gnu::target("avx2,popcnt")]] const char* walk_wide(const char* begin, const char* end,
                                                     std::size_t nesting, const char** too_deep) {
  return walk_container<classify_wide>(begin, end, nesting, too_deep);
}
#endif

}  // namespace

const char* find_container_end(const char* begin, const char* end, std::size_t nesting,
                               const char** too_deep) {
#if defined(__x86_64__)
  static const bool kIsWide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt");
  if (kIsWide) return walk_wide(begin, end, nesting, too_deep);
#endif
  return walk_container<classify>(begin, end, nesting, too_deep);
}

}  // namespace perfmodel
