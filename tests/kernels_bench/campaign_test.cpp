#include "kernels_bench/program/campaign.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <limits>
#include <sstream>

#include "../scratch.hpp"
#include "kernels_bench/analytic/analytic_device.hpp"
#include "kernels_bench/core/case_cells.hpp"
#include "kernels_bench/program/gpu_of.hpp"
#include "kernels_bench/program/measurement_table.hpp"
#include "kernels_bench/program/quick_model.hpp"

namespace kernels_bench {
namespace campaign_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

fs::path new_folder(const std::string& name) {
  const fs::path folder = perfmodel::test_support::scratch() / ("kernels_bench_" + name);
  fs::remove_all(folder);
  return folder;
}

std::string text_of(const fs::path& file) {
  std::ifstream input(file, std::ios::binary);
  std::ostringstream text;
  text << input.rdbuf();
  return text.str();
}

std::size_t rows_of(const fs::path& file) {
  std::istringstream text(text_of(file));
  std::size_t rows = 0;
  for (std::string line; std::getline(text, line);) rows += line.starts_with("analytic-gpu,");
  return rows;
}

/// The analytic GPU, with faults on demand.
class FaultyDevice final : public Device {
 public:
  const DeviceInfo& info() const override { return info_; }
  Clocks clocks() override { return {}; }
  Outcome<Measurement> measure(const Case& point, const MeasureOptions& options) override {
    if (++calls_ == fails_at) return tl::unexpected(failure);
    auto measured = device_->measure(point, options);
    if (calls_ == nan_at) measured->times_us[0] = std::numeric_limits<double>::quiet_NaN();
    if (calls_ == stops_at) *stop = true;
    return measured;
  }

  int fails_at = 0, nan_at = 0, stops_at = 0;
  Failure failure;
  StopFlag* stop = nullptr;
  DeviceInfo& mutable_info() { return info_; }

 private:
  std::unique_ptr<Device> device_ = make_analytic_device();
  DeviceInfo info_ = device_->info();
  int calls_ = 0;
};

class CampaignTest : public ::testing::Test {
 protected:
  perfmodel::Result<CampaignReport> run(std::vector<const char*> families, std::size_t points) {
    options.families.clear();
    for (const char* name : families) options.families.push_back(find_family(name));
    options.points = points;
    options.command = "test";
    return run_campaign(device, gpu, options, stop);
  }

  FaultyDevice device;
  perfmodel::Gpu gpu = gpu_of(device.info(), "no such folder").gpu;
  CampaignOptions options;
  StopFlag stop = false;
};

TEST_F(CampaignTest, WritesRowsThatTellEverything) {
  options.folder = new_folder("rows");
  const auto report = run({"peaks", "vector"}, 100);
  ASSERT_TRUE(report) << to_string(report.error());
  EXPECT_EQ(report->families[1].measured, 100U);
  EXPECT_EQ(rows_of(options.folder / "vector.csv"), 100U);
  const std::string text = text_of(options.folder / "vector.csv");
  EXPECT_THAT(text, HasSubstr("# device: Analytic GPU, sm_80, 32.0 GiB\n"));
  EXPECT_THAT(text, HasSubstr("# timing: graph replay, no launch cost\n"));
  EXPECT_THAT(text, HasSubstr("device,op,dtype,rows,cols,"));
}

TEST_F(CampaignTest, PeaksComeFirstAndWhole) {
  options.folder = new_folder("share");
  options.share = 0.01;
  device.stops_at = 100;
  device.stop = &stop;
  const auto report = run({"peaks", "vector"}, 0);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->families[0].planned, sweep(*find_family("peaks"), 300, 1, {}).size());
  EXPECT_EQ(report->families[0].measured, 100U);
  EXPECT_EQ(report->families[1].planned, 60U);
  EXPECT_EQ(report->families[1].measured, 0U);
}

TEST_F(CampaignTest, RowsTellTheirShareOfTheMeasuredPeaks) {
  options.folder = new_folder("shares");
  ASSERT_TRUE(run({"peaks", "memory"}, 30));
  ASSERT_TRUE(run({"peaks", "memory"}, 60));  // knows the peaks of the first run
  std::istringstream text(text_of(options.folder / "memory.csv"));
  double largest = 0;
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with("analytic-gpu,memset")) continue;
    std::vector<std::string> fields;
    std::istringstream row(line);
    for (std::string field; std::getline(row, field, ',');) fields.push_back(field);
    largest = std::max(largest, std::stod(fields[1 + kMemoryFamily.columns.size() + 7]));
  }
  EXPECT_NEAR(largest, 1, 0.05);  // the largest set reaches the bandwidth of the largest copy
}

