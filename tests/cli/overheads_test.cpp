// `perfpredict overheads`: its table and what it says of itself.
#include <gtest/gtest.h>

#include <string>

#include "samples.hpp"

namespace perfmodel::test_support {
namespace overheads_test {

TEST(OverheadsCommand, TablesHaveTheContractedKeys) {
  for (const std::string method : {"context", "raw", "lin"}) {
    SCOPED_TRACE(method);
    const Json made = json_of({"overheads", sample("kineto_plain_2023.json"), "--graph",
                               sample("et_plain_2023.json"), "--method", method});
    EXPECT_EQ(made["method"], method);
    for (const char* key : {"median_us", "mean_us", "std_us", "count"}) {
      EXPECT_TRUE(made["t1"].contains(key)) << key;
    }
    for (const char* key : {"t2", "t3", "t4", "t5", "tx", "ops"}) {
      EXPECT_TRUE(made[key].is_object()) << key;
    }
    EXPECT_TRUE(made["t4"].contains("cudaLaunchKernel"));
  }
}

TEST(OverheadsCommand, TheCommandNamesFilesWithoutFolders) {
  const Json made =
      json_of({"overheads", sample("kineto_plain_2023.json"), sample("kineto_optimizer_2023.json"),
               "--graph", "-", sample("et_optimizer_2023.json"), "--profiler-cost", "0.5"});
  EXPECT_EQ(made["command"],
            "perfpredict overheads kineto_plain_2023.json kineto_optimizer_2023.json --graph - "
            "et_optimizer_2023.json --method context --profiler-cost 0.5");
  EXPECT_EQ(made["sources"].size(), 2U);
}

TEST(OverheadsCommand, ScalingToItselfChangesNothingAndIsSaid) {
  const Words words = {"overheads", sample("kineto_plain_2023.json"), "--graph",
                       sample("et_plain_2023.json")};
  Words scaled_words = words;
  scaled_words.insert(scaled_words.end(), {"--scale-to", table()});
  const Json plain = json_of(words), scaled = json_of(scaled_words);
  EXPECT_NEAR(scaled["t1"]["mean_us"], plain["t1"]["mean_us"], 1e-3);
  EXPECT_TRUE(warns(scaled, "table.json"));
}

}  // namespace overheads_test
}  // namespace perfmodel::test_support
