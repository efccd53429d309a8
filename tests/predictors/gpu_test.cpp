#include "perfmodel/predictors/gpu.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <tuple>

#include "../scratch.hpp"
#include "graph_fixture.hpp"

#ifndef PERFMODEL_SOURCE_DIR
#define PERFMODEL_SOURCE_DIR "."
#endif

namespace perfmodel {
namespace gpu_test {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

fs::path gpu_folder() { return fs::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus"; }

/// A changed copy of the V100 file in a data folder of its own.
class GpuFile {
 public:
  explicit GpuFile(const std::function<void(Json&)>& change,
                   const std::string& name = "v100-sxm2-32gb") {
    data_ = test_support::scratch() / "gpu";
    folder_ = data_ / "gpus";
    fs::remove_all(data_);
    fs::create_directories(folder_);
    fs::create_directory_symlink(gpu_folder().parent_path() / "architectures",
                                 data_ / "architectures");
    std::ifstream in(gpu_folder() / "v100-sxm2-32gb.json");
    Json document = Json::parse(in);
    change(document);
    std::ofstream(folder_ / (name + ".json")) << document.dump(2);
    file_ = folder_ / (name + ".json");
  }
  ~GpuFile() { fs::remove_all(data_); }
  const fs::path& file() const { return file_; }
  const fs::path& folder() const { return folder_; }

 private:
  fs::path data_, folder_, file_;
};

TEST(GpuFiles, EveryFileLoadsUnderItsName) {
  const auto gpus = read_gpus(gpu_folder());
  ASSERT_TRUE(gpus.has_value()) << to_string(gpus.error());
  EXPECT_EQ(gpus->size(), 71u);
  for (const Gpu& gpu : *gpus) {
    EXPECT_GT(gpu.peak(DType::kFloat32, false).value, 1e12) << gpu.name;
    EXPECT_GT(gpu.dram_bandwidth.value, 1e11) << gpu.name;
    EXPECT_GE(gpu.peak(DType::kFloat16, true).value, gpu.peak(DType::kFloat32, false).value)
        << gpu.name;
  }
}

TEST(GpuFiles, VectorRatesAreThoseOfTheClock) {
  const auto gpus = read_gpus(gpu_folder());
  ASSERT_TRUE(gpus.has_value()) << to_string(gpus.error());
  for (const Gpu& gpu : *gpus) {
    if (gpu.boost_clock_mhz == 0) continue;  // not published
    const double lanes = *gpu.peak_tflop_per_s.fp32 * 1e6 / (2 * gpu.num_sms * gpu.boost_clock_mhz);
    EXPECT_NEAR(lanes, lanes < 96 ? 64 : 128, 0.1) << gpu.name;
  }
}

TEST(GpuFiles, ReadsUnits) {
  const auto gpu = read_gpu(gpu_folder() / "v100-sxm2-32gb.json");
  ASSERT_TRUE(gpu.has_value()) << to_string(gpu.error());
  EXPECT_DOUBLE_EQ(gpu->dram_bandwidth.value, 900e9);
  EXPECT_DOUBLE_EQ(gpu->l2_size.value, 6.0 * 1024 * 1024);
  EXPECT_DOUBLE_EQ(gpu->shared_memory_per_sm.value, 96.0 * 1024);
  EXPECT_DOUBLE_EQ(gpu->link_bandwidth.value, 300e9);
  EXPECT_EQ(gpu->base_clock_mhz, 0);  // null in the file
  EXPECT_EQ(gpu->peak(DType::kFloat16, true).value, 125e12);
  EXPECT_EQ(gpu->peak(DType::kFloat32, true).value, 15.67e12);   // no TF32 on Volta
  EXPECT_EQ(gpu->peak(DType::kBFloat16, true).value, 15.67e12);  // no bf16 either
}

TEST(GpuFiles, SayWhatProgramsSeeOfTheMemory) {
  constexpr double kGib = 1 << 30;
  const auto known = read_gpu(gpu_folder() / "a100-sxm-40gb.json");
  const auto unknown = read_gpu(gpu_folder() / "a100-pcie-40gb.json");
  ASSERT_TRUE(known.has_value() && unknown.has_value());
  // CUDA says 42297524224 B in the public traces of the first board.
  EXPECT_NEAR(known->usable_memory().value, 42297524224, 0.01 * kGib);
  EXPECT_EQ(unknown->usable_gib, 0);
  EXPECT_DOUBLE_EQ(unknown->usable_memory().value, 0.984 * 40 * kGib);  // the share of Ampere
  EXPECT_EQ(known->architecture.blas_workspace_bytes, (2 * 4096 + 8 * 16) * 1024);
}

TEST(GpuFiles, AllSeeMostOfTheirMemory) {
  const auto gpus = read_gpus(gpu_folder());
  ASSERT_TRUE(gpus.has_value()) << to_string(gpus.error());
  for (const Gpu& gpu : *gpus) {
    // Checking errors in band takes 1/16, drivers up to 3 % more.
    const double share = gpu.usable_memory().value / (gpu.dram_gb * (1 << 30));
    EXPECT_LE(share, 1) << gpu.name;
    EXPECT_GE(share, 0.9) << gpu.name;
    EXPECT_GT(gpu.architecture.context_bytes, 100 << 20) << gpu.name;
    EXPECT_GE(gpu.architecture.blas_workspace_bytes, 8'519'680) << gpu.name;
  }
}

TEST(GpuFiles, FindsByNameAliasTitleAndPath) {
  for (const char* name : {"v100-sxm2-32gb", "V100-SXM2-32GB", "Tesla V100-SXM2-32GB",
                           "nvidia tesla v100-sxm2-32gb"}) {
    const auto gpu = find_gpu(name, gpu_folder());
    ASSERT_TRUE(gpu.has_value()) << name << ": " << to_string(gpu.error());
    EXPECT_EQ(gpu->name, "v100-sxm2-32gb");
  }
  const auto by_path = find_gpu((gpu_folder() / "t4.json").string(), "/nowhere");
  ASSERT_TRUE(by_path.has_value());
  EXPECT_EQ(by_path->name, "t4");
}

TEST(GpuFiles, UnknownNameListsTheNearest) {
  const auto gpu = find_gpu("v100-sxm-32gb", gpu_folder());
  ASSERT_FALSE(gpu.has_value());
  EXPECT_EQ(gpu.error().code, ErrorCode::kUnknownName);
  EXPECT_NE(gpu.error().message.find("v100-sxm2-32gb"), std::string::npos) << gpu.error().message;
  EXPECT_NE(gpu.error().message.find("\"v100-sxm-32gb\""), std::string::npos);
}

TEST(GpuFiles, NamesOfProgramsFindTheirBoard) {
  const std::pair<const char*, const char*> cases[] = {
      {"NVIDIA A800-SXM4-80GB", "a800"},
      {"NVIDIA A800 80GB PCIe", "a800-pcie-80gb"},
      {"NVIDIA A800 40GB Active", "a800-pcie-40gb"},
      {"NVIDIA A10G", "a10g"},
      {"NVIDIA L20", "l20"},
      {"NVIDIA H200 NVL", "h200-nvl"},
      {"AMD Instinct MI300A", "mi300a"},
      {"NVIDIA RTX A4000", "rtx-a4000"},
      {"NVIDIA RTX A4500", "rtx-a4500"},
      {"NVIDIA RTX A5000", "rtx-a5000"},
      {"NVIDIA RTX A5500", "rtx-a5500"},
      {"NVIDIA GeForce RTX 3070", "rtx-3070"},
      {"NVIDIA GeForce RTX 3080", "rtx-3080"},
      {"NVIDIA TITAN RTX", "titan-rtx"},
      {"TITAN RTX", "titan-rtx"},
      {"Quadro RTX 5000", "quadro-rtx-5000"},
      {"NVIDIA RTX 5000 Ada Generation", "rtx-5000-ada"},
      {"Quadro RTX 6000", "quadro-rtx-6000"},
      {"Quadro RTX 8000", "quadro-rtx-8000"},
      {"NVIDIA GeForce GTX 1080", "gtx-1080"},
      {"Tesla V100-SXM3-32GB", "v100-sxm3-32gb"},
      {"AMD Instinct MI300X VF", "mi300x"},
      {"AMD Instinct MI210 VF", "mi210"},
      {"mi308x-vf", "mi308x"},
  };
  const auto gpus = read_gpus(gpu_folder()).value();
  for (const auto& [name, board] : cases) {
    const auto found = find_gpu(name, gpus);
    ASSERT_TRUE(found) << name;
    EXPECT_EQ(gpus[*found].name, board);
    EXPECT_EQ(why_not_a_board(name), "") << name;
  }
  for (const Gpu& gpu : gpus) EXPECT_EQ(why_not_a_board(gpu.title), "") << gpu.name;
}

TEST(GpuFiles, SomeWordsOfANameFindTheBoardThatPeopleMean) {
  const std::pair<const char*, const char*> alone[] = {
      {"4090", "rtx-4090"},       {"rtx4090", "rtx-4090"},    {"3090", "rtx-3090"},
      {"1080 Ti", "gtx-1080-ti"}, {"b300", "b300-sxm-270gb"}, {"A800 40GB", "a800-pcie-40gb"}};
  for (const auto& [name, board] : alone) {
    const auto gpu = find_gpu(name, gpu_folder());
    ASSERT_TRUE(gpu) << name;
    EXPECT_EQ(gpu->name, board) << name;
  }
  EXPECT_EQ(find_gpu("4090", gpu_folder())->taken_for, "");
  EXPECT_FALSE(find_gpu("a100-40gb-pcie", gpu_folder()));  // words keep their order
  const std::tuple<const char*, const char*, const char*> noted[] = {
      {"a100", "a100-sxm-80gb",
       "\"a100\" fits a100-pcie-40gb, a100-pcie-80gb, a100-sxm-40gb, a100-sxm-80gb; a100-sxm-80gb "
       "is taken, the usual one"},
      {"A100 80GB", "a100-sxm-80gb",
       "\"A100 80GB\" fits a100-pcie-80gb, a100-sxm-80gb; a100-sxm-80gb is taken, the usual one"},
      {"1080", "gtx-1080", "\"1080\" fits gtx-1080, gtx-1080-ti; gtx-1080 is taken"},
      {"RTX 2080", "rtx-2080-ti",
       "\"RTX 2080\" is taken as rtx-2080-ti, the only known board with these words"},
      {"mi300", "mi300x", "\"mi300\" fits mi300a, mi300x; mi300x is taken, the usual one"}};
  for (const auto& [name, board, note] : noted) {
    const auto gpu = find_gpu(name, gpu_folder());
    ASSERT_TRUE(gpu) << name;
    EXPECT_EQ(gpu->name, board) << name;
    EXPECT_THAT(stand_ins(*gpu), ElementsAre(note));
  }
  EXPECT_EQ(find_gpu("V100-32GB", gpu_folder())->taken_for, "");  // an alias
}

TEST(GpuFiles, ANameThatFitsSeveralBoardsIsRefusedWithTheirNames) {
  const auto titan = find_gpu("titan x", gpu_folder());
  ASSERT_FALSE(titan);
  EXPECT_EQ(titan.error().code, ErrorCode::kUnknownName);
  EXPECT_THAT(titan.error().message, HasSubstr("expected the name of one GPU, found \"titan x\", "
                                               "which fits titan-x-maxwell, titan-x-pascal"));
  for (const char* name :
       {"nvidia", "gb", "100", "1", "16", "x", "-", "a", "gtx", "pcie", "radeon"}) {
    EXPECT_FALSE(find_gpu(name, gpu_folder())) << name;
  }
  EXPECT_THAT(find_gpu("a100 laptop", gpu_folder()).error().message, HasSubstr("a laptop GPU"));
  // Names in tables and traces are whole: a note about them would be lost.
  EXPECT_FALSE(find_known_gpu("a100", gpu_folder()));
}

TEST(GpuFiles, PartsOfBoardsAndLaptopsAreNoBoards) {
  const std::pair<const char*, const char*> cases[] = {
      {"NVIDIA A100-SXM4-40GB MIG 3g.20gb", "a MIG slice"},
      {"H100-80GB 1g.10gb+me", "a MIG slice"},
      {"GRID A100D-40C", "a vGPU"},
      {"NVIDIA A10-24Q", "a vGPU"},
      {"GRID A100X-2-10C", "a vGPU"},
      {"NVIDIA H100-1-10CME", "a vGPU"},
      {"AMD Radeon Instinct MI25 MxGPU", "a vGPU"},
      {"NVIDIA GeForce RTX 4090 Laptop GPU", "a laptop GPU"},
      {"Quadro RTX 6000 with Max-Q Design", "a Max-Q design"},
      {"NVIDIA GeForce GTX 1080 with Max-Q Design", "a Max-Q design"},
  };
  const auto gpus = read_gpus(gpu_folder()).value();
  for (const auto& [name, reason] : cases) {
    const auto found = find_gpu(name, gpus);
    ASSERT_FALSE(found) << name;
    EXPECT_EQ(found.error().code, ErrorCode::kUnknownName) << name;
    EXPECT_NE(found.error().message.find(reason), std::string::npos) << found.error().message;
  }
  const auto unknown = find_gpu("AMD Instinct MI999 VF", gpus);
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("\"AMD Instinct MI999 VF\""), std::string::npos);
}

struct BadField {
  const char* label;
  std::function<void(Json&)> change;
  const char* pointer;
  const char* message;
};

TEST(GpuFiles, ErrorsNameTheField) {
  const BadField cases[] = {
      {"missing", [](Json& j) { j.erase("num_sms"); }, "/num_sms",
       "expected this key, found nothing"},
      {"text", [](Json& j) { j["dram"]["size_gb"] = "32"; }, "/dram/size_gb",
       "expected a number above 0, found \"32\""},
      {"null", [](Json& j) { j["l2_mib"] = nullptr; }, "/l2_mib",
       "expected a number above 0, found null"},
      {"negative", [](Json& j) { j["peak_tflop_per_s"]["fp64"] = -1; }, "/peak_tflop_per_s/fp64",
       "expected a number above 0 or null, found -1"},
      {"tiny", [](Json& j) { j["boost_clock_mhz"] = 1e-16; }, "/boost_clock_mhz",
       "expected a number from 1e-15 to 1e15, found 1e-16"},
      {"unknown", [](Json& j) { j["dram"]["size_gib"] = 1; }, "/dram/size_gib",
       "expected no such key (but \"size_gb\"), found 1"},
      {"more than sold", [](Json& j) { j["dram"]["usable_gib"] = 32.5; }, "/dram/usable_gib",
       "expected at most size_gb, found 32.5"},
      {"vendor", [](Json& j) { j["vendor"] = "intel"; }, "/vendor",
       "expected \"nvidia\" or \"amd\", found \"intel\""},
      {"path", [](Json& j) { j["name"] = "../../other/x"; }, "/name",
       "expected a name of lower-case letters, digits, dashes, dots and underscores, found "
       "\"../../other/x\""},
      {"capitals", [](Json& j) { j["name"] = "T4"; }, "/name",
       "expected a name of lower-case letters, digits, dashes, dots and underscores, found \"T4\""},
      {"secret", [](Json& j) { j["vendor"] = "password=hunter2"; }, "/vendor",
       "expected \"nvidia\" or \"amd\", found \"password=[masked]"},
      {"other vendor", [](Json& j) { j["vendor"] = "amd"; }, "/vendor",
       "expected \"nvidia\", the vendor of volta, found \"amd\""},
      {"link", [](Json& j) { j["link"]["type"] = "sli"; }, "/link/type",
       "expected \"nvlink\" or \"xgmi\", found \"sli\""},
      {"version", [](Json& j) { j["version"] = 2; }, "/version",
       "expected version 1, found 2, which needs a newer program"},
      {"alias", [](Json& j) { j["aliases"][1] = 7; }, "/aliases/1", "expected a string, found 7"},
      {"fraction", [](Json& j) { j["num_sms"] = 80.5; }, "/num_sms",
       "expected an integer above 0, found 80.5"},
  };
  for (const BadField& bad : cases) {
    const GpuFile file(bad.change);
    const auto gpu = read_gpu(file.file());
    ASSERT_FALSE(gpu.has_value()) << bad.label;
    EXPECT_EQ(gpu.error().json_pointer, bad.pointer) << bad.label;
    EXPECT_EQ(gpu.error().message, bad.message) << bad.label;
    EXPECT_EQ(gpu.error().file, file.file());
  }
}

TEST(GpuFiles, NullIsAllowedForFeaturesThatAreAbsent) {
  const GpuFile file([](Json& j) {
    j["link"] = nullptr;
    j["boost_clock_mhz"] = nullptr;
  });
  const auto gpu = read_gpu(file.file());
  ASSERT_TRUE(gpu.has_value()) << to_string(gpu.error());
  EXPECT_EQ(gpu->link_bandwidth.value, 0);
  EXPECT_EQ(gpu->boost_clock_mhz, 0);
}

TEST(GpuFiles, AMinorVersionIsReadWhateverItIs) {
  for (const int minor : {0, 7}) {
    const GpuFile file([minor](Json& j) { j["minor_version"] = minor; });
    EXPECT_TRUE(read_gpu(file.file())) << minor;
  }
  const GpuFile file([](Json& j) { j["minor_version"] = "1"; });
  const auto gpu = read_gpu(file.file());
  ASSERT_FALSE(gpu);
  EXPECT_EQ(gpu.error().json_pointer, "/minor_version");
}

TEST(GpuFiles, BrokenJsonHasAPosition) {
  const GpuFile file([](Json&) {});
  std::ofstream(file.file()) << "{\n  \"schema\": oops\n}\n";
  const auto gpu = read_gpu(file.file());
  ASSERT_FALSE(gpu.has_value());
  EXPECT_EQ(gpu.error().code, ErrorCode::kSyntax);
  EXPECT_EQ(gpu.error().line, 2);
  EXPECT_GE(gpu.error().column, 13);
}

TEST(GpuFiles, MissingFileIsAnError) {
  const auto gpu = read_gpu("/nowhere/at-all.json");
  ASSERT_FALSE(gpu.has_value());
  EXPECT_EQ(gpu.error().code, ErrorCode::kIo);
  EXPECT_FALSE(read_gpus("/nowhere/at-all").has_value());
}

TEST(GpuFiles, OneAliasBelongsToOneGpu) {
  const GpuFile file([](Json& j) { j["name"] = "copy"; }, "copy");
  fs::copy_file(gpu_folder() / "v100-sxm2-32gb.json", file.folder() / "v100-sxm2-32gb.json");
  const auto gpus = read_gpus(file.folder());
  ASSERT_FALSE(gpus.has_value());
  EXPECT_NE(gpus.error().message.find("which copy claims too"), std::string::npos)
      << gpus.error().message;
}

TEST(GpuFiles, NameMustBeThatOfTheFile) {
  const GpuFile file([](Json&) {}, "other");
  const auto gpus = read_gpus(file.folder());
  ASSERT_FALSE(gpus.has_value());
  EXPECT_EQ(gpus.error().json_pointer, "/name");
}

TEST(GpuPeak, FallsBackToVectorUnits) {
  const Gpu gpu = test_support::round_gpu();
  EXPECT_DOUBLE_EQ(gpu.peak(DType::kFloat32, false).value, 10e12);
  EXPECT_DOUBLE_EQ(gpu.peak(DType::kFloat32, true).value, 50e12);  // TF32
  EXPECT_DOUBLE_EQ(gpu.peak(DType::kFloat16, false).value, 20e12);
  EXPECT_DOUBLE_EQ(gpu.peak(DType::kBFloat16, true).value, 10e12);  // no unit: fp32
  Gpu token = gpu;
  token.peak_tflop_per_s.fp16 = 0.2;  // consumer Pascal: 1/64
  EXPECT_DOUBLE_EQ(token.peak(DType::kFloat16, false).value, 10e12);
  EXPECT_DOUBLE_EQ(gpu.peak(DType::kFloat64, false).value, 10e12 / 32);
}

}  // namespace gpu_test
}  // namespace perfmodel
