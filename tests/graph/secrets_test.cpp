#include "perfmodel/graph/secrets.hpp"

#include <gtest/gtest.h>

#include <string>

namespace perfmodel {
namespace {

TEST(MaskSecrets, CutsTheTextWhereTheSecretBegins) {
  const std::pair<const char*, const char*> cases[] = {
      {"DB_PASSWORD=hunter2", "DB_PASSWORD=[masked]"},
      {"step 3 password: hunter2 and more", "step 3 password: [masked]"},
      {R"({"api_key": "abc"})", R"({"api_key": "[masked])"},
      {"authToken=abc", "authToken=[masked]"},
      {"password=1234", "password=[masked]"},
      {"curl -H Authorization: Basic eHg6eXk=", "curl -H Authorization: [masked]"},
      {"AWS_REGION=eu-1", "AWS_REGION=[masked]"},
      {"HOME=/home/someone SHELL=/bin/sh", "HOME=[masked]"},
      {"LANG=C TERM=xterm EDITOR=vi", "LANG=[masked]"},
      {"load AKIAIOSFODNN7EXAMPLE1 now", "load [masked]"},
      {"clone https://me:pw@host/x", "clone https://me:[masked]"},
      {"use ghp_0123456789abcdefghijABCDEFGHIJ012345", "use [masked]"},
      {"-----BEGIN RSA PRIVATE KEY----- MIIE", "[masked]"},
      {"h 0123456789abcdef0123456789abcdef", "h [masked]"},
      {"b QWxhZGRpbjpvcGVuIHNlc2FtZSBhbmQgc29tZSBtb3JlIDEyMzQ1", "b [masked]"},
  };
  for (const auto& [text, masked] : cases) {
    EXPECT_EQ(mask_secrets(text).value_or("(unchanged)"), masked) << text;
  }
}

TEST(MaskSecrets, NamesOfOpsAndKernelsStay) {
  for (const char* text :
       {"aten::add",
        "ProfilerStep#17",
        "## forward ##",
        "num_tokens=4096",
        "next_token: 17",
        "tokenizer: fast",
        "autograd::engine::evaluate_function: AddmmBackward0",
        "Optimizer.step#Adam.step",
        "token=",
        "password: None",
        "B=32 SEQ=128 H=1024",
        "a == b",
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEENS_"
        "6detail5ArrayIPcLi1EEEEEvi",
        "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_bf16_128x256_32x3_nn_align8>(Params)",
        "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_SE_1LDSB0_APM1_ABV0_ACED0_AF0EM1_AF1EM1_AMAS3_ASE",
        "triton_poi_fused__to_copy_add_native_layer_norm_backward_view_0d1d2d3d4de",
        "GPU-1b2c3d4e-0000-1111-2222-333344445555",
        "eyJelly",
        "skip-connection",
        "std::pair<A, B>",
        "00000000000000000000000000000000",
        "DistributedDataParallel.forward"}) {
    EXPECT_EQ(mask_secrets(text), std::nullopt) << text << " -> " << *mask_secrets(text);
  }
}

TEST(ShownText, IsShortPlainAndMasked) {
  EXPECT_EQ(shown_text("a\nb\x01"), "a?b?");
  EXPECT_EQ(shown_text("a\xC2\x85"
                       "b\xC3\xA9"),
            "a??b\xC3\xA9");
  EXPECT_EQ(shown_text("a\xFF"
                       "b"),
            "a?b");
  EXPECT_EQ(shown_text("TOKEN=abc"), "TOKEN=[masked]");
  EXPECT_EQ(shown_text(std::string(100, 'x')), std::string(80, 'x') + "...");
  EXPECT_EQ(shown_text("abcdé", 5), "abcd...");
  // A secret that begins within what is shown and ends beyond it.
  EXPECT_EQ(shown_text("x " + std::string(50, 'a') + "0123456789", 20).find("aaa"),
            std::string::npos);
}

TEST(MaskSecrets, NamesOfAPoolStayDistinctAndFindable) {
  StringPool names;
  const NameId one = names.intern("SECRET=one"), add = names.intern("aten::add");
  const NameId two = names.intern("SECRET=two"), sly = names.intern("SECRET=[masked]");
  EXPECT_EQ(mask_secrets(names), 2u);
  EXPECT_EQ(names.text(sly), "SECRET=[masked]");  // stood there before
  EXPECT_EQ(names.text(add), "aten::add");
  EXPECT_NE(names.text(one), names.text(two));
  EXPECT_NE(names.text(one), names.text(sly));
  EXPECT_NE(names.text(two), names.text(sly));
  for (const NameId id : {one, two, sly}) {
    EXPECT_TRUE(names.text(id).starts_with("SECRET=[masked")) << names.text(id);
    EXPECT_EQ(names.intern(names.text(id)), id);
    EXPECT_EQ(names.hash(id), hash_text(names.text(id)));
  }
}

}  // namespace
}  // namespace perfmodel
