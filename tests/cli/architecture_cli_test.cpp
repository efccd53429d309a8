// GPUs of architectures that the project does not know.
#include <gtest/gtest.h>

#include <algorithm>

#include "program.hpp"

namespace perfmodel {
namespace architecture_cli_test {

using namespace test_support;

const fs::path kData = fs::path(PERFMODEL_SOURCE_DIR) / "data";
constexpr const char* kStandsIn =
    "architecture rubin of r100 is not known: hopper stands in, and every price of a kernel is out "
    "of range";

std::string write(const fs::path& file, const Json& document) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << document.dump(2);
  return file.string();
}

Json r100() {
  Json gpu = Json::parse(read(kData / "gpus" / "h200-sxm-141gb.json"));
  gpu["name"] = "r100";
  gpu["title"] = "R100";
  gpu["aliases"] = Json::array();
  gpu["architecture"] = "rubin";
  return gpu;
}

std::string r100_like_hopper() {
  Json gpu = r100();
  gpu["like"] = "hopper";
  return write(scratch() / "like-hopper.json", gpu);
}

const std::string& graph() {
  static const std::string file = built("mlp.json", {"mlp"});
  return file;
}

TEST(UnknownArchitecture, IsRefusedInOneLine) {
  const std::string file = write(scratch() / "r100.json", r100());
  for (const Words& words : {Words{"gpus", file}, Words{"predict", graph(), "--gpu", file}}) {
    for (const char* part : {"r100.json:", "/architecture: expected a known architecture",
                             "architectures/rubin.json", "\"like\""}) {
      expect_error(words, 1, part);
    }
  }
}

TEST(UnknownArchitecture, LikeAnotherIsSaidFirstAndOutOfRange) {
  const std::string gpu = r100_like_hopper();
  const Json known = json_of({"predict", graph(), "--gpu", "h200-sxm-141gb"});
  const Json predicted = json_of({"predict", graph(), "--gpu", gpu});
  EXPECT_EQ(predicted["warnings"][0], kStandsIn);
  EXPECT_TRUE(std::ranges::find(known["warnings"], kStandsIn) == known["warnings"].end());
  std::size_t kernels = 0;
  for (const Json& op : predicted["ops"]) {
    for (const Json& kernel : op["kernels"]) {
      EXPECT_EQ(kernel["in_range"], false) << op["name"];
      ++kernels;
    }
  }
  EXPECT_GT(kernels, 10U);
  const std::string text = run({"predict", graph(), "--gpu", gpu}).out;
  EXPECT_NE(text.find("- architecture rubin of r100"), std::string::npos) << text;

  EXPECT_EQ(json_of({"whatif", graph(), "--gpu", gpu, "--batch", "128"})["warnings"][0], kStandsIn);
  std::ofstream(scratch() / "gemms.csv") << "op,m,n,k,dtype\ngemm,512,512,512,fp32\n";
  const Json kernels_table = json_of({"kernels", scratch_file("gemms.csv"), "--gpu", gpu});
  EXPECT_EQ(kernels_table["warnings"][0], kStandsIn);
  EXPECT_EQ(kernels_table["kernels"][0]["in_range"], false);
  std::ofstream(scratch() / "tables.csv") << "table,rows,dim,pooling\na,1000000,64,10\n";
  EXPECT_EQ(json_of({"shard", scratch_file("tables.csv"), "--gpu", gpu, "--world", "2",
                     "--batch-per-gpu", "256"})["warnings"][0],
            kStandsIn);

  const std::string spec = write(scratch() / "sweep.json", {{"schema", "perfmodel-sweep"},
                                                            {"version", 1},
                                                            {"graphs", {{{"build", "mlp"}}}},
                                                            {"gpus", {gpu, "t4"}}});
  const std::string table = scratch_file("sweep.csv");
  EXPECT_EQ(json_of({"sweep", spec, "-o", table})["warnings"], Json({kStandsIn}));
  fs::remove(table);
  EXPECT_NE(run({"sweep", spec, "-o", table}).out.find("architecture rubin"), std::string::npos);

  const Json shown = json_of({"gpus", gpu})["gpus"][0];
  EXPECT_EQ(shown["architecture"], "rubin");
  EXPECT_EQ(shown["like"], "hopper");
  const Json t4 = json_of({"gpus", "t4"})["gpus"][0];
  EXPECT_TRUE(t4["like"].is_null());
  EXPECT_EQ(t4["dram"]["usable_gib"], 14.56);
  EXPECT_TRUE(json_of({"gpus", "a30"})["gpus"][0]["dram"]["usable_gib"].is_null());
}

TEST(NewArchitecture, IsTwoFiles) {
  const fs::path data = scratch() / "data";
  fs::create_directories(data);
  for (const char* folder : {"models", "overheads", "topologies"}) {
    fs::create_directory_symlink(kData / folder, data / folder);
  }
  fs::copy(kData / "gpus", data / "gpus");
  fs::copy(kData / "architectures", data / "architectures");
  Json rubin = Json::parse(read(kData / "architectures" / "hopper.json"));
  rubin["name"] = "rubin";
  rubin["targets"] = {"sm_107"};
  write(data / "architectures" / "rubin.json", rubin);
  write(data / "gpus" / "r100.json", r100());

  const std::string environment = "PERFMODEL_DATA='" + data.string() + "'";
  const Words words = {"predict", graph(), "--models", "heuristic", "--gpu"};
  Words own = words, like = words;
  own.push_back("r100");
  like.push_back("h200-sxm-141gb");
  const Json predicted = json_of(own, environment), of_hopper = json_of(like, environment);
  EXPECT_EQ(predicted["kernel_sum_us"], of_hopper["kernel_sum_us"]);
  EXPECT_EQ(predicted["warnings"], of_hopper["warnings"]);
  EXPECT_EQ(json_of({"gpus", "r100"}, environment)["gpus"][0]["architecture"], "rubin");
}

}  // namespace architecture_cli_test
}  // namespace perfmodel