TEST_F(CampaignTest, GoesOnWhereItStopped) {
  options.folder = new_folder("resume");
  ASSERT_TRUE(run({"gemm"}, 40));
  const std::string before = text_of(options.folder / "gemm.csv");
  const auto again = run({"gemm"}, 40);
  EXPECT_EQ(again->families[0].measured, 0U);
  EXPECT_EQ(text_of(options.folder / "gemm.csv"), before);
  const auto more = run({"gemm"}, 60);
  EXPECT_EQ(more->families[0].measured, 20U);
  EXPECT_TRUE(text_of(options.folder / "gemm.csv").starts_with(before));
}

TEST_F(CampaignTest, KilledInTheMiddleOfARowLosesThatRowAlone) {
  options.folder = new_folder("killed");
  ASSERT_TRUE(run({"gemm"}, 40));
  const fs::path file = options.folder / "gemm.csv";
  const std::string whole = text_of(file);
  for (const std::size_t cut : {1, 20}) {  // bytes that are missing from the last row
    fs::resize_file(file, whole.size() - cut);
    const auto again = run({"gemm"}, 40);
    ASSERT_TRUE(again) << to_string(again.error());
    EXPECT_EQ(again->families[0].measured, 1U);
    EXPECT_EQ(text_of(file), whole);
  }
  fs::resize_file(file, 30);  // in its head
  EXPECT_EQ(run({"gemm"}, 40)->families[0].measured, 40U);
}

TEST_F(CampaignTest, RefusesToMixGpus) {
  options.folder = new_folder("mix");
  ASSERT_TRUE(run({"memory"}, 10));
  const std::string before = text_of(options.folder / "memory.csv");
  device.mutable_info().name = "Another GPU";
  const auto mixed = run({"memory"}, 20);
  ASSERT_FALSE(mixed);
  EXPECT_THAT(to_string(mixed.error()),
              HasSubstr("memory.csv:2: expected measurements of this GPU (Another GPU"));
  EXPECT_EQ(text_of(options.folder / "memory.csv"), before);
}

TEST_F(CampaignTest, LeavesFilesAloneThatAreNoTablesOfItsOwn) {
  options.folder = new_folder("foreign");
  ASSERT_TRUE(run({"memory"}, 10));
  const fs::path file = options.folder / "memory.csv";
  const std::string table = text_of(file);
  const std::string rows = table.substr(table.find("\ndevice,") + 1);
  const std::string headless =
      table.substr(0, table.find("device,")) + rows.substr(rows.find('\n') + 1);
  std::string renamed = table;
  renamed.replace(renamed.find("\ndevice,"), 8, "\ngadget,");
  std::string other_row = table;
  other_row.replace(other_row.rfind("analytic-gpu,"), 13, "another-gpu,");
  for (const std::string& text : {rows, headless, renamed, other_row, std::string("m,n,k\n1,2,3\n"),
                                  std::string("\x7f ELF")}) {
    std::ofstream(file, std::ios::binary) << text;
    EXPECT_FALSE(run({"memory"}, 10)) << text;
    EXPECT_EQ(text_of(file), text);
  }
}

TEST_F(CampaignTest, OneRunAtATime) {
  options.folder = new_folder("lock");
  ASSERT_TRUE(run({"memory"}, 10));
  const auto head = "Analytic GPU, sm_80, 32.0 GiB";
  const auto table = MeasurementTable::open(options.folder / "memory.csv", *find_family("memory"),
                                            {.gpu = "analytic-gpu", .device = head});
  ASSERT_TRUE(table) << to_string(table.error());
  EXPECT_THAT(to_string(run({"memory"}, 20).error()), HasSubstr("another run is writing to it"));
}

TEST_F(CampaignTest, PackedTableIsNotStartedAnew) {
  options.folder = new_folder("packed");
  fs::create_directories(options.folder);
  std::ofstream(options.folder / "memory.csv.gz") << "packed";
  EXPECT_THAT(to_string(run({"memory"}, 20).error()),
              HasSubstr("memory.csv.gz: expected an unpacked"));
  EXPECT_FALSE(fs::exists(options.folder / "memory.csv"));
}

TEST_F(CampaignTest, StopsOnNanAndKeepsRows) {
  options.folder = new_folder("nan");
  device.nan_at = 6;
  const auto report = run({"vector"}, 20);
  ASSERT_FALSE(report);
  EXPECT_THAT(to_string(report.error()), HasSubstr("not a positive number; rows so far are kept"));
  EXPECT_EQ(rows_of(options.folder / "vector.csv"), 5U);
}

