// Rules of `analyze` about what one kernel could do: attention, chains, layouts of images,
// launches.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "made_trace.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/findings.hpp"

namespace perfmodel {
namespace analyze_fusion_test {

using test_support::MadeTrace;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Gpu& a100() {
  static const Gpu gpu = *find_gpu("a100-sxm-40gb", *find_data_folder() / "gpus");
  return gpu;
}

void kernel_of(MadeTrace& made, const char* op, double us, const char* kernel,
               const std::string& args = "") {
  made.op(
      op,
      [&] {
        made.spend(3);
        made.launch(4, us, 7, kernel);
      },
      args);
}

const auto kProduct = [](MadeTrace& made, const char* op) {
  kernel_of(made, op, 100, "ampere_bf16_s16816gemm_bf16_128x128_ldg8");
};

// A busy device: products in bf16 around `body`, step after step.
Trace steps_around(const std::function<void(MadeTrace&)>& body) {
  MadeTrace made;
  made.calibrate();
  for (int step = 0; step < 3; ++step) {
    made.step([&] {
      for (int i = 0; i < 10; ++i) kProduct(made, "aten::mm");
      body(made);
      for (int i = 0; i < 10; ++i) kProduct(made, "aten::mm");
    });
  }
  return made.trace();
}

std::vector<Finding> above_fold(const Trace& trace) {
  const auto found = analyze(std::span(&trace, 1), &a100());
  EXPECT_TRUE(found) << (found ? "" : found.error().message);
  std::vector<Finding> made;
  if (!found) return made;
  for (const Finding& finding : found->findings) {
    if (!finding.folded) made.push_back(finding);
  }
  return made;
}

std::vector<std::string> rules_of(const std::vector<Finding>& found) {
  std::vector<std::string> rules;
  for (const Finding& finding : found) rules.emplace_back(finding.rule);
  return rules;
}

void eager_attention(MadeTrace& made, const char* product) {
  kProduct(made, product);
  kernel_of(made, "aten::div", 60, "vectorized_elementwise_kernel<4, div>");
  kernel_of(made, "aten::masked_fill", 60, "elementwise_kernel<128, 4, masked_fill>");
  kernel_of(made, "aten::_softmax", 80, "softmax_warp_forward<float>");
  kProduct(made, product);
}

TEST(AnalyzeFusion, AttentionInManyKernels) {
  const auto found =
      above_fold(steps_around([](MadeTrace& made) { eager_attention(made, "aten::bmm"); }));
  ASSERT_THAT(rules_of(found), ElementsAre("unfused-attention"));
  EXPECT_THAT(found[0].title, HasSubstr("3 around 1 softmaxes per step"));
  EXPECT_THAT(found[0].title, HasSubstr("200 us"));
  EXPECT_THAT(found[0].advice, HasSubstr("F.scaled_dot_product_attention("));
  // The kernels' time and the gaps between them on the stream.
  EXPECT_NEAR(*found[0].gain_us, 200, 3 * MadeTrace::kGap);
}

// A softmax between products of whole matrices chooses experts, or is a loss.
TEST(AnalyzeFusion, ASoftmaxBesidePlainProductsIsNoAttention) {
  EXPECT_THAT(above_fold(steps_around([](MadeTrace& made) { eager_attention(made, "aten::mm"); })),
              IsEmpty());
  EXPECT_THAT(above_fold(steps_around([](MadeTrace& made) {
                kProduct(made, "aten::bmm");
                kernel_of(made, "aten::_log_softmax", 200,
                          "cunn_SoftMaxForward<LogSoftMaxForward>");
                kProduct(made, "aten::bmm");
              })),
              IsEmpty());
}

const std::string kTwoTensors =
    R"("Input Dims": [[8192, 4096], [8192, 4096], []], "Input type": ["float", "float", "Scalar"], )"
    R"("Concrete Inputs": ["", "", "1"])";

// Three sums of tensors of 134 MB: 3 x 3 reads and writes. As one kernel the first reads two
// tensors, the others one each, and the last alone writes: five of nine.
TEST(AnalyzeFusion, ChainsThatHandEachOtherTensors) {
  constexpr double kUs = 300;
  const auto found = above_fold(steps_around([&](MadeTrace& made) {
    for (int i = 0; i < 3; ++i) {
      kernel_of(made, "aten::add", kUs, "vectorized_elementwise_kernel<4, add>", kTwoTensors);
    }
  }));
  ASSERT_THAT(rules_of(found), ElementsAre("unfused-chains"));
  EXPECT_THAT(found[0].title, HasSubstr("3 kernels per step in 1 chains"));
  EXPECT_THAT(found[0].advice, HasSubstr("torch.compile(model)"));
  EXPECT_NEAR(*found[0].gain_us, 3 * kUs * 4 / 9, 3);
}

// torch.compile(model) leaves the optimizer alone, whose chains begin and end with it.
TEST(AnalyzeFusion, ChainsOfOptimizersNeedAnotherOptimizer) {
  const auto chains_in = [](const char* optimizer) {
    return above_fold(steps_around([=](MadeTrace& made) {
      const auto adds = [&] {
        for (int i = 0; i < 3; ++i) {
          kernel_of(made, "aten::add", 300, "vectorized_elementwise_kernel<4, add>", kTwoTensors);
        }
      };
      adds();
      made.annotation(fmt::format("Optimizer.step#{}.step", optimizer), adds);
    }));
  };
  for (const auto& [optimizer, advice] :
       {std::pair{"AdamW", "torch.optim.AdamW(model.parameters(), fused=True)"},
        std::pair{"SGD", "torch.optim.SGD(model.parameters(), fused=True)"},
        std::pair{"RMSprop", "torch.compile(optimizer.step)"}}) {
    const auto found = chains_in(optimizer);
    ASSERT_THAT(rules_of(found), ElementsAre("unfused-chains", "unfused-chains")) << optimizer;
    const bool is_first = found[0].title.find("of the optimizer") != std::string::npos;
    const Finding& of_optimizer = found[is_first ? 0 : 1];
    EXPECT_THAT(
        of_optimizer.title,
        HasSubstr(fmt::format("3 kernels per step in 1 chains of the optimizer {}", optimizer)));
    EXPECT_THAT(of_optimizer.advice, HasSubstr(advice));
    EXPECT_THAT(found[is_first ? 1 : 0].advice, HasSubstr("torch.compile(model)"));
  }
}

std::string convolution(const char* strides) {
  return fmt::format(
      R"("Input Dims": [[64, 256, 56, 56], [256, 256, 3, 3], [], [], [], [], [], []], )"
      R"("Input Strides": [{}, [2304, 9, 3, 1], [], [], [], [], [], []], )"
      R"("Input type": ["c10::Half", "c10::Half", "", "ScalarList", "ScalarList", "ScalarList", )"
      R"("Scalar", "Scalar"], "Concrete Inputs": ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", )"
      R"("1", "False"])",
      strides);
}

TEST(AnalyzeFusion, ConvolutionsThatTransposeImages) {
  const auto images = [](const char* strides, double transpose_us) {
    return [=](MadeTrace& made) {
      made.op(
          "aten::convolution",
          [&] {
            if (transpose_us > 0) made.launch(4, transpose_us, 7, "nchwToNhwcKernel");
            made.launch(4, 700, 7, "sm80_xmma_fprop_implicit_gemm_f16f16_nhwckrsc");
          },
          convolution(strides));
    };
  };
  const auto found = above_fold(steps_around(images("[802816, 3136, 56, 1]", 150)));
  ASSERT_THAT(rules_of(found), ElementsAre("channels-first"));
  EXPECT_THAT(found[0].title, HasSubstr("1 convolutions per step"));
  EXPECT_THAT(found[0].title, HasSubstr("with 1 transposes around them"));
  EXPECT_THAT(found[0].advice, HasSubstr("torch.channels_last"));
  EXPECT_NEAR(*found[0].gain_us, 150, 2);
  EXPECT_THAT(above_fold(steps_around(images("[802816, 1, 14336, 256]", 0))), IsEmpty());
}

// The host takes longer than the device for some of the kernels, none of which waits for anything.
TEST(AnalyzeFusion, GapsInFrontOfLaunches) {
  const auto found = above_fold(steps_around([](MadeTrace& made) {
    for (int i = 0; i < 90; ++i) {
      made.op("aten::bmm", [&] {
        made.spend(35);
        made.launch(5, 15, 7, "ampere_bf16_s16816gemm_bf16_64x64");
      });
    }
  }));
  ASSERT_THAT(rules_of(found), ElementsAre("launch-gaps"));
  EXPECT_THAT(found[0].advice, HasSubstr("mode=\"reduce-overhead\""));
}

}  // namespace analyze_fusion_test
}  // namespace perfmodel
