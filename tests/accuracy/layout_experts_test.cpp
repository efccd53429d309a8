// Training steps of models with experts, of long sequences and of adapters against public
// measurements. data/frameworks/nemo.json says what was fitted on which rows.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <map>
#include <string>

#include "accuracy_support.hpp"
#include "json/csv_file.hpp"
#include "perfmodel/detail/decoder_models.hpp"
#include "perfmodel/layout.hpp"
#include "training_rows.hpp"

namespace perfmodel {
namespace layout_experts_accuracy {

using accuracy::Errors;
using accuracy::measured_cases;
using accuracy::public_data;

const LayoutPricer& pricer_of(const std::string& gpu) {
  static const Predictor predictor =
      Predictor::load({.data = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data",
                       .gpus = {"h100-sxm-80gb", "b200-sxm-180gb", "gb200", "b300-sxm-270gb",
                                "gb300", "mi300x"}})
          .value();
  static std::map<std::string, LayoutPricer> made;
  const auto known = made.find(gpu);
  if (known != made.end()) return known->second;
  auto one = LayoutPricer::make(predictor, {.gpu = gpu});
  return made.emplace(gpu, std::move(one.value())).first->second;
}

// --- NeMo and Megatron Bridge: pre-training ------------------------------------------------------

struct NemoRow {
  std::string label, gpu, precision;
  bool experts = false;
  LayoutJob job;
  ParallelLayout layout;
  double tokens = 0;     ///< measured, per second and GPU
  double predicted = 0;  ///< 0: unknown model
};

// "Qwen3_30B_a3B (tokendrop)" without the parentheses.
std::string plain_name(const std::string& model) { return model.substr(0, model.find(" (")); }

NemoRow nemo_row(const nlohmann::json& row) {
  static const std::map<std::string, std::string> kGpus = {{"DGX-H100", "h100-sxm-80gb"},
                                                           {"DGX-B200", "b200-sxm-180gb"},
                                                           {"DGX-GB200", "gb200"},
                                                           {"DGX-B300", "b300-sxm-270gb"},
                                                           {"DGX-GB300", "gb300"}};
  NemoRow made;
  const std::string model = row.at("model"), chunks = row.at("vp");
  made.gpu = kGpus.at(row.at("system"));
  made.tokens = row.at("tokens_per_s_per_gpu");
  // Rows that do not say it reach more than bf16 could.
  made.precision = row.value("precision", "FP8");
  made.label = model + ", " + made.precision + " on " + std::to_string(row.at("gpus").get<int>()) +
               " " + made.gpu;
  const auto known = find_decoder(plain_name(model));
  if (!known) return made;
  LayoutJob& job = made.job;
  job.model = known->model;
  if (model.find("w/o MTP") != std::string::npos) job.model.next_tokens = 0;
  if (model.find("tokendrop") != std::string::npos) job.expert_capacity = 1;
  made.experts = job.model.experts.experts > 0;
  job.sequence = row.at("seq");
  job.global_batch = row.at("global_batch");
  job.software = "nemo";
  // Fused attention knows sinks in the containers of 2026 (row 8, which chose), and not in 25.11
  // (row 6, which chose).
  const std::string container = row.at("container");
  if (job.model.sinks && container < "26") job.attention = LayoutJob::Attention::kEager;
  job.precision = made.precision == "BF16"    ? LayoutJob::Precision::kBf16
                  : made.precision == "NVFP4" ? LayoutJob::Precision::kFp4
                                              : LayoutJob::Precision::kFp8;
  ParallelLayout& layout = made.layout;
  layout.tp = row.at("tp");
  layout.pp = row.at("pp");
  layout.cp = row.at("cp");
  layout.ep = row.at("ep");
  layout.vp = chunks == "n/a" ? 1 : std::stoll(chunks);
  layout.micro_batch = row.at("micro_batch");
  layout.zero = row.value("fsdp", 0) != 0 ? Sharding::kFsdp : Sharding::kZero1;
  layout.sequence_parallel = layout.tp > 1;
  layout.dp = row.at("gpus").get<std::int64_t>() / (layout.tp * layout.pp * layout.cp);
  const auto answer = pricer_of(made.gpu).predict(job, layout);
  EXPECT_TRUE(answer) << made.label << ": " << to_string(answer.error());
  if (answer) made.predicted = answer->tokens_per_s_per_gpu;
  return made;
}

// Errors of tokens per second and GPU.
Errors errors_of(const std::vector<NemoRow>& rows, const std::function<bool(std::size_t)>& takes) {
  Errors errors;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].predicted > 0 && takes(i)) errors.add(rows[i].predicted, rows[i].tokens);
  }
  return errors;
}

