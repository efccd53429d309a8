#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "perfmodel/predictors/kernel.hpp"

/// The cards of the shipped model files say how many kept-out rows of each GPU were inside low to
/// high, by the knowledge of the GPU; `train` measures it, KeptOutRows repeats it for some
/// families.
namespace perfmodel {
namespace ranges_test {

using Json = nlohmann::json;

struct Exception {
  const char *model, *level, *gpu;
  double least, most;
};
// Ranges of rows that count as few independent ones.
constexpr Exception kExceptions[] = {
    // 698 rows of few products: one sweep says nothing of the next.
    {"gemm-float8-learned", "board", "mi308x", 0.83, 0.95},
    // Eleven shapes of layers: the outermost of them are the quantiles.
    {"experts-bfloat16-learned", "board", "a100-sxm-80gb", 0.85, 1},
    {"experts-bfloat16-learned", "board", "b200-sxm-180gb", 0.85, 0.97},
    {"experts-bfloat16-learned", "board", "gb200", 0.85, 0.97},
    {"experts-bfloat16-learned", "board", "rtx-pro-6000-server", 0.85, 0.98},
    // A few tens of rows kept out: one of them is 2 to 6 points.
    {"dropout-bfloat16-learned", "board", "h200-sxm-141gb", 0.8, 0.95},
    {"dropout-learned", "board", "h100-sxm-80gb", 0.85, 0.96},
    {"reduction-learned", "board", "h200-sxm-141gb", 0.84, 0.95},
    {"convolution-bfloat16-learned", "board", "h100-sxm-80gb", 0.85, 0.965},
    // Its layers lie beyond what H800's products fitted, where ranges are not moved apart.
    {"gemm-float8-learned", "chip", "h100-sxm-80gb", 0.83, 1},
};

struct Limits {
  double least, most;
};

/// One range serves all GPUs that were left out: it holds the worst of them, and more of the
/// others.
Limits limits_of(const std::string& model, const std::string& level, const std::string& gpu) {
  for (const Exception& exception : kExceptions) {
    if (model == exception.model && level == exception.level && gpu == exception.gpu) {
      return {exception.least, exception.most};
    }
  }
  return {0.85, level == "board" ? 0.95 : 1};
}

struct Share {
  double value = 0;
  std::string gpu;
};

TEST(Ranges, HoldOnEveryKeptOutGpuOfEveryShippedModel) {
  const auto folder = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "models";
  int shares = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream in(entry.path());
    const Json file = Json::parse(in);
    for (const Json& model : file.at("models")) {
      const std::string name = model.at("name");
      const Json& in_range = model.at("card").at("errors").at("in_range");
      ASSERT_TRUE(in_range.contains("board")) << name;
      for (const auto& [level, gpus] : in_range.items()) {
        Share worst{.value = 1, .gpu = {}}, best;
        for (const auto& [gpu, value] : gpus.items()) {
          const auto share = value.get<double>();
          const Limits limits = limits_of(name, level, gpu);
          EXPECT_GE(share, limits.least) << name << " " << level << " " << gpu;
          EXPECT_LE(share, limits.most) << name << " " << level << " " << gpu;
          if (share < worst.value) worst = {share, gpu};
          if (share > best.value) best = {share, gpu};
          ++shares;
        }
        std::printf("%-34s %-12s %2zu GPUs: %5.1f %% (%s) to %5.1f %% (%s)\n", name.c_str(),
                    level.c_str(), gpus.size(), 100 * worst.value, worst.gpu.c_str(),
                    100 * best.value, best.gpu.c_str());
      }
    }
  }
  EXPECT_GE(shares, 100);
}

}  // namespace ranges_test
}  // namespace perfmodel
