#include "container_end.hpp"

#include <bit>
#include <cstdint>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace perfmodel {
namespace {

struct BlockMasks {
  std::uint64_t quote = 0, backslash = 0, open = 0, close = 0;
};

// One bit per character of a 64-byte block. '{' and '[' (and '}' and ']') differ in bit 5 only.
BlockMasks classify(const char* block) {
  BlockMasks masks;
#if defined(__SSE2__)
  const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
  const __m128i open = _mm_set1_epi8('{'), close = _mm_set1_epi8('}'), bit5 = _mm_set1_epi8(0x20);
  for (int i = 0; i < 4; ++i) {
    const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 16 * i));
    const __m128i folded = _mm_or_si128(text, bit5);
    const auto bits = [i](__m128i equal) {
      return static_cast<std::uint64_t>(static_cast<unsigned>(_mm_movemask_epi8(equal)))
             << (16 * i);
    };
    masks.quote |= bits(_mm_cmpeq_epi8(text, quote));
    masks.backslash |= bits(_mm_cmpeq_epi8(text, backslash));
    masks.open |= bits(_mm_cmpeq_epi8(folded, open));
    masks.close |= bits(_mm_cmpeq_epi8(folded, close));
  }
#else
  for (int i = 0; i < 64; ++i) {
    const std::uint64_t bit = std::uint64_t{1} << i;
    const char c = block[i];
    if (c == '"') masks.quote |= bit;
    if (c == '\\') masks.backslash |= bit;
    if (c == '{' || c == '[') masks.open |= bit;
    if (c == '}' || c == ']') masks.close |= bit;
  }
#endif
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

// Brackets are counted in every block; without the processor's instruction that is a table's work.
#if defined(__x86_64__) && !defined(__POPCNT__)
#define PERFMODEL_CHOOSES_POPCOUNT
#endif

[[gnu::always_inline]] inline const char* walk_container(const char* begin, const char* end,
                                                         std::size_t nesting,
                                                         const char** too_deep) {
  std::int64_t depth = 0;
  bool escape_carry = false;
  std::uint64_t in_string = 0;  // all ones while a string crosses the block border
  for (const char* block = begin; block < end; block += 64) {
    const BlockMasks masks = classify(block);
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

#ifdef PERFMODEL_CHOOSES_POPCOUNT
[[gnu::target("popcnt")]] const char* walk_container_with_popcount(const char* begin,
                                                                   const char* end,
                                                                   std::size_t nesting,
                                                                   const char** too_deep) {
  return walk_container(begin, end, nesting, too_deep);
}
#endif

}  // namespace

const char* find_container_end(const char* begin, const char* end, std::size_t nesting,
                               const char** too_deep) {
#ifdef PERFMODEL_CHOOSES_POPCOUNT
  static const bool kHasPopcount = __builtin_cpu_supports("popcnt");
  if (kHasPopcount) return walk_container_with_popcount(begin, end, nesting, too_deep);
#endif
  return walk_container(begin, end, nesting, too_deep);
}

}  // namespace perfmodel