// The peak of the precision over the FLOP of a token, times one constant of the fitted rows.
Errors roofline_errors(const std::vector<NemoRow>& rows) {
  const auto rate = [](const NemoRow& row) {
    const auto gpu = Predictor::load({.data = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data",
                                      .gpus = {row.gpu}})
                         ->gpu(row.gpu);
    const DType type = row.job.precision == LayoutJob::Precision::kBf16  ? DType::kBFloat16
                       : row.job.precision == LayoutJob::Precision::kFp4 ? DType::kFloat4
                                                                         : DType::kFloat8;
    return gpu->peak(type, true).value / model_flop_per_token(row.job.model, row.job.sequence);
  };
  std::vector<double> shares;
  for (std::size_t i = 0; i < rows.size(); i += 2) {
    if (rows[i].predicted > 0) shares.push_back(rows[i].tokens / rate(rows[i]));
  }
  const double share = accuracy::median(shares);
  Errors errors;
  for (std::size_t i = 1; i < rows.size(); i += 2) {
    if (rows[i].predicted > 0) errors.add(share * rate(rows[i]), rows[i].tokens);
  }
  return errors;
}

// Even rows of the file chose expert_host_us, expert_overlap and state_factor; odd ones judge. The
// goal, a median of 12 %, is missed on them.
TEST(NemoRuns, OfAllModelsThatHaveAName) {
  const auto cases = measured_cases("nemo_pretraining_throughput.json");
  if (cases.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::vector<NemoRow> rows;
  for (const auto& row : cases) rows.push_back(nemo_row(row));
  std::size_t unknown = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const NemoRow& row = rows[i];
    unknown += row.predicted > 0 ? 0 : 1;
    std::printf("%-52s %7.0f tokens/s, predicted %7.0f (%+.1f %%)%s\n", row.label.c_str(),
                row.tokens, row.predicted, 100 * (row.predicted / row.tokens - 1),
                i % 2 == 0 ? ", fitted" : "");
  }
  const auto print = [&](const std::string& what, const std::function<bool(std::size_t)>& takes) {
    const Errors errors = errors_of(rows, takes);
    if (errors.size() > 0) errors.print(what.c_str());
  };
  const auto judged = [](std::size_t i) { return i % 2 == 1; };
  print("NeMo, all rows", [](std::size_t) { return true; });
  print("NeMo, rows that chose", [](std::size_t i) { return i % 2 == 0; });
  print("NeMo, judged rows", judged);
  for (const char* gpu : {"h100-sxm-80gb", "b200-sxm-180gb", "gb200", "b300-sxm-270gb", "gb300"}) {
    print(std::string("- ") + gpu, [&](std::size_t i) { return rows[i].gpu == gpu; });
  }
  print("- dense", [&](std::size_t i) { return !rows[i].experts; });
  print("- experts", [&](std::size_t i) { return rows[i].experts; });
  print("- bf16", [&](std::size_t i) { return rows[i].precision == "BF16"; });
  print("- fp4", [&](std::size_t i) { return rows[i].precision == "NVFP4"; });
  print("- fp8",
        [&](std::size_t i) { return rows[i].precision != "BF16" && rows[i].precision != "NVFP4"; });
  const Errors baseline = roofline_errors(rows);
  baseline.print("- roofline x constant, judged rows");
  EXPECT_EQ(unknown, 3U);  // DeepSeek V4 Flash, Nemotron 3 Ultra and 3.5 Lightning
  const Errors errors = errors_of(rows, judged);
  EXPECT_LT(errors.median(), 14);
  EXPECT_LT(errors_of(rows, [](std::size_t) { return true; }).median(), 12.5);
  EXPECT_LT(errors.median(), baseline.median());
}

// --- MLPerf: adapters of rank 16 on Llama 2 70B --------------------------------------------------

