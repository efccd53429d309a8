#include "perfmodel/predictors/detail/architecture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "../scratch.hpp"
#include "graph_fixture.hpp"
#include "price/kernel_work.hpp"

namespace perfmodel {
namespace architecture_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Json = nlohmann::json;

const fs::path kData = fs::path(PERFMODEL_SOURCE_DIR) / "data";

Json json_of(const fs::path& file) {
  std::ifstream in(file);
  return Json::parse(in);
}

/// A data folder of one's own, with the architectures of the project to begin with.
class DataFolder {
 public:
  DataFolder() {
    path_ = test_support::scratch() / "architecture";
    fs::remove_all(path_);
    fs::create_directories(path_ / "gpus");
    fs::copy(kData / "architectures", path_ / "architectures");
  }
  ~DataFolder() { fs::remove_all(path_); }

  /// A changed copy of a file of the project, under another name.
  fs::path add(const std::string& folder, const std::string& of, const std::string& name,
               const std::function<void(Json&)>& change) const {
    Json document = json_of(kData / folder / (of + ".json"));
    document["name"] = name;
    if (folder == "gpus") {
      document["title"] = name;
      document["aliases"] = Json::array();
    }
    change(document);
    const fs::path file = path_ / folder / (name + ".json");
    std::ofstream(file) << document.dump(2);
    return file;
  }
  fs::path gpus() const { return path_ / "gpus"; }
  fs::path architectures() const { return path_ / "architectures"; }

