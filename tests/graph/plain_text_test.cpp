#include "base/plain_text.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/kernel_words.hpp"

namespace perfmodel {
namespace plain_text_test {

TEST(PlainText, WhatCanOnlyBeReadStays) {
  for (const char* text : {"", "aten::add", " ~", "ünïcode 😀 µs", "日本語.json", "\xC2\xA0",
                           "\xE2\x80\x8A", "\xE2\x80\x90", "\xE2\x80\xA7", "\xE2\x80\xAF",
                           "\xE2\x81\x9F", "\xE2\x81\xB0", "\xEF\xBB\xBE", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(plain_text(text), text);
    EXPECT_TRUE(is_plain_text(text)) << text;
  }
}

TEST(KernelWords, OnlyWhatTellsKernelsApartStays) {
  const std::pair<const char*, const char*> cases[] = {
      {"void at::native::vectorized<4, at::native::Add<float>, at::detail::Array<char*, 3> >(int, "
       "at::native::Add<float>)",
       "vectorized<4, Add<float>, Array<char*, 3> >"},
      {"void (anonymous namespace)::elementwise_with_cast<float, (int)2>(int)",
       "elementwise_with_cast<float, (int)2>"},
      {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long)",
       "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"},
      {"sm90_xmma_gemm_bf16bf16", "sm90_xmma_gemm_bf16bf16"},
      {"f)", "f)"},
      {"", ""}};
  for (const auto& [name, words] : cases) EXPECT_EQ(without_scopes(name), words);
}

TEST(PlainText, OneQuestionMarkForEachOtherCharacter) {
  const std::pair<std::string, const char*> cases[] = {
      {"a\nb\x1b[2J\x7f", "a?b?[2J?"},
      {std::string("\0", 1), "?"},
      {"a\xC2\x80\xC2\x9B 1m", "a?? 1m"},                   // U+0080, U+009B
      {"\xD8\x9C", "?"},                                    // U+061C
      {"\xE2\x80\x8B|\xE2\x80\x8F", "?|?"},                 // U+200B, U+200F
      {"\xE2\x80\xA8|\xE2\x80\xA9|\xE2\x80\xAE", "?|?|?"},  // U+2028, U+2029, U+202E
      {"\xE2\x81\xA0|\xE2\x81\xA6|\xE2\x81\xA9", "?|?|?"},  // U+2060, U+2066, U+2069
      {"\xEF\xBB\xBF"
       "a",
       "?a"},  // U+FEFF
  };
  for (const auto& [text, plain] : cases) {
    EXPECT_EQ(plain_text(text), plain);
    EXPECT_FALSE(is_plain_text(text));
  }
}

TEST(PlainText, OneQuestionMarkForEachByteThatIsNoUtf8) {
  EXPECT_EQ(plain_text("é\xFF\xE9 é"), "é?? é");
  EXPECT_EQ(plain_text("\xC0\xAF"), "??");       // overlong '/'
  EXPECT_EQ(plain_text("\xE0\x80\xAF"), "???");  // overlong '/'
  EXPECT_EQ(plain_text("\xF0\x80\x80\x9B"), "????");
  EXPECT_EQ(plain_text("\xED\xA0\x80"), "???");       // a surrogate
  EXPECT_EQ(plain_text("\xF4\x90\x80\x80"), "????");  // above U+10FFFF
  EXPECT_EQ(plain_text("a\xE2\x80"), "a??");          // cut off
}

}  // namespace plain_text_test
}  // namespace perfmodel
