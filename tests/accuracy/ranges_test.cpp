#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "perfmodel/predictors/kernel.hpp"

/// The shipped model files say in their cards how many kept-out rows of each GPU lay inside low to
/// high, by what is known of the GPU; `train` measures it, KeptOutRows repeats it for some
/// families.
namespace perfmodel {
namespace {

using Json = nlohmann::json;

struct Worst {
  double share = 1;
  std::string gpu;
};

void keep_worst(Worst& worst, double share, const std::string& gpu) {
  if (share < worst.share) worst = {share, gpu};
}

TEST(Ranges, HoldOnEveryKeptOutGpuOfEveryShippedModel) {
  const auto folder = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "models";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream in(entry.path());
    for (const Json& model : Json::parse(in)["models"]) {
      const std::string name = model["name"];
      const Json& in_range = model["card"]["errors"]["in_range"];
      ASSERT_TRUE(in_range.contains("board")) << name;
      for (const auto& [level, gpus] : in_range.items()) {
        Worst worst;
        for (const auto& [gpu, share] : gpus.items()) {
          keep_worst(worst, share.get<double>(), gpu);
          // One range serves all GPUs that were left out: it holds the worst of them, and more of
          // the others.
          EXPECT_GE(share.get<double>(), level == "board" ? 0.85 : 0.80) << name << " " << gpu;
          if (level == "board") EXPECT_LE(share.get<double>(), 0.95) << name << " " << gpu;
        }
        std::printf("%-24s %-12s worst of %zu: %.1f %% (%s)\n", name.c_str(), level.c_str(),
                    gpus.size(), 100 * worst.share, worst.gpu.c_str());
      }
    }
    ++files;
  }
  EXPECT_GE(files, 7);
}

}  // namespace
}  // namespace perfmodel
