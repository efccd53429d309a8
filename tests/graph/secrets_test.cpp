#include "base/secrets.hpp"

#include <gtest/gtest.h>

#include <string>

namespace perfmodel {
namespace secrets_test {

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
      {"{'HOME': '/root', 'DB_HOST': 'db7', 'DB_PASS': 'pw123'}", "{'HOME': '[masked]"},
      {R"({"HOME":"/root","DB_HOST":"db7"})", R"({"HOME":"[masked])"},
      {"HOME: /root\nDB_HOST: db7", "HOME: [masked]"},
      {"{'DB_HOST': 'db7', 'DB_NAME': 'users', 'SHELL': '/bin/sh'}", "{'DB_HOST': '[masked]"},
      {"env\n  DB_HOST: db7\n  DB_NAME: users\n  SHELL: /bin/sh\n", "env\n  DB_HOST: [masked]"},
      {"SLURM_NODELIST: n[1-4]", "SLURM_NODELIST: [masked]"},
      {"DB_PASS: 1234", "DB_PASS: [masked]"},
      {"passwords: a, b", "passwords: [masked]"},
      {"secretKey=abc", "secretKey=[masked]"},
      {"awsAccessKey=abc", "awsAccessKey=[masked]"},
      {"password\t=\tx", "password\t=\t[masked]"},
      {"use ghu_0123456789abcdefghij", "use [masked]"},
      {"use ghr_0123456789abcdefghij", "use [masked]"},
      {"use npm_0123456789abcdefghij", "use [masked]"},
      {"use AIzaSyA0123456789abcdefghijklmnopqrstu", "use [masked]"},
      {"use sk_live_0123456789abcdef", "use [masked]"},
      {"use sk_test_0123456789abcdef", "use [masked]"},
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

// Made up, in the formats that their issuers document.
TEST(MaskSecrets, KeysOfEveryKnownKindAreMasked) {
  for (const char* key : {
           "AKIAQ3EGP7LJ2MZT5XWV",
           "ASIAQ3EGP7LJ2MZT5XWV",
           "AIzaSyB7-qK3nD_0pZrV8xWt2LmYc5HsGf1JaQe",
           "ghp_x7Kq2LmV9pRt4WzYc8NbGf3HsJd6QeAu1T5o",
           "gho_x7Kq2LmV9pRt4WzYc8NbGf3HsJd6QeAu1T5o",
           "ghs_x7Kq2LmV9pRt4WzYc8NbGf3HsJd6QeAu1T5o",
           "github_pat_11ABCDEFG0aBcDeFgHiJkL_mN2oP3qR4sT5uV6wX7yZ8aB9cD0eF1gH2iJ3kL4mN5",
           "glpat-x7Kq2LmV9pRt4Wz-Yc8N",
           "npm_x7Kq2LmV9pRt4WzYc8NbGf3HsJd6QeAu1T5o",
           "xoxb-1234567890123-1234567890123-x7Kq2LmV9pRt4WzYc8NbGf3H",
           "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",
           "sk-proj-x7Kq2LmV9pRt4WzYc8NbT3BlbkFJx7Kq2LmV9p",
           "sk-ant-api03-x7Kq2LmV9pRt4WzYc8Nb-Gf3HsJd6QeAu1T5o_aA",
           "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",  // only letters
           "hf_qWxVbNkLmPz7tYcGfHs2dQeAuToIw9xKvB",
           "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJl",
           "Bearer x7Kq2LmV9pRt4WzYc8Nb",
           "d41d8cd98f00b204e9800998ecf8427e",
           "wJalrXUtnFEMI/K7MDENG/bPxRfiCY7zX9qQk2Lm",
       }) {
    EXPECT_EQ(mask_secrets(key), "[masked]") << key;
    EXPECT_EQ(mask_secrets(std::string("load ") + key), "load [masked]") << key;
  }
}

TEST(MaskSecrets, NamesThatBeginLikeAKeyStay) {
  for (const char* name :
       {"hf_bert.json", "hf_bert_large_uncased_seq512_batch16_fp16.json",
        "/data/traces/hf_gpt2_xl_b8_s1024_a100.json.gz", "hf_llama-3.1-8b-instruct-bs4-seq2048",
        "hf_transformers_model_2024_12_31_trace.json", "hf_BertForSequenceClassification512Tokens",
        "sk-learn-pipeline-v2-batch2048-fp32", "sk-resnet50-imagenet-2024-12-31-run7.json",
        "npm_install_2024_trace", "ghs_run_2048_batch_16_trace_of_rank_0.json", "Bearer network4",
        "bearer channel 100 of 2048"}) {
    EXPECT_EQ(mask_secrets(name), std::nullopt) << name << " -> " << *mask_secrets(name);
  }
}

TEST(MaskSecrets, NamesOfTritonKernelsStay) {
  for (const char* name :
       {"triton__0d1d2d3de", "triton__0d1d2d3d4d5d6d7d8d9d10d11d12d13d14de",
        "triton__0d1d2d3c4d5c6d7d8c9d10d11d12c13d14c15d16d17c18d19d20d21d22d23de",
        "triton_poi_fused__to_copy_add_native_layer_norm_0d1d2d3d4d5d6d7d8d9d10d11d12d13d14d15de",
        "triton_red_fused_add_native_layer_norm_backward_12"}) {
    EXPECT_EQ(mask_secrets(name), std::nullopt) << name << " -> " << *mask_secrets(name);
  }
}

TEST(MaskSecrets, PathsStay) {
  for (const char* path : {"/mnt/Datasets2024/Experiments12/TracesOfRank0",
                           "/home/models/Gpt2ExtraLarge/Batch16/Sequence1024"}) {
    EXPECT_EQ(mask_secrets(path), std::nullopt) << path << " -> " << *mask_secrets(path);
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
        "FP32: 3, BF16: 4",
        "FP32: 3ms, BF16: 4ms, INT8: 5ms",
        "GPU: 0",
        "GPU: A100, OS: Linux, CPU: EPYC",
        "ALGO: RING, PROTO: LL128, DTYPE: BF16",
        "ALGO:RING PROTO:LL128 DTYPE:BF16",
        "{'XBLOCK': 'constexpr', 'YBLOCK': 'constexpr', 'RBLOCK': 'constexpr'}",
        "{'BLOCK_M': 64, 'BLOCK_N': 128, 'BLOCK_K': 32, 'EVEN_K': True}",
        "{\"DIMS\": [2, 3], \"SHAPE\": (4, 5), \"STRIDES\": [1, 2]}",
        "HOME::PATH::USER",
        "PATH:edge",
        "FORWARD_PASS=whole",
        "BACKWARD_PASS: half",
        "forward pass: 3",
        "num_passes=3",
        "npm_install",
        "AIzawa",
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEEEEvi",
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
            "a?b\xC3\xA9");
  EXPECT_EQ(shown_text("a\xFF"
                       "b"),
            "a?b");
  EXPECT_EQ(shown_text("\xE2\x80\xAE"
                       "a\xFF\xC3\xA9"),
            "?a?\xC3\xA9");
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
  EXPECT_EQ(names.text(sly), "SECRET=[masked]");  // was there before
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

}  // namespace secrets_test
}  // namespace perfmodel
