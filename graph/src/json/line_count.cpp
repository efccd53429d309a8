#include "line_count.hpp"

#include <algorithm>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace perfmodel {

std::uint64_t count_lines(const char* begin, const char* end) {
  std::uint64_t lines = 0;
#if defined(__SSE2__)
  const __m128i line_break = _mm_set1_epi8('\n'), zero = _mm_setzero_si128();
  constexpr int kWidth = 16, kMostRounds = 255;  // a counter of 8 bits for each place
  while (end - begin >= kWidth) {
    __m128i counters = zero;
    const char* const until =
        begin + kWidth * std::min<std::ptrdiff_t>(kMostRounds, (end - begin) / kWidth);
    for (; begin != until; begin += kWidth) {
      const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(begin));
      counters = _mm_sub_epi8(counters, _mm_cmpeq_epi8(text, line_break));
    }
    const __m128i sums = _mm_sad_epu8(counters, zero);
    lines += static_cast<std::uint64_t>(_mm_cvtsi128_si64(sums)) +
             static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_unpackhi_epi64(sums, sums)));
  }
#endif
  return lines + static_cast<std::uint64_t>(std::count(begin, end, '\n'));
}

}  // namespace perfmodel