TEST_F(CampaignTest, StopsOnWrongResult) {
  options.folder = new_folder("wrong");
  device.fails_at = 4;
  device.failure = {FailureKind::kWrongResult, "off by 12"};
  const auto report = run({"vector"}, 20);
  ASSERT_FALSE(report);
  EXPECT_THAT(to_string(report.error()), HasSubstr("off by 12; rows so far are kept"));
  EXPECT_EQ(rows_of(options.folder / "vector.csv"), 3U);
  EXPECT_EQ(run({"vector"}, 20)->families[0].measured, 16U);  // goes on after it
}

TEST_F(CampaignTest, OutOfMemoryIsWrittenDownAndNotTriedAgain) {
  options.folder = new_folder("memory");
  device.fails_at = 3;
  device.failure = {FailureKind::kOutOfMemory, "does not fit"};
  const auto report = run({"vector"}, 20);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->families[0].skipped, 1U);
  EXPECT_EQ(report->families[0].measured, 19U);
  EXPECT_THAT(text_of(options.folder / "vector.csv"), HasSubstr("| does not fit\n"));
  EXPECT_EQ(run({"vector"}, 20)->families[0].measured, 0U);
}

TEST_F(CampaignTest, MissingLibraryEndsItsFamilyAlone) {
  options.folder = new_folder("library");
  device.fails_at = 1;
  device.failure = {FailureKind::kMissingLibrary, "cuBLAS: no libcublas.so"};
  const auto report = run({"gemm", "vector"}, 20);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->families[0].problem, "cuBLAS: no libcublas.so");
  EXPECT_EQ(report->families[1].measured, 20U);
}

TEST_F(CampaignTest, SignalFinishesTheRow) {
  options.folder = new_folder("signal");
  device.stops_at = 5;
  device.stop = &stop;
  const auto report = run({"vector"}, 20);
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->stopped);
  EXPECT_EQ(rows_of(options.folder / "vector.csv"), 5U);
}

TEST_F(CampaignTest, SaysWhatIsWrongWithTheRequest) {
  options.folder = new_folder("bad");
  options.budget_seconds = 1;
  EXPECT_THAT(to_string(run({"gemm", "vector"}, 20).error()),
              HasSubstr("expected at least a second per family (2s)"));
  options.budget_seconds = 0;
  options.folder = "/proc/no/such/folder";
  EXPECT_THAT(to_string(run({"gemm"}, 20).error()), HasSubstr("cannot be made"));
}

/// Files of this process end at a size, as on a full disk: the write that would pass it is cut
/// short.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST_F(CampaignTest, FullDiskLeavesWholeRows) {
  options.folder = new_folder("full");
  {
    const FileSizeLimit limit(2000);
    const auto report = run({"gemm"}, 40);
    ASSERT_FALSE(report);
    EXPECT_THAT(to_string(report.error()), HasSubstr("gemm.csv: cannot be written: "));
  }
  const std::string text = text_of(options.folder / "gemm.csv");
  EXPECT_LE(text.size(), 2000U);
  EXPECT_TRUE(text.ends_with(",law\n")) << text;
  const std::size_t rows = rows_of(options.folder / "gemm.csv");
  EXPECT_GT(rows, 5U);
  EXPECT_EQ(run({"gemm"}, 40)->families[0].measured, 40 - rows);
}

TEST_F(CampaignTest, TableIsARegularFile) {
  const auto table = MeasurementTable::open("/dev/full", *find_family("gemm"), {});
  ASSERT_FALSE(table);
  EXPECT_EQ(to_string(table.error()), "/dev/full: expected a regular file");
}

TEST_F(CampaignTest, BudgetEndsTheRun) {
  options.folder = new_folder("budget");
  options.budget_seconds = 1;
  const auto report = run({"gemm"}, 0);
  ASSERT_TRUE(report);
  EXPECT_GE(report->families[0].rows, 1U);  // how many is up to the machine
  EXPECT_TRUE(report->out_of_time || report->families[0].rows == report->families[0].planned);
}

