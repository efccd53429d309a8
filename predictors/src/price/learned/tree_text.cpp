#include "tree_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace perfmodel::learned {
namespace {

constexpr std::string_view kBase64Digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::uint8_t kNoDigit = 0xFF;
constexpr std::uint8_t kLeafByte = 0xFF;
constexpr std::size_t kNodeBytes = 5;
constexpr std::size_t kMostNodes = 65535;  // per tree: distances to right children have 16 bits

constexpr auto kBase64Values = [] {
  std::array<std::uint8_t, 256> values{};
  values.fill(kNoDigit);
  for (std::size_t i = 0; i < kBase64Digits.size(); ++i) {
    values[static_cast<unsigned char>(kBase64Digits[i])] = static_cast<std::uint8_t>(i);
  }
  return values;
}();

/// Without padding: the length says how many bytes the last digits hold.
std::string to_base64(const std::vector<std::uint8_t>& bytes) {
  std::string text;
  text.reserve((bytes.size() * 4 + 2) / 3);
  std::uint32_t bits = 0;
  int held = 0;
  for (const std::uint8_t byte : bytes) {
    bits = bits << 8 | byte;
    for (held += 8; held >= 6; held -= 6) text += kBase64Digits[bits >> (held - 6) & 63];
  }
  if (held > 0) text += kBase64Digits[bits << (6 - held) & 63];
  return text;
}

#if defined(__x86_64__)
/// Decodes 16 digits at a time and stops at the last ones, or in front of other characters (Mula
/// and Lemire, Faster Base64 Encoding and Decoding Using AVX2 Instructions, 2018, section 4). Half
/// of the time of a model's file was this. `to`: 16 bytes may be written for 12.
[[gnu::target("sse4.1")]] void decode_blocks(std::string_view& text, std::uint8_t*& to) {
  const __m128i faults_high =
      _mm_setr_epi8(16, 16, 1, 2, 4, 8, 4, 8, 16, 16, 16, 16, 16, 16, 16, 16);
  const __m128i faults_low =
      _mm_setr_epi8(21, 17, 17, 17, 17, 17, 17, 17, 17, 17, 19, 26, 27, 27, 27, 26);
  const __m128i shifts = _mm_setr_epi8(0, 16, 19, 4, -65, -65, -71, -71, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m128i order = _mm_setr_epi8(2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, -1, -1, -1, -1);
  const __m128i slash = _mm_set1_epi8('/');
  for (; text.size() >= 24; text.remove_prefix(16), to += 12) {
    const __m128i digits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data()));
    const __m128i high = _mm_and_si128(_mm_srli_epi32(digits, 4), slash);
    const __m128i faults =
        _mm_and_si128(_mm_shuffle_epi8(faults_high, high),
                      _mm_shuffle_epi8(faults_low, _mm_and_si128(digits, slash)));
    if (!_mm_testz_si128(faults, faults)) return;
    const __m128i row = _mm_add_epi8(_mm_cmpeq_epi8(digits, slash), high);
    const __m128i values = _mm_add_epi8(digits, _mm_shuffle_epi8(shifts, row));
    const __m128i pairs = _mm_maddubs_epi16(values, _mm_set1_epi32(0x01400140));
    const __m128i bytes = _mm_madd_epi16(pairs, _mm_set1_epi32(0x00011000));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_shuffle_epi8(bytes, order));
  }
}
#endif

std::optional<std::vector<std::uint8_t>> from_base64(std::string_view text) {
  if (text.size() % 4 == 1) return std::nullopt;  // a digit that completes no byte
  std::vector<std::uint8_t> bytes(text.size() * 3 / 4);
  std::uint8_t* to = bytes.data();
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.1")) decode_blocks(text, to);
#endif
  std::uint32_t seen = 0, bits = 0;  // no digit has its highest bit set
  int held = 0;
  for (const char digit : text) {
    const std::uint32_t value = kBase64Values[static_cast<unsigned char>(digit)];
    seen |= value;
    bits = bits << 6 | value;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    *to++ = static_cast<std::uint8_t>(bits >> held);
  }
  if (seen > 63) return std::nullopt;
  return bytes;
}

float float_at(const std::uint8_t* bytes) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < sizeof bits; ++i) bits |= std::uint32_t{bytes[i]} << 8 * i;
  return std::bit_cast<float>(bits);
}

}  // namespace

std::string tree_text(const TreeEnsemble& ensemble) {
  std::vector<std::uint8_t> bytes;
  bytes.reserve(ensemble.nodes.size() * kNodeBytes);
  for (const TreeEnsemble::Node& node : ensemble.nodes) {
    const bool is_leaf = node.feature == TreeEnsemble::kLeaf;
    bytes.push_back(is_leaf ? kLeafByte : static_cast<std::uint8_t>(node.feature));
    const auto bits = std::bit_cast<std::uint32_t>(node.value);
    for (int shift = 0; shift < 32; shift += 8) {
      bytes.push_back(static_cast<std::uint8_t>(bits >> shift));
    }
  }
  return to_base64(bytes);
}

std::string read_tree_text(std::string_view text, std::size_t columns, TreeEnsemble& ensemble) {
  const auto bytes = from_base64(text);
  if (!bytes || bytes->size() % kNodeBytes != 0) return "base64 of five bytes per node";
  const std::size_t count = bytes->size() / kNodeBytes;
  const std::size_t before = ensemble.nodes.size();
  ensemble.nodes.resize(before + count);
  TreeEnsemble::Node* const nodes = ensemble.nodes.data() + before;
  const std::uint8_t* byte = bytes->data();
  // The splits without a right child, the lowest last.
  const auto open = std::make_unique_for_overwrite<std::uint32_t[]>(std::min(count, kMostNodes));
  std::size_t open_count = 0, root = 0;
  bool begins = true;
  for (std::size_t i = 0; i < count; ++i, byte += kNodeBytes) {
    if (begins) {
      root = i;
      ensemble.roots.push_back(static_cast<std::uint32_t>(before + root));
    }
    if (i - root >= kMostNodes) return fmt::format("trees of at most {} nodes", kMostNodes);
    nodes[i].value = float_at(byte + 1);
    if (!std::isfinite(nodes[i].value)) return fmt::format("a finite number in node {}", i);
    begins = false;
    if (*byte != kLeafByte) {
      if (*byte >= columns) return fmt::format("a feature below {} in node {}", columns, i);
      nodes[i].feature = *byte;
      open[open_count++] = static_cast<std::uint32_t>(i);
      continue;
    }
    // The next node is the right child of the lowest split that has none, or a root.
    begins = open_count == 0;
    if (begins) continue;
    const std::uint32_t split = open[--open_count];
    nodes[split].right = static_cast<std::uint16_t>(i + 1 - split);
  }
  return begins ? "" : "trees that are whole";
}

}  // namespace perfmodel::learned
