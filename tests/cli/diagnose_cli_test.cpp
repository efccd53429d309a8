// `perfpredict diagnose`: a normal run, a slow one, and what is refused.

#include <gtest/gtest.h>

#include <string>

#include "program.hpp"

namespace perfmodel::test_support {
namespace diagnose_cli_test {

Json diagnosed(Words figures) {
  Words words = {"diagnose", "gpt2", "--gpu", "a100-sxm-80gb", "--batch", "8"};
  words.insert(words.end(), figures.begin(), figures.end());
  return json_of(words);
}

TEST(DiagnoseCommand, TheStepThatIsPredictedIsNormal) {
  const double us = diagnosed({"--measured-step", "1s"})["figures"][0]["predicted"];
  const Json json = diagnosed({"--measured-step", std::to_string(us) + "us"});
  EXPECT_EQ(json["schema"], "perfmodel-diagnose");
  EXPECT_TRUE(json["normal"]);
  EXPECT_TRUE(json["figures"][0]["inside"]);
  const Json slow = diagnosed({"--measured-step", std::to_string(3 * us) + "us", "--clock-mhz",
                               "1400", "--busy-percent", "33"});
  EXPECT_FALSE(slow["normal"]);
  EXPECT_EQ(slow["causes"][0]["explained"].size(), 3U);
  double sum = 0;
  for (const Json& cause : slow["causes"]) sum += cause["probability"].get<double>();
  EXPECT_NEAR(sum, 1, 1e-4);
}

TEST(DiagnoseCommand, ALogOfNumbersNeedsAUnit) {
  const std::string log = written("numbers.log", "900\n700\n700\n700\n");
  const Json json = diagnosed({"--log", log, "--unit", "ms"});
  EXPECT_EQ(json["figures"][0]["measure"], "later-step");
  EXPECT_NEAR(json["figures"][0]["measured"].get<double>(), 700e3, 1e-6);
  expect_error({"diagnose", "gpt2", "--gpu", "a100-sxm-80gb", "--log", log}, 1,
               "--unit us, ms or s");
}

TEST(DiagnoseCommand, RefusesFiguresThatItCannotRead) {
  const auto refuses = [](const Words& figures, const std::string& why) {
    Words words = {"diagnose", "gpt2", "--gpu", "a100-sxm-80gb"};
    words.insert(words.end(), figures.begin(), figures.end());
    expect_error(words, 1, why);
  };
  refuses({}, "expected a measured figure of the run, found none");
  refuses({"--measured", "12parsecs"}, "found 12parsecs");
  refuses({"--measured", "12tokens/s"}, "--sequence");
  refuses({"--measured-step", "1s", "--tp", "2"}, "--tp: expected a layout");
}

}  // namespace diagnose_cli_test
}  // namespace perfmodel::test_support
