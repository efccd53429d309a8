// An H100 with PyTorch 2.11 (data/measurements). If both boards ran a program and only one
// execution graph was kept, it is the H200's.
#include "measured_board.hpp"
#include "price/kernel_work.hpp"

namespace perfmodel {
namespace h100_test {

using namespace measured_board;

const std::string kGpu = "h100-sxm-80gb";

TEST(MeasuredOnH100, OpsOfAnotherDraw) {
  const std::map<std::string, double> limits = {{"convolution bfloat16 channels last", 19},
                                                {"norm bfloat16 channels last", 34},
                                                {"norm float32 channels last", 49},
                                                {"gemm float32", 11},
                                                {"gemm tf32", 10.5},
                                                {"gemm bfloat16", 14.5},
                                                {"gemm float16", 10.5},
                                                {"convolution float32", 44},
                                                {"convolution tf32", 15.5},
                                                {"convolution bfloat16", 20},
                                                {"elementwise float32", 7.5},
                                                {"elementwise bfloat16", 8.5},
                                                {"reduction float32", 17},
                                                {"reduction bfloat16", 28.5},
                                                {"softmax float32", 13.5},
                                                {"softmax bfloat16", 16},
                                                {"norm float32", 13},
                                                {"norm bfloat16", 12},
                                                {"dropout float32", 5},
                                                {"dropout bfloat16", 8.5}};
  expect_ops_of_another_draw(kGpu, limits);
}

// PyTorch's own bags; the table does not tell them from others.
TEST(MeasuredOnH100, BagsOfAnotherDraw) {
  const auto file = folder_of(kGpu) / "ops_second_draw.csv.gz";
  const std::set<int> bags = lines_with(file, ",aten::_embedding_bag,");
  const auto gpus = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus";
  const KernelTable table =
      read_kernel_table(file, {.gpu_folder = gpus, .needs_time = true}).value();
  std::vector<double> ours, batched;
  for (const KernelRow& row : table.rows) {
    if (!bags.contains(row.line)) continue;
    const Gpu& gpu = table.gpus[static_cast<std::size_t>(row.gpu)];
    const auto ratio = [&](bool is_serial) {
      KernelWork work = row.work;
      std::get<EmbeddingShape>(work.shape).is_serial = is_serial;
      return KernelModels::heuristic().price(work, gpu).time.count() / row.measured_us;
    };
    ours.push_back(ratio(true));
    batched.push_back(ratio(false));
  }
  ASSERT_EQ(ours.size(), 33u);
  std::printf("%.1f %% off, as table-batched bags %.1f\n", Errors::mean(ours),
              Errors::mean(batched));
  EXPECT_LE(Errors::mean(ours), 13);
  EXPECT_GE(Errors::mean(batched), 2 * Errors::mean(ours));
}

// Kernels of training steps (KEY.kernels.json.gz) by the sizes of their ops.
TEST(MeasuredOnH100, KernelsThatFindRowsByIndex) {
  const Gpu gpu = accuracy::gpu(kGpu);
  constexpr DType kFp32 = DType::kFloat32;
  const auto sorted = [](std::int64_t elements) {
    KernelWork work = scatter_add_work(elements, 1, kFp32, elements);
    std::get<RowShape>(work.shape).access = RowAccess::kSortedAdd;
    return work;
  };
  const auto skewed = [](std::int64_t rows, std::int64_t table_rows, double exponent) {
    KernelWork work = scatter_add_work(rows, 64, kFp32, table_rows);
    std::get<RowShape>(work.shape).zipf_exponent = exponent;
    return work;
  };
  const std::pair<KernelWork, double> measured[] = {
      {gather_work(204'800, 64, kFp32, 2048), 124.8},        // DLRM default, 2,048
      {gather_work(2'242'560, 64, kFp32, 204'800), 1349.7},  // 100 tables in one
      {gather_work(16'384, 64, kFp32, 2048), 11.5},          // one of 50 tables
      {scatter_add_work(204'800, 64, kFp32, 1'000'000), 109.2},
      {skewed(2048 * 44, 194'133, 1.3), 122.8},  // one of 50 tables
      {skewed(2048 * 17, 1'621'212, 1.3), 48.2},
      {skewed(2048 * 44, 226'112, 1.1), 72.2},  // one of 100 tables
      {skewed(2048 * 24, 45'661, 0.9), 26.0},   // one of 26 tables
      {sorted(2048 * 1275), 562.9},             // lower triangles: 51 features,
      {sorted(2048 * 5050), 2497.4},            // 101,
      {sorted(2048 * 351), 147.5},              // 27,
      {sorted(2048 * 36), 17.0},                // and 9
  };
  for (const auto& [work, us] : measured) {
    const double ours = KernelModels::heuristic().price(work, gpu).time.count();
    std::printf("%8.1f us, predicted %8.1f\n", us, ours);
    EXPECT_NEAR(ours / us, 1, 0.2);
  }
}

// Casts of [8, 384, 768] as a BERT's graph asks for them, on both boards. To bf16 PyTorch has a
// kernel of vectors. Data that earlier kernels left in the cache makes them shorter.
TEST(MeasuredOnH100, CastsOfATrainingStep) {
  const auto price_us = [](const std::string& gpu, DType from, DType to) {
    KernelWork work = elementwise_work(8 * 384 * 768, 1, 1, from);
    work.layout = Layout::kMixedTypes;
    work.bytes_written = {8 * 384 * 768. * size_in_bytes(to)};
    return accuracy::learned_models().price(work, accuracy::gpu(gpu)).time.count();
  };
  for (const auto& [gpu, to_bf16, to_fp32] :
       {std::tuple{kGpu, 3.78, 7.52}, std::tuple{std::string("h200-sxm-141gb"), 3.33, 7.17}}) {
    const double down = price_us(gpu, DType::kFloat32, DType::kBFloat16);
    const double up = price_us(gpu, DType::kBFloat16, DType::kFloat32);
    std::printf("%s: %.2f us (measured %.2f), back %.2f (%.2f)\n", gpu.c_str(), down, to_bf16, up,
                to_fp32);
    EXPECT_NEAR(down / to_bf16, 1.25, 0.35);
    EXPECT_NEAR(up / to_fp32, 1.25, 0.35);
  }
}

TEST(MeasuredOnH100, WholeStepsByDefault) {
  const std::vector<Step> steps = traced_steps(kGpu, "h200-sxm-141gb");
  ASSERT_EQ(steps.size(), 55u);
  const StepErrors errors = predict_steps(kGpu, steps);
  EXPECT_LE(errors.step, 0.1);
  EXPECT_LE(errors.active, 0.052);
  EXPECT_LE(errors.median_active, 0.039);
  EXPECT_LE(errors.active_of.at("bert-base-384.sdpa-flash-b8"), 0.1);
  EXPECT_GE(errors.inside, 0.85);
}

}  // namespace h100_test
}  // namespace perfmodel
