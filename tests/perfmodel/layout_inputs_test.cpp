// Layouts in words, tables of them, and sweeps.
#include "layout/layout_inputs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "../scratch.hpp"
#include "json/csv_file.hpp"
#include "layout/layout_request.hpp"
#include "layout/layout_rows.hpp"
#include "layout/layout_sweep.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/decoder_models.hpp"

namespace perfmodel {
namespace layout_inputs_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

TEST(LayoutInputs, PartsMakeUpTheWorld) {
  const auto layout = parse_layout("tp=8,pp=4,zero=1", 64);
  ASSERT_TRUE(layout) << to_string(layout.error());
  EXPECT_EQ(layout->dp, 2);
  EXPECT_EQ(layout->zero, Sharding::kZero1);
  EXPECT_FALSE(parse_layout("tp=0", {}));
  EXPECT_THAT(parse_layout("tps=8", {}).error().message, HasSubstr("found \"tps=8\""));
}

TEST(LayoutInputs, ALayoutHasOneValueOfEachPart) {
  LayoutInputs inputs;
  inputs.lists.tp = {2};
  inputs.lists.recompute = {"full"};
  const auto layout = named_layout(inputs);
  ASSERT_TRUE(layout) << to_string(layout.error());
  EXPECT_EQ(layout->tp, 2);
  EXPECT_EQ(layout->recompute, LayoutRecompute::kFull);
  inputs.lists.pp = {1, 2};
  EXPECT_EQ(named_layout(inputs).error().message,
            "--pp: expected one value for one layout, found 2");
}

TEST(LayoutInputs, ASearchKeepsToTheNamedParts) {
  const auto space = layout_space(LayoutAsk{.tp = 4, .zero = "fsdp"});
  ASSERT_TRUE(space) << to_string(space.error());
  EXPECT_THAT(space->tp, ElementsAre(4));
  EXPECT_THAT(space->zero, ElementsAre(Sharding::kFsdp));
  EXPECT_TRUE(space->pp.empty());
  EXPECT_FALSE(layout_space(LayoutAsk{.recompute = "some"}));
}

const LayoutRunHooks kQuiet = {.warn = [](const std::string&) {},
                               .is_stopped = [] { return false; },
                               .progress = [](std::size_t, std::size_t) {}};

LayoutInputs llama_on_a100() {
  LayoutInputs inputs;
  inputs.model = "llama2-7b";
  inputs.global_batch = 64;
  inputs.machine.gpu = "a100-sxm-80gb";
  return inputs;
}

TEST(LayoutTable, ARowWithoutAPriceHasItsReason) {
  const auto predictor = Predictor::load({.gpus = {"a100-sxm-80gb"}});
  ASSERT_TRUE(predictor) << to_string(predictor.error());
  const std::string table = test_support::scratch_file("layout_rows.csv");
  std::ofstream(table) << "model,sequence,dp,tp\nllama2-7b,4096,8,1\nllama2-7b,4096,8,none\n";
  LayoutInputs inputs = llama_on_a100();
  inputs.model.clear();
  const auto text = price_layout_rows(*predictor, inputs, table, kQuiet);
  ASSERT_TRUE(text) << to_string(text.error());
  EXPECT_THAT(*text, StartsWith("model,sequence,dp,tp,predicted_step_ms,low_ms,high_ms,"));
  EXPECT_THAT(*text, HasSubstr("tp: expected a whole number of at least 1"));
}

TEST(LayoutSweep, ValuesMustBeOfTheAxis) {
  const auto predictor = Predictor::load({.gpus = {"a100-sxm-80gb"}});
  ASSERT_TRUE(predictor) << to_string(predictor.error());
  const auto rows = sweep_layouts(*predictor, llama_on_a100(), "world", {"8", "many"}, kQuiet);
  ASSERT_FALSE(rows);
  EXPECT_THAT(rows.error().message, HasSubstr("found \"many\""));
}

// Calibration and question price the same program.
TEST(MeasuredRows, TakeTheProgramThatTheQuestionTakes) {
  const char* table = "tp,dp,step_ms\n2,4,1000\n1,8,900\n";
  const Gpu gpu = find_gpu("h100-sxm-80gb", *find_data_folder() / "gpus").value();
  LayoutJob asked;
  asked.model = find_decoder("llama3-8b")->model;
  asked.sequence = 8192;
  asked.global_batch = 64;
  auto rows = CsvFile::of_text("steps.csv", table);
  const auto steps = read_measured_rows(std::move(*rows), {}, &asked, gpu);
  ASSERT_TRUE(steps) << to_string(steps.error());
  ASSERT_EQ(steps->size(), 2U);
  for (const MeasuredStep& step : *steps) {
    EXPECT_EQ(step.job.software, suitable_software(gpu, asked, step.layout));
  }
  asked.software = "nanotron";
  auto again = CsvFile::of_text("steps.csv", table);
  const auto named = read_measured_rows(std::move(*again), {}, &asked, gpu);
  ASSERT_TRUE(named);
  EXPECT_EQ(named->front().job.software, "nanotron");
}

}  // namespace layout_inputs_test
}  // namespace perfmodel
