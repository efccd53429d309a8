// Products in a type that the GPU's matrix units lack are told of before everything else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/predict.hpp"

namespace perfmodel {
namespace lacking_units_test {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

Prediction predicted_in(DType dtype, const char* gpu) {
  ExecutionGraph graph = build_mlp(mlp_preset("mnist").value()).value();
  for (Tensor& tensor : graph.tensors) {
    if (tensor.dtype != DType::kFloat32) continue;
    tensor.dtype = dtype;
    tensor.item_size = size_in_bytes(dtype);
  }
  const auto data = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data";
  return predict(graph, find_gpu(gpu, data / "gpus").value(),
                 read_overheads(data / "overheads" / "reference.json").value())
      .value();
}

TEST(LackingUnits, AreTheFirstWarning) {
  const Prediction v100 = predicted_in(DType::kFloat8, "v100-sxm2-32gb");
  ASSERT_THAT(v100.warnings, Not(IsEmpty()));
  EXPECT_THAT(v100.warnings[0], HasSubstr("v100-sxm2-32gb has no matrix units for float8"));
  EXPECT_GT(v100.coverage.kernels_out_of_range, 0U);
}

TEST(LackingUnits, AreNoMatterWhereTheGpuHasThem) {
  EXPECT_THAT(predicted_in(DType::kFloat8, "h100-sxm-80gb").coverage.lacking_units, IsEmpty());
  EXPECT_THAT(predicted_in(DType::kFloat16, "v100-sxm2-32gb").coverage.lacking_units, IsEmpty());
  EXPECT_THAT(predicted_in(DType::kFloat16, "p100-pcie-16gb").coverage.lacking_units, IsEmpty());
}

TEST(LackingUnits, ProductsAtTheRateOfFp32AreTold) {
  for (const auto& [dtype, gpu] :
       {std::pair{DType::kBFloat16, "v100-sxm2-32gb"}, std::pair{DType::kBFloat16, "t4"},
        std::pair{DType::kFloat16, "titan-xp"}}) {
    const Prediction slow = predicted_in(dtype, gpu);
    ASSERT_THAT(slow.warnings, Not(IsEmpty()));
    EXPECT_THAT(slow.warnings[0], HasSubstr("are priced at the rate of fp32, out of range"));
    EXPECT_GT(slow.coverage.kernels_out_of_range, 0U);
  }
}

}  // namespace lacking_units_test
}  // namespace perfmodel