 private:
  fs::path path_;
};

Price price_of(const KernelWork& work, const Gpu& gpu) {
  const Price price = KernelModels::heuristic().price(work, gpu);
  Price of_many;
  KernelModels::heuristic().price_many({&work, 1}, gpu, {&of_many, 1});
  EXPECT_EQ(of_many.time, price.time);
  EXPECT_EQ(of_many.in_range, price.in_range);
  return price;
}

const KernelWork kStream = elementwise_work(1e9, 1, 1, DType::kFloat32);
KernelWork product() {
  return gemm_work({.batch = 1, .m = 4096, .n = 4096, .k = 4096}, DType::kFloat32, false);
}

TEST(Architectures, EveryFileLoadsAndSaysWhatItsGpusAre) {
  const auto all = read_architectures(kData / "architectures");
  ASSERT_TRUE(all) << to_string(all.error());
  EXPECT_EQ(all->size(), 14u);
  std::set<std::string> targets;
  for (const Architecture& architecture : *all) {
    EXPECT_TRUE(architecture.is_known());
    EXPECT_FALSE(architecture.targets.empty()) << architecture.name;
    for (const std::string& target : architecture.targets) {
      EXPECT_TRUE(targets.insert(target).second) << target << " belongs to two";
    }
  }
  const auto gpus = read_gpus(kData / "gpus");
  ASSERT_TRUE(gpus) << to_string(gpus.error());
  for (const Gpu& gpu : *gpus) {
    const Architecture& architecture = gpu.architecture;
    EXPECT_TRUE(architecture.is_known()) << gpu.name;
    EXPECT_THAT(architecture.targets, ::testing::Contains(gpu.target)) << gpu.name;
    EXPECT_EQ(architecture.vendor, gpu.vendor) << gpu.name;
    EXPECT_TRUE(stand_ins(gpu).empty()) << gpu.name;
  }
}

TEST(Architectures, MeasuredKernelsNameBoardsOfTheArchitecture) {
  const auto gpus = read_gpus(kData / "gpus");
  ASSERT_TRUE(gpus) << to_string(gpus.error());
  std::map<std::string, std::string> architectures;
  for (const Gpu& gpu : *gpus) architectures[gpu.name] = gpu.architecture.name;
  std::size_t boards = 0;
  for (const Gpu& gpu : *gpus) {
    for (const MeasuredKernels& measured : gpu.architecture.measured_kernels) {
      const std::string family = measured.kernels.substr(0, measured.kernels.find('-'));
      bool is_known = false;
      for (int i = 0; i <= static_cast<int>(KernelFamily::kSmall); ++i) {
        is_known |= to_string(static_cast<KernelFamily>(i)) == family;
      }
      EXPECT_TRUE(is_known) << measured.kernels;
      for (const std::string& name : measured.gpus) {
        EXPECT_EQ(architectures[name], gpu.architecture.name) << name;
        ++boards;
      }
    }
  }
  EXPECT_GT(boards, 30u);
}

TEST(Architectures, RangesAreWiderWhereNobodyMeasuredSuchKernels) {
  Gpu gpu = test_support::round_gpu();
  gpu.name = "mine";
  gpu.architecture = test_support::architecture("volta");
  gpu.architecture.measured_kernels = {{"elementwise-float32", {"yours"}}};
  const Price sibling = price_of(kStream, gpu);
  EXPECT_EQ(sibling.knowledge, Knowledge::kArchitecture);
  gpu.architecture.measured_kernels = {{"elementwise-float32", {"yours", "mine"}}};
  const Price measured = price_of(kStream, gpu);
  EXPECT_EQ(measured.knowledge, Knowledge::kBoard);
  EXPECT_EQ(measured.high, sibling.high);
  gpu.architecture.measured_kernels = {{"elementwise-bfloat16", {"mine"}}, {"gemm", {"mine"}}};
  const Price unknown = price_of(kStream, gpu);
  EXPECT_EQ(unknown.knowledge, Knowledge::kNone);
  EXPECT_EQ(unknown.time, measured.time);
  const double high = measured.high / measured.time, low = measured.low / measured.time;
  EXPECT_NEAR(unknown.high / unknown.time, high * high, 1e-12);
  EXPECT_NEAR(unknown.low / unknown.time, low * low, 1e-12);
  // An entry without a type counts for every type, bf16 for fp16.
  EXPECT_EQ(price_of(product(), gpu).knowledge, Knowledge::kBoard);
  EXPECT_EQ(price_of(elementwise_work(1e9, 1, 1, DType::kFloat16), gpu).knowledge,
            Knowledge::kBoard);
  EXPECT_TRUE(test_support::architecture("ada").measured_kernels.empty());
}

TEST(Architectures, VariantsOfElementwiseKernelsCostTimePerElement) {
  for (const char* name : {"hopper", "cdna3"}) {
    Gpu gpu;
    gpu.num_sms = 100;
    gpu.boost_clock_mhz = 1000;
    gpu.dram_bandwidth = {1e15};
    gpu.architecture = test_support::architecture(name);
    const ElementwiseRates& rates = gpu.architecture.elementwise_rates;
    // With two inputs: one that is converted is a cast, which has a rate of its own.
    KernelWork work = elementwise_work(1e9, 2, 0, DType::kFloat16);
    for (const auto& [layout, rate] : {std::pair{Layout::kBroadcast, rates.broadcast},
                                       std::pair{Layout::kStrided, rates.strided},
                                       std::pair{Layout::kMixedTypes, rates.mixed_types}}) {
      work.layout = layout;
      EXPECT_NEAR(price_of(work, gpu).compute.count(), 1e9 / (rate * 1e5), 1e-6) << name;
    }
    work.layout = Layout::kContiguous;
    EXPECT_EQ(price_of(work, gpu).compute.count(), 0) << name;
  }
}

TEST(Architectures, ReadsFiguresOfItsOwnAndOfOthers) {
  const Architecture& volta = test_support::architecture("volta");
  EXPECT_EQ(volta.hbm_share, 0.92);
  ASSERT_EQ(volta.batched_gemm_tiles.size(), 2u);
  EXPECT_EQ(volta.batched_gemm_tiles[1].log2_m, 7);  // 128 x 32
  EXPECT_EQ(volta.batched_gemm_tiles[1].log2_n, 5);
  EXPECT_EQ(volta.batched_gemm_tiles[1].efficiency, 0.84);
  EXPECT_EQ(volta.batched_gemm_tiles[1].alone, 0.45);

  const Architecture& turing = test_support::architecture("turing");
  ASSERT_EQ(turing.gemm_tiles.size(), volta.gemm_tiles.size());  // "as": "volta"
  EXPECT_EQ(turing.gemm_tiles[8].log2_n, volta.gemm_tiles[8].log2_n);
  EXPECT_EQ(turing.max_blocks_per_sm, 16);
  EXPECT_EQ(turing.blas_workspace_bytes, volta.blas_workspace_bytes);
  EXPECT_EQ(test_support::architecture("hopper").blas_workspace_bytes, 32 << 20);
  EXPECT_TRUE(test_support::architecture("cdna2").batched_gemm_tiles.empty());  // null
  const AttentionKernels& own = test_support::architecture("ampere").attention_kernels;
  const AttentionKernels& lent = test_support::architecture("ada").attention_kernels;
  ASSERT_EQ(own.list.size(), 2u);
  ASSERT_EQ(lent.list.size(), 2u);
  EXPECT_TRUE(own.list[1].measured);
  EXPECT_FALSE(lent.list[1].measured);  // there
  EXPECT_EQ(lent.list[1].tiles[0].share, own.list[1].tiles[0].share);
  EXPECT_TRUE(test_support::architecture("volta").attention_kernels.list.empty());  // null
  const Architecture& hopper = test_support::architecture("hopper");
  ASSERT_EQ(hopper.experts_kernels.size(), 2u);
  EXPECT_EQ(hopper.experts_kernels[1].name, ExpertsLibrary::kCutlass);
  EXPECT_EQ(hopper.experts_kernels[1].tiles[3].log2_n, 8);
  EXPECT_FALSE(test_support::architecture("cdna4").experts_kernels.at(0).measured);
  EXPECT_TRUE(test_support::architecture("volta").experts_kernels.empty());
  EXPECT_TRUE(hopper.linear_attention->measured);
  EXPECT_FALSE(test_support::architecture("ampere").linear_attention->measured);
  EXPECT_FALSE(test_support::architecture("volta").linear_attention.has_value());
  EXPECT_EQ(hopper.warm_inputs->none_held, 1);
  EXPECT_FALSE(test_support::architecture("ampere").warm_inputs.has_value());
  EXPECT_EQ(test_support::architecture("hopper").nccl_generation, NcclGeneration::kHopper);
  EXPECT_EQ(test_support::architecture("cdna3").nccl_generation, NcclGeneration::kAmpere);
}

// cudaOccMaxBlocksPerMultiprocessor of cuda_occupancy.h, CUDA 13.0.
TEST(Architectures, ResidentBlocksAreThoseOfTheTarget) {
  const std::map<std::string, int> blocks = {
      {"sm_52", 32}, {"sm_60", 32}, {"sm_61", 32}, {"sm_70", 32},  {"sm_75", 16},  {"sm_80", 32},
      {"sm_86", 16}, {"sm_89", 24}, {"sm_90", 32}, {"sm_100", 32}, {"sm_103", 32}, {"sm_120", 24}};
  const std::vector<Gpu> gpus = read_gpus(kData / "gpus").value();
  for (const Gpu& gpu : gpus) {
    if (gpu.vendor != "nvidia") continue;
    EXPECT_EQ(gpu.architecture.max_blocks_per_sm, blocks.at(gpu.target)) << gpu.name;
  }
}

struct BadField {
  const char* label;
  std::function<void(Json&)> change;
  const char* pointer;
  const char* message;
};

TEST(Architectures, ErrorsNameTheField) {
  const BadField cases[] = {
      {"missing", [](Json& j) { j["facts"].erase("hbm_share"); }, "/facts/hbm_share",
       "expected this key, found nothing"},
      {"no source", [](Json& j) { j["facts"]["hbm_share"]["source"] = ""; },
       "/facts/hbm_share/source", "expected where the figure is from, found \"\""},
      {"neither", [](Json& j) { j["facts"]["hbm_share"].erase("value"); }, "/facts/hbm_share/value",
       "expected this key, found nothing"},
      {"both", [](Json& j) { j["facts"]["hbm_share"]["as"] = "volta"; }, "/facts/hbm_share/value",
       "expected no such key, found 0.89"},
      {"whole", [](Json& j) { j["facts"]["hbm_share"]["value"] = 1.1; }, "/facts/hbm_share/value",
       "expected a share from 0.001 to 1, found 1.1"},
      {"bytes", [](Json& j) { j["facts"]["context_bytes"]["value"] = 0.5; },
       "/facts/context_bytes/value", "expected a whole number of at least 0, found 0.5"},
      {"unknown",
       [](Json& j) {
         j["facts"]["hbm_share"] = {{"as", "volt"}, {"source", "x"}};
       },
       "/facts/hbm_share/as",
       "expected a known architecture, found \"volt\"; the nearest known are volta"},
      {"of another",
       [](Json& j) {
         j["facts"]["hbm_share"] = {{"as", "hopper"}, {"source", "x"}};
       },
       "/facts/hbm_share/as",
       "expected an architecture with a value of its own, found \"hopper\", which takes another's "
       "value"},
      {"itself",
       [](Json& j) {
         j["facts"]["hbm_share"] = {{"as", "ampere"}, {"source", "x"}};
       },
       "/facts/hbm_share/as",
       "expected an architecture with a value of its own, found \"ampere\", which takes another's "
       "value"},
      {"blocks of a target",
       [](Json& j) { j["facts"]["max_blocks_per_sm"]["of_targets"]["sm_86"] = 2048; },
       "/facts/max_blocks_per_sm/of_targets/sm_86",
       "expected an integer from 1 to 1024, found 2048"},
      {"unknown target",
       [](Json& j) { j["facts"]["max_blocks_per_sm"]["of_targets"]["sm_90"] = 32; },
       "/facts/max_blocks_per_sm/of_targets/sm_90",
       "expected no such key (but \"sm_80\"), found 32"},
      {"side", [](Json& j) { j["facts"]["gemm_tiles"]["value"][2]["m"] = 96; },
       "/facts/gemm_tiles/value/2/m", "expected a power of two from 8 to 1024, found 96"},
      {"no tiles", [](Json& j) { j["facts"]["gemm_tiles"]["value"] = Json::array(); },
       "/facts/gemm_tiles/value", "expected 1 to 64 tiles, found []"},
      {"generation", [](Json& j) { j["facts"]["nccl_generation"]["value"] = "rubin"; },
       "/facts/nccl_generation/value",
       "expected \"volta\", \"ampere\", \"hopper\" or \"blackwell\", found \"rubin\""},
      {"attention kernel",
       [](Json& j) { j["facts"]["attention_kernels"]["value"]["kernels"][0]["name"] = "fa5"; },
       "/facts/attention_kernels/value/kernels/0/name",
       "expected \"fa2\", \"fa3\", \"fa4\", \"trtllm_gen\" or \"cudnn\", found \"fa5\""},
      {"library of experts",
       [](Json& j) { j["facts"]["experts_kernels"]["value"][0]["name"] = "vllm"; },
       "/facts/experts_kernels/value/0/name",
       "expected \"triton\", \"cutlass\" or \"tuned\", found \"vllm\""},
      {"framework's attention",
       [](Json& j) { j["facts"]["attention_kernels"]["value"]["framework"] = "fa3"; },
       "/facts/attention_kernels/value/framework",
       "expected the name of one of the kernels, forward, found \"fa3\""},
      {"order of head sizes",
       [](Json& j) {
         j["facts"]["attention_kernels"]["value"]["kernels"][0]["tiles"][1]["head_dim"] = 64;
       },
       "/facts/attention_kernels/value/kernels/0/tiles/1/head_dim",
       "expected a larger head size than the tile before, found 64"},
      {"held inputs",
       [](Json& j) {
         j["facts"]["warm_inputs"]["value"] = {{"all_held", 0.5},
                                               {"none_held", 0.5},
                                               {"elementwise", 1},
                                               {"softmax", 1},
                                               {"norm", 1}};
       },
       "/facts/warm_inputs/value/none_held", "expected a number above all_held, found 0.5"},
      {"more", [](Json& j) { j["facts"]["clusters"] = 1; }, "/facts/clusters",
       "expected no such key, found 1"},
  };
  for (const BadField& bad : cases) {
    const DataFolder data;
    const fs::path file = data.add("architectures", "ampere", "ampere", bad.change);
    const auto read = read_architecture(file);
    ASSERT_FALSE(read) << bad.label;
    EXPECT_EQ(read.error().json_pointer, bad.pointer) << bad.label;
    EXPECT_EQ(read.error().message, bad.message) << bad.label;
    EXPECT_EQ(read.error().file, file) << bad.label;
  }
}

TEST(Architectures, AnErrorIsThatOfTheFileThatHasIt) {
  const DataFolder data;
  const fs::path broken =
      data.add("architectures", "volta", "volta", [](Json& j) { j["facts"].erase("gemm_tiles"); });
  const fs::path gpu = data.add("gpus", "t4", "mine", [](Json&) {});  // turing: tiles of volta
  const auto read = read_gpu(gpu);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().file, broken);
  EXPECT_EQ(read.error().json_pointer, "/facts/gemm_tiles");
  EXPECT_GT(read.error().line, 1);
}

