#include <dlfcn.h>
#include <gmock/gmock.h>

#include <iostream>
#include <memory>
#include <vector>

#include "kernels_bench/core/case_cells.hpp"
#include "kernels_bench/core/device.hpp"
#include "kernels_bench/families/family.hpp"

/// The modules that this build made start without a driver and say so; with one, they measure.
namespace kernels_bench {
namespace module_test {

using testing::Each;
using testing::HasSubstr;

template <class Function>
Function* find(const char* module, const char* symbol) {
  void* const handle = dlopen(module, RTLD_NOW | RTLD_LOCAL);  // stays open
  EXPECT_NE(handle, nullptr) << dlerror();
  return handle == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(handle, symbol));
}

class ModuleTest : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Device> open(int index) {
    const auto function = find<OpenDeviceFunction>(GetParam(), kOpenDeviceSymbol);
    return std::unique_ptr<Device>(function == nullptr ? nullptr : function(index, &failure_));
  }

  Failure failure_;
};

TEST_P(ModuleTest, IsOfThisVersion) {
  const auto version = find<ModuleVersionFunction>(GetParam(), kModuleVersionSymbol);
  ASSERT_NE(version, nullptr);
  EXPECT_EQ(version(), kModuleVersion);
}

TEST_P(ModuleTest, SaysThatThereIsNoSuchDevice) {
  EXPECT_EQ(open(1000), nullptr);
  EXPECT_EQ(failure_.kind, FailureKind::kNoDevice);
  EXPECT_THAT(failure_.message, HasSubstr("GPU"));
  EXPECT_THAT(failure_.message, testing::Not(HasSubstr("\n")));
}

/// Label gpu: run by hand, or by `ctest -L gpu`, where there is one.
class OnDevice : public ModuleTest {
 protected:
  void SetUp() override {
    device = open(0);
    if (device == nullptr) GTEST_SKIP() << failure_.message;
  }

  std::unique_ptr<Device> device;
};

TEST_P(OnDevice, MeasuresATinyCase) {
  EXPECT_FALSE(device->info().name.empty());
  EXPECT_GT(device->info().num_sms, 0);
  for (const bool warm : {false, true}) {
    const auto measured =
        device->measure(ElementwiseCase{.op = ElementwiseCase::Op::kAdd, .rows = 100, .cols = 37},
                        {.seconds = 0.001, .warm_l2 = warm});
    ASSERT_TRUE(measured.has_value()) << measured.error().message;
    EXPECT_GE(measured->times_us.size(), 3U);
    EXPECT_THAT(measured->times_us, Each(testing::Gt(0)));
    EXPECT_LT(measured->max_error, 1e-6);
  }
}

TEST_P(OnDevice, FailsACaseThatCannotFitAndGoesOn) {
  const ElementwiseCase large{.rows = std::int64_t{1} << 30, .cols = std::int64_t{1} << 12};
  const auto failed = device->measure(large, {});
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().kind, FailureKind::kOutOfMemory);
  const auto measured = device->measure(PeakCase{.kind = PeakCase::Kind::kLaunch}, {});
  EXPECT_TRUE(measured.has_value()) << measured.error().message;
}

// An operation that a device or its libraries lack is no error; a wrong result is.
TEST_P(OnDevice, EveryFamilyGivesRightResults) {
  const Limits small = {.flop = 2e9, .bytes = 5e7, .traffic = 2e8};
  for (const Family* family : families()) {
    std::size_t right = 0, left_out = 0;
    for (const Case& point : sweep(*family, 60, 1, small)) {
      const auto measured = device->measure(point, {.seconds = 1e-4});
      if (measured) {
        ++right;
        EXPECT_THAT(measured->times_us, Each(testing::Gt(0))) << name_of(point);
        continue;
      }
      const FailureKind kind = measured.error().kind;
      EXPECT_TRUE(kind == FailureKind::kUnsupported || kind == FailureKind::kMissingLibrary)
          << name_of(point) << ": " << measured.error().message;
      if (left_out++ == 0) std::cout << name_of(point) << ": " << measured.error().message << '\n';
    }
    std::cout << family->name << ": " << right << " right, " << left_out << " left out\n";
  }
}

std::vector<const char*> modules() {
  return {
#ifdef KERNELS_BENCH_CUDA_MODULE
      KERNELS_BENCH_CUDA_MODULE,
#endif
#ifdef KERNELS_BENCH_HIP_MODULE
      KERNELS_BENCH_HIP_MODULE,
#endif
  };
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ModuleTest);  // a build without modules
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OnDevice);
INSTANTIATE_TEST_SUITE_P(All, ModuleTest, testing::ValuesIn(modules()));
INSTANTIATE_TEST_SUITE_P(All, OnDevice, testing::ValuesIn(modules()));

}  // namespace module_test
}  // namespace kernels_bench