TEST(MlperfRuns, AdaptersWithALayout) {
  if (!public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  static const std::map<std::string, std::string> kGpus = {
      {"NVIDIA H100-SXM5-80GB", "h100-sxm-80gb"},
      {"AMD Instinct MI300X 192GB HBM3", "mi300x"},
      {"NVIDIA Blackwell GPU (GB200)", "gb200"},
      {"NVIDIA Blackwell GPU (B200-SXM-180GB)", "b200-sxm-180gb"}};
  auto csv = CsvFile::open(*public_data() / "training_runs" / "mlperf_llm.csv").value();
  Errors errors;
  while (csv.next()) {
    const auto cell = [&](const char* name) { return std::string(csv.cell(csv.column(name))); };
    const auto count = [&](const char* name) {
      return cell(name).empty() ? std::int64_t{1} : std::stoll(cell(name));
    };
    if (!cell("model").ends_with("lora") || cell("tp").empty()) continue;
    LayoutJob job;
    job.model = find_decoder("llama2-70b")->model;
    job.sequence = 8192;
    job.global_batch = count("global_batch");
    job.precision = LayoutJob::Precision::kFp8;
    job.software = "nemo";
    job.lora_rank = 16;
    ParallelLayout layout;
    layout.tp = count("tp");
    layout.pp = count("pp");
    layout.cp = count("cp");
    layout.micro_batch = count("micro_batch");
    layout.zero = Sharding::kZero1;
    layout.sequence_parallel = layout.tp > 1;
    layout.dp = count("gpus") / (layout.tp * layout.pp * layout.cp);
    const auto made = pricer_of(kGpus.at(cell("gpu"))).predict(job, layout);
    ASSERT_TRUE(made) << to_string(made.error());
    const double measured = 1e3 * std::stod(cell("step_s"));
    std::printf("%-40s cp %lld: measured %7.1f ms, predicted %7.1f (%+.1f %%)\n",
                cell("system").c_str(), static_cast<long long>(layout.cp), measured, made->step_ms,
                100 * (made->step_ms / measured - 1));
    errors.add(made->step_ms, measured);
  }
  errors.print("MLPerf, adapters on Llama 2 70B");
  EXPECT_EQ(errors.size(), 14U);
  EXPECT_LT(errors.mape(), 15);
}

// --- Long documents: Llama 3.1 8B on 8 B200 ------------------------------------------------------

// Three rows have AdamW on the CPU, at the rate of another host (ZeRO-Offload's) to which nothing
// here was fitted. The fourth, ZeRO-2 on the GPUs, is too fast, although DeepSpeed's copies and
// all-reduces in fp32 are counted: its figures come from one run of ZeRO-3.
TEST(DocumentRuns, WithTheOptimizerOnTheHost) {
  if (!public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  auto csv = CsvFile::open(*public_data() / "training_runs" / "documents.csv").value();
  std::vector<double> ratios;
  while (csv.next()) {
    const auto cell = [&](const char* name) { return std::string(csv.cell(csv.column(name))); };
    LayoutJob job;
    job.model = find_decoder("llama3.1-8b")->model;
    job.sequence = std::stoll(cell("seq"));
    job.global_batch = 8;
    job.software = "deepspeed";
    ParallelLayout layout;
    layout.dp = 8;
    layout.zero = cell("sharding") == "ZeRO-3" ? Sharding::kZero3 : Sharding::kZero2;
    const bool recomputes = cell("activation_checkpoint") == "full";
    layout.recompute = recomputes ? LayoutRecompute::kFull : LayoutRecompute::kNone;
    layout.offload.optimizer = cell("optimizer_on") == "host";
    const auto made = pricer_of("b200-sxm-180gb").predict(job, layout);
    ASSERT_TRUE(made) << to_string(made.error());
    const double measured = std::stod(cell("tokens_per_s_per_gpu"));
    std::printf("%7lld tokens, %s, optimizer on %s: %.0f tokens/s, predicted %.0f\n",
                static_cast<long long>(job.sequence), cell("sharding").c_str(),
                cell("optimizer_on").c_str(), measured, made->tokens_per_s_per_gpu);
    ratios.push_back(made->tokens_per_s_per_gpu / measured);
    std::printf("  %.1f GB measured, predicted %.1f of %.1f\n",
                1.073741824 * std::stod("0" + cell("memory_gib")), 1e-9 * made->reserved_bytes,
                1e-9 * made->device_bytes);
    EXPECT_TRUE(made->fits) << job.sequence;  // they ran
  }
  ASSERT_EQ(ratios.size(), 4U);
  for (const std::size_t i : {0U, 1U, 2U}) EXPECT_NEAR(ratios[i], 1, 0.1) << i;
  EXPECT_GT(ratios[3], 1.1);
  EXPECT_LT(ratios[3], 1.25);
}

}  // namespace layout_experts_accuracy
}  // namespace perfmodel