TEST(Architectures, TheNameMustBeThatOfTheFile) {
  const DataFolder data;
  data.add("architectures", "volta", "other", [](Json& j) { j["name"] = "volta"; });
  const auto read = read_architectures(data.architectures());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().json_pointer, "/name");
}

TEST(Architectures, AGpuOfANewOneIsTwoFiles) {
  const DataFolder data;
  data.add("architectures", "hopper", "rubin", [](Json& j) {
    j["targets"] = {"sm_110"};
    j["facts"]["hbm_share"] = {{"value", 0.445}, {"source", "half of A100's, for this test"}};
    j["facts"]["gemm_tiles"] = {{"as", "volta"}, {"source", "for this test"}};
  });
  data.add("gpus", "h200-sxm-141gb", "r100", [](Json& j) { j["architecture"] = "rubin"; });
  const auto gpu = find_gpu("r100", data.gpus());
  ASSERT_TRUE(gpu) << to_string(gpu.error());
  EXPECT_EQ(gpu->architecture.name, "rubin");
  EXPECT_EQ(gpu->architecture.gemm_tiles.size(), 9u);
  EXPECT_TRUE(stand_ins(*gpu).empty());

  const Gpu h200 = *find_gpu("h200-sxm-141gb", kData / "gpus");
  const Price price = price_of(kStream, *gpu), of_hopper = price_of(kStream, h200);
  EXPECT_TRUE(price.in_range);
  EXPECT_NEAR(price.memory / of_hopper.memory, 2, 0.01);
  EXPECT_LT(price_of(product(), *gpu).compute,
            price_of(product(), h200).compute);  // tiles of Volta
}