// Points chosen where the quick model is least certain teach it more than the sweep's order does.
TEST(QuickModel, LeastCertainPointsTeachMore) {
  const auto points = sweep(*find_family("gemm"), 2500, 1, {});
  perfmodel::Gpu gpu = gpu_of(make_analytic_device()->info(), "no such folder").gpu;
  // The figures known beforehand come from another architecture than the device's.
  gpu.architecture =
      perfmodel::find_architecture("volta", PERFMODEL_SOURCE_DIR "/data/architectures").value();
  constexpr std::size_t kMeasured = 400;
  const auto error_after = [&](bool adaptive) {
    QuickModel model(points, gpu);
    std::vector<bool> done(points.size());
    for (std::size_t n = 0, next = 0; n < kMeasured; ++n) {
      std::size_t best = next;
      if (adaptive && n % 2 == 1) {
        for (std::size_t i = 0; i < points.size(); ++i) {
          if (!done[i] && (done[best] || model.uncertainty(i) > model.uncertainty(best))) best = i;
        }
      }
      model.add(best, analytic_time_us(points[best]));
      done[best] = true;
      while (next < points.size() && done[next]) ++next;
    }
    double squares = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
      squares += std::pow(std::log(model.expected_us(i) / analytic_time_us(points[i])), 2);
    }
    return std::sqrt(squares / static_cast<double>(points.size()));
  };
  const double in_order = error_after(false), adaptive = error_after(true);
  RecordProperty("in_order", std::to_string(in_order));
  RecordProperty("adaptive", std::to_string(adaptive));
  EXPECT_LT(adaptive, 0.95 * in_order) << "log error in order " << in_order;
}

TEST(GpuOfDevice, UnknownGpuIsDescribedByDriverAndPeaks) {
  const auto device = make_analytic_device();
  const GpuOfDevice found = gpu_of(device->info(), PERFMODEL_SOURCE_DIR "/data/gpus");
  EXPECT_FALSE(found.is_known);
  EXPECT_EQ(found.gpu.name, "analytic-gpu");

  CampaignOptions options;
  options.folder = new_folder("describe");
  options.families = {find_family("peaks")};
  const StopFlag stop = false;
  ASSERT_TRUE(run_campaign(*device, found.gpu, options, stop));
  const fs::path file = options.folder / "gpu.json";
  ASSERT_TRUE(write_gpu_file(device->info(), found.gpu, options.folder, file));
  const auto gpu = perfmodel::read_gpu(file, PERFMODEL_SOURCE_DIR "/data/architectures");
  ASSERT_TRUE(gpu) << to_string(gpu.error());
  EXPECT_EQ(gpu->architecture.name, "ampere");  // by its target, sm_80
  EXPECT_TRUE(gpu->architecture.is_known());
  EXPECT_NEAR(*gpu->peak_tflop_per_s.fp32, 19, 0.2);  // the analytic device's vector units
  EXPECT_NEAR(gpu->dram_bandwidth.value, 1536e9, 1e9);
  EXPECT_NEAR(gpu->pcie_bandwidth.value, 24e9, 0.1e9);
}

TEST(GpuOfDevice, AnUnknownTargetIsLikeTheNearest) {
  const auto like_of = [](const char* vendor, const char* target) {
    DeviceInfo info;
    info.name = "Some GPU";
    info.vendor = vendor;
    info.target = target;
    const auto& architecture = gpu_of(info, PERFMODEL_SOURCE_DIR "/data/gpus").gpu.architecture;
    EXPECT_EQ(architecture.name, target);
    return architecture.like;
  };
  EXPECT_EQ(like_of("nvidia", "sm_107"), "blackwell");
  EXPECT_EQ(like_of("amd", "gfx1250"), "cdna4");
}

TEST(GpuOfDevice, KnownGpuIsTakenFromItsDataSheet) {
  DeviceInfo info;
  info.name = "NVIDIA H200";
  const GpuOfDevice found = gpu_of(info, PERFMODEL_SOURCE_DIR "/data/gpus");
  EXPECT_TRUE(found.is_known);
  EXPECT_EQ(found.gpu.name, "h200-sxm-141gb");
}

TEST(GpuOfDevice, WithoutPeaksThereIsNothingToWrite) {
  const auto device = make_analytic_device();
  const auto written =
      write_gpu_file(device->info(), {}, new_folder("nothing"), new_folder("nothing") / "gpu.json");
  ASSERT_FALSE(written);
  EXPECT_THAT(to_string(written.error()), HasSubstr("expected measured peaks"));
}

TEST(AnalyticDevice, IsItsLawWithLittleNoise) {
  const auto device = make_analytic_device();
  const GemmCase point{.m = 1024, .n = 1024, .k = 1024};
  // 8 x 16 tiles on 100 SMs: two waves of 2 x 128 x 64 x 1120 FLOP at 0.19 TFLOP/s each; memory is
  // far below.
  const double compute = 2 * 2.0 * 128 * 64 * 1120 / 0.19e6;
  EXPECT_NEAR(analytic_time_us(point), 1.8 + compute, 0.01);
  const auto measured = device->measure(point, {});
  ASSERT_TRUE(measured);
  for (const double time : measured->times_us) EXPECT_NEAR(time / (1.8 + compute), 1, 0.02);
}

}  // namespace campaign_test
}  // namespace kernels_bench