TEST(Architectures, AnUnknownOneIsRefused) {
  const DataFolder data;
  const fs::path file =
      data.add("gpus", "h200-sxm-141gb", "r100", [](Json& j) { j["architecture"] = "hoper"; });
  for (const auto& gpu : {read_gpu(file), find_gpu("r100", data.gpus())}) {
    ASSERT_FALSE(gpu);
    EXPECT_EQ(gpu.error().file, file);
    EXPECT_EQ(gpu.error().json_pointer, "/architecture");
    EXPECT_EQ(gpu.error().message,
              "expected a known architecture, found \"hoper\"; the nearest known are hopper; a new "
              "one needs the file " +
                  (data.architectures() / "hoper.json").string() +
                  ", or \"like\": the name of a known one that stands in");
  }
  data.add("gpus", "h200-sxm-141gb", "r100", [](Json& j) { j["architecture"] = "../hopper"; });
  const auto path = read_gpu(file);
  ASSERT_FALSE(path);
  EXPECT_THAT(path.error().message, HasSubstr("expected a name of lower-case letters"));
}

TEST(Architectures, OneThatAnotherStandsInForIsOutOfRange) {
  const DataFolder data;
  const auto unknown = [](Json& j) {
    j["architecture"] = "rubin";
    j["like"] = "hopper";
  };
  const auto gpu = read_gpu(data.add("gpus", "h200-sxm-141gb", "r100", unknown));
  ASSERT_TRUE(gpu) << to_string(gpu.error());
  EXPECT_EQ(gpu->architecture.name, "rubin");
  EXPECT_EQ(gpu->architecture.like, "hopper");
  EXPECT_THAT(stand_ins(*gpu),
              ::testing::ElementsAre("architecture rubin of r100 is not known: hopper stands in, "
                                     "and every price of a kernel is out of range"));
  const Gpu h200 = *find_gpu("h200-sxm-141gb", kData / "gpus");
  for (const KernelWork& work : {kStream, product()}) {
    const Price price = price_of(work, *gpu), of_hopper = price_of(work, h200);
    EXPECT_EQ(price.time, of_hopper.time);
    EXPECT_FALSE(price.in_range);
    EXPECT_TRUE(of_hopper.in_range);
  }
  // An architecture with a file needs no replacement.
  data.add("architectures", "ampere", "rubin", [](Json&) {});
  const auto known = find_gpu("r100", data.gpus());
  ASSERT_TRUE(known) << to_string(known.error());
  EXPECT_TRUE(known->architecture.is_known());
  EXPECT_EQ(known->architecture.attention_share, 1);

  const auto neither = read_gpu(data.add("gpus", "h200-sxm-141gb", "r200", [](Json& j) {
    j["architecture"] = "feynman";
    j["like"] = "hoper";
  }));
  ASSERT_FALSE(neither);
  EXPECT_EQ(neither.error().json_pointer, "/like");
  EXPECT_THAT(neither.error().message, HasSubstr("the nearest known are hopper"));
}

TEST(Architectures, AnUnknownLinkMayBeLikeAnother) {
  const DataFolder data;
  const auto gpu = read_gpu(data.add("gpus", "h200-sxm-141gb", "r100", [](Json& j) {
    j["link"]["type"] = "ualink";
    j["link"]["like"] = "xgmi";
  }));
  ASSERT_TRUE(gpu) << to_string(gpu.error());
  EXPECT_EQ(gpu->link_type, "ualink");
  EXPECT_THAT(stand_ins(*gpu),
              ::testing::ElementsAre("link ualink of r100 is not known: xgmi stands in"));
}

TEST(Architectures, AFileOutsideOfADataFolderTakesThoseOfTheGivenOne) {
  const DataFolder data;
  const fs::path file = data.add("gpus", "t4", "mine", [](Json&) {});
  const fs::path elsewhere = data.gpus() / "elsewhere";
  fs::create_directories(elsewhere);
  fs::rename(file, elsewhere / "mine.json");
  EXPECT_FALSE(read_gpu(elsewhere / "mine.json"));  // gpus/architectures is not there
  EXPECT_TRUE(read_gpu(elsewhere / "mine.json", data.architectures()));
  EXPECT_TRUE(find_gpu((elsewhere / "mine.json").string(), data.gpus()));
}

TEST(Architectures, AGpuMadeByHandHasNoneUntilItIsGivenOne) {
  Gpu gpu = test_support::round_gpu();
  gpu.architecture = {};
  EXPECT_EQ(stand_ins(gpu).size(), 1u);
  const Price bare = price_of(kStream, gpu);
  EXPECT_FALSE(bare.in_range);
  EXPECT_NEAR(bare.memory.count(), 8e9 / 1e6, 100);  // 8 GB at the data sheet's 1 TB/s
  // 1024 tiles of 128 x 128 on 100 SMs are 11 waves, at the peak of 10 TFLOP/s.
  EXPECT_NEAR(price_of(product(), gpu).compute.count(), 11 * 100 * 2 * 128.0 * 128 * 4096 / 1e7,
              0.01);
  gpu.architecture = *find_architecture("ampere", kData / "architectures");
  EXPECT_TRUE(price_of(kStream, gpu).in_range);
  EXPECT_GT(price_of(kStream, gpu).time, bare.time);
}

}  // namespace architecture_test
}  // namespace perfmodel
