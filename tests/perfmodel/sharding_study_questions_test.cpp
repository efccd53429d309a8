// Questions about tables as values: fields, what a question changes of a file, plans, studies and
// sweeps, without the command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "sharding/study/load_study.hpp"
#include "sharding/study/shard_fields.hpp"
#include "sharding/study/shard_results.hpp"
#include "sharding/study/study_questions.hpp"
#include "sharding/study/study_sweep.hpp"
#include "sharding/study/study_variants.hpp"
#include "sharding/study/write_plan.hpp"
#include "sharding_files.hpp"

namespace perfmodel::sharding {
namespace sharding_study_questions_test {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const FileFolder& folder() {
  static const FileFolder kFolder("sharding_study_questions");
  return kFolder;
}

// Two tables, ids of the second ten times as many, on four GPUs.
ShardQuestion question() {
  ShardQuestion asked;
  asked.tables =
      folder().written("tables.csv", "table,rows,dim,pooling\na,100000,64,1\nb,100000,64,10\n");
  asked.gpu = "h100-sxm-80gb";
  asked.world = 4;
  asked.batch = 512;
  asked.models = "roofline";
  return asked;
}

std::string error_of(const ShardQuestion& asked) {
  const auto loaded = load_study(asked);
  return loaded ? "loaded" : loaded.error().message;
}

TEST(ShardFields, HaveOneFlagEach) {
  std::set<std::string> flags;
  for (const ShardField& field : shard_fields()) {
    EXPECT_TRUE(flags.insert(flag_of(field.name)).second) << field.name;
    EXPECT_FALSE(field.help.empty()) << field.name;
  }
  EXPECT_THAT(flags, Contains("--gpus-per-host"));
}

TEST(ShardFields, AxesReadValuesOfTheirKind) {
  ShardQuestion asked;
  for (const ShardField& axis : sweep_axes()) {
    EXPECT_FALSE(set_field(asked, axis, "")) << axis.name;
    if (axis.name == "world") {
      EXPECT_TRUE(set_field(asked, axis, "8"));
      EXPECT_FALSE(set_field(asked, axis, "0"));
      EXPECT_FALSE(set_field(asked, axis, "8.5"));
    } else if (axis.name == "zipf") {
      EXPECT_TRUE(set_field(asked, axis, "1.05"));
      EXPECT_FALSE(set_field(asked, axis, "-1"));
      EXPECT_FALSE(set_field(asked, axis, "inf"));
    }
  }
  EXPECT_EQ(asked.world, 8);
  EXPECT_EQ(asked.zipf, 1.05);
}

TEST(ShardFields, RefuseUnknownWords) {
  ShardQuestion asked = question();
  asked.dtype = "fp8";
  EXPECT_EQ(error_of(asked), "--dtype: expected float32, float16, bfloat16 or int8, found fp8");
  asked = question();
  asked.choose = {"wire", "all"};
  EXPECT_EQ(error_of(asked), "--choose: expected one of deduplication cache wire none, found all");
  asked = question();
  asked.hot_rows = "many";
  EXPECT_EQ(error_of(asked), "--hot-rows: expected a number of rows or auto, found many");
}

TEST(LoadStudy, PutsTheQuestionOverTheFile) {
  ShardQuestion asked = question();
  asked.dtype = "fp16";
  asked.types = {"row_wise", "table_wise"};
  asked.pooling_scale = 2;
  asked.bottom = {{13, 512, 64}};
  asked.interaction = "cat";
  asked.software = "per-table";
  const auto loaded = load_study(asked);
  ASSERT_TRUE(loaded) << loaded.error().message;
  const ShardedTable& table = loaded->study.tables[1];
  EXPECT_EQ(loaded->file, "tables.csv");
  EXPECT_EQ(table.element_bytes, 2);
  EXPECT_THAT(table.rules.types, ElementsAre(ShardingType::kRowWise, ShardingType::kTableWise));
  EXPECT_EQ(table.features[0].pooling_factor, 20);
  EXPECT_EQ(loaded->study.dense->interaction, DensePart::Interaction::kConcatenation);
  EXPECT_EQ(loaded->study.local_world, 4);
  EXPECT_EQ(loaded->options.software, TableSoftware::kPerTable);
  EXPECT_EQ(loaded->table_bytes(), 2 * 100000 * 64 * 2);
  EXPECT_DOUBLE_EQ(loaded->samples_per_s(1000), 4 * 512 * 1e3);
  EXPECT_THAT(loaded->warnings, Contains(HasSubstr("the host keeps ahead")));
  EXPECT_THAT(loaded->warnings, Not(Contains(HasSubstr("no dense part"))));
}

TEST(LoadStudy, SaysWhatIsMissing) {
  ShardQuestion asked = question();
  asked.world.reset();
  EXPECT_EQ(error_of(asked), "expected a number of GPUs (--world), found none");
  asked = question();
  asked.batch.reset();
  EXPECT_EQ(error_of(asked), "expected a batch (--batch-per-gpu), found none");
  asked = question();
  asked.gpu.clear();
  EXPECT_EQ(error_of(asked), "expected a GPU (--gpu) or a topology (--topology), found neither");
  asked = question();
  asked.indices = {"c=ids.npy"};
  EXPECT_THAT(error_of(asked), HasSubstr("--indices: expected TABLE=FILE"));
}

TEST(LoadStudy, KnowsAStudyWithoutASchema) {
  ShardQuestion asked = question();
  asked.tables = folder().written("bare.json", R"({"tables": [{"name": "a", "rows": 1000,
  "dim": 64, "pooling": 1}], "dense": {"bottom_mlp": [13, 64], "top_mlp": [32, 1]}})");
  const auto loaded = load_study(asked);
  ASSERT_TRUE(loaded) << to_string(loaded.error());
  EXPECT_EQ(loaded->study.tables.size(), 1U);
  EXPECT_TRUE(loaded->study.dense);
}

// One way to launch decides, the others are for the range; HugeCTR launches all at once.
TEST(LoadStudy, LaunchesOpByOpByDefault) {
  ShardQuestion asked = question();
  const auto eager = load_study(asked);
  ASSERT_TRUE(eager) << to_string(eager.error());
  EXPECT_TRUE(eager->options.step);
  EXPECT_EQ(eager->options.other_steps.size(), 2U);
  asked.launch = "graphs";
  const auto graphs = load_study(asked);
  EXPECT_LT(graphs->options.step->batch.host_us(), eager->options.step->batch.host_us());
  asked.launch = "";
  asked.network = "hugectr";
  EXPECT_FALSE(load_study(asked)->options.step);
}

TEST(LoadStudy, HashesTables) {
  ShardQuestion asked = question();
  asked.compress = "robe:ratio=100,Z=16,kernel=chunked,tables=b+";
  const auto loaded = load_study(asked);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(loaded->study.hashed->elements, 64000);  // 100,000 x 64 / 100
  EXPECT_EQ(loaded->study.hashed->chunk, 16);
  EXPECT_FALSE(loaded->study.hashed->reference_kernel);
  EXPECT_THAT(loaded->study.tables[0].rules.kernels, IsEmpty());
  EXPECT_THAT(loaded->study.tables[1].rules.kernels, ElementsAre(ComputeKernel::kHashed));
  for (const auto& [text, found] : {std::pair{"robe:m=5,tables=c", "names of tables, found c"},
                                    {"robe:ratio=0.5", "found ratio=0.5"},
                                    {"hashednet:m=9,Z=2", "found Z=2"},
                                    {"robe:Z=3", "found robe:Z=3"},
                                    {"robe:m=9,kernel=fast", "found kernel=fast"}}) {
    asked.compress = text;
    EXPECT_THAT(error_of(asked), HasSubstr(found));
  }
}

TEST(PricedPlans, ComeFromASearchOrFromTheCaller) {
  const auto loaded = load_study(question());
  ASSERT_TRUE(loaded) << loaded.error().message;
  int begun = 0, ended = 0;
  const SearchWatch watch{.begin_search = [&] {
    ++begun;
    return std::shared_ptr<void>(&ended, [](int* count) { ++*count; });
  }};
  const auto found = search_for_plans(*loaded, 2, watch);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(begun, 1);
  EXPECT_EQ(ended, 1);
  const PricedPlan& best = found->plans.front();
  EXPECT_GT(best.most_memory(), 0);
  EXPECT_LE(found->search->lower_bound, best.cost());
  const auto priced = price_plans(*loaded, {{"given", best.placements}});
  ASSERT_TRUE(priced) << priced.error().message;
  EXPECT_EQ(priced->plans.front().name, "given");
  EXPECT_EQ(priced->plans.front().cost(), best.cost());
}

TEST(PricedPlans, RateAsTorchrecDoes) {
  ShardQuestion asked = question();
  asked.costs = "torchrec";
  const auto loaded = load_study(asked);
  ASSERT_TRUE(loaded) << loaded.error().message;
  const auto found = search_for_plans(*loaded, 1);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_FALSE(found->plans.front().time);
  EXPECT_GT(found->plans.front().cost(), 0);
}

TEST(ShardResults, HaveTheKeysOfTheirCosts) {
  ShardQuestion asked = question();
  for (const std::string costs : {"calibrated", "torchrec"}) {
    asked.costs = costs;
    const auto loaded = load_study(asked);
    ASSERT_TRUE(loaded) << loaded.error().message;
    const auto report = search_for_plans(*loaded, 1);
    ASSERT_TRUE(report) << report.error().message;
    const OrderedJson json = report_json(*report), plan = json["plans"][0];
    EXPECT_EQ(json["costs"], costs);
    EXPECT_EQ(plan.contains("predicted_us"), costs == "calibrated");
    EXPECT_EQ(plan.contains("bottleneck"), costs == "calibrated");
    EXPECT_EQ(plan.contains("rating_ms"), costs == "torchrec");
    EXPECT_EQ(plan["per_rank"].size(), 4u);
    EXPECT_EQ(plan["per_rank"][3]["rank"], 3);
    EXPECT_EQ(plan["placement"][1]["table"], "b");
    EXPECT_FALSE(plan["placement"][1].contains("hot_rows"));
    EXPECT_EQ(json["search"].contains("lower_bound_ms"), costs == "torchrec");
    EXPECT_EQ(rank_loads(report->plans.front()).size(), 4u);
  }
}

TEST(ShardResults, SayWhyThereIsNone) {
  EXPECT_EQ(sweep_csv("world", {{.value = "8", .loaded = {}, .error = "too \"small\""}}),
            "world,predicted_us,low_us,high_us,rating_ms,limited_by,memory_bytes,error\n"
            "8,,,,,,,\"too \"\"small\"\"\"\n");
  const StudyAnswers answers{.headline = "all",
                             .notes = {},
                             .findings = {},
                             .ways = {{.name = "a",
                                       .us = 1234.5678,
                                       .samples_per_s = 2.25,
                                       .most_memory = 3,
                                       .limit = "lookup forward",
                                       .plan = "p"},
                                      {.name = "b", .error = "none", .world = 2}}};
  const OrderedJson json = study_json(answers);
  EXPECT_EQ(json["way"].dump(),
            "[{\"name\":\"a\",\"predicted_us\":1234.568,\"samples_per_s\":2.25,"
            "\"memory_bytes\":3.0,\"limited_by\":\"lookup forward\",\"plan\":\"p\"},"
            "{\"name\":\"b\",\"error\":\"none\",\"world\":2}]");
  EXPECT_THAT(study_csv(answers), HasSubstr("\nway,\"a\",,,1234.568,2.2,3,lookup forward,\n"
                                            "way,\"b\",2,,,,,,\"none\"\n"));
}

TEST(WritePlan, SaysWhatAFormatLoses) {
  ShardQuestion asked = question();
  asked.choose = {"deduplication"};
  const auto for_graphs = load_study_for("graphs", asked), for_csv = load_study_for("csv", asked);
  ASSERT_TRUE(for_graphs && for_csv);
  EXPECT_FALSE(for_graphs->study.searched.any());
  EXPECT_TRUE(for_csv->study.searched.deduplication);
  std::vector<TablePlacement> plan = {{.type = ShardingType::kRowWise},
                                      {.type = ShardingType::kTableWise, .ranks = {0}}};
  EXPECT_EQ(lost_settings(*for_csv, plan, "csv"), "");
  plan[1].settings.deduplicated = true;
  EXPECT_THAT(lost_settings(*for_csv, plan, "csv"), HasSubstr("(b: distinct ids)"));
  EXPECT_EQ(lost_settings(*for_csv, plan, "torchrec"), "");
  const std::string file = folder().file("plan.csv");
  ASSERT_TRUE(write_plan(*for_csv, plan, "csv", file, ""));
  EXPECT_THAT(text_of(file), HasSubstr("b,table_wise,"));
}

TEST(StudyVariants, DifferInOneInput) {
  ShardQuestion base = question();
  base.link_scale = 3;
  base.local_world = 2;
  const auto loaded = load_study(base);
  ASSERT_TRUE(loaded) << loaded.error().message;
  EXPECT_EQ(way_variants(base).size(), 6u);
  EXPECT_THAT(way_variants(base)[1].question.types, ElementsAre("column_wise", "table_wise"));
  EXPECT_EQ(type_variants(base)[4].question.wire_dtype, "float16");
  EXPECT_EQ(network_variants(base, *loaded)[1].question.link_scale, 1.5);
  EXPECT_THAT(hot_row_variants(base, *loaded), IsEmpty());  // ids are uniform
  EXPECT_EQ(load_variants(base, *loaded)[4].question.zipf, 0);
  const StudyQuestion asked{.base = base, .worlds = {1, 3, 8}, .global_batch = 4096};
  const StudyVariants worlds = world_variants(asked, base, *loaded);
  ASSERT_EQ(worlds.size(), 3u);
  EXPECT_EQ(worlds[0].question.local_world, 1);
  EXPECT_EQ(worlds[1].error, "--global-batch: expected a multiple of 3 GPUs, found 4096");
  EXPECT_EQ(worlds[2].question.batch, 512);
}

TEST(StudyAnswers, CompareWaysTypesNetworksAndGpus) {
  std::vector<std::string> names;
  const SearchWatch watch{
      .begin_question = [&](const std::string& name) { names.push_back(name); }};
  const auto answers =
      study_answers({.base = question(), .worlds = {1, 4}, .samples_per_s = 1e3}, watch);
  ASSERT_TRUE(answers) << answers.error().message;
  EXPECT_EQ(answers->ways.size(), 6u);
  EXPECT_EQ(answers->types.size(), 5u);
  EXPECT_EQ(answers->robustness.size(), 5u);
  EXPECT_THAT(answers->hot_rows, IsEmpty());
  EXPECT_THAT(names, Contains("2 GPUs").Times(0));
  EXPECT_THAT(names, Contains("4 GPUs"));
  for (const StudyAnswer& way : answers->ways) {
    EXPECT_TRUE(way.fits()) << way.error;
    EXPECT_GT(way.us, 0);
    EXPECT_EQ(way.world, 4);
  }
  EXPECT_LE(answers->ways[3].us, 1.02 * answers->ways[0].us);  // which is one of the mixed plans
  EXPECT_THAT(answers->headline, HasSubstr("tables.csv: 2 tables, 51.2 MB, on 4 x h100"));
  EXPECT_THAT(answers->findings, Contains("The fewest GPUs whose memory is enough: 1."));
  EXPECT_THAT(answers->findings, Contains("The fewest GPUs for 1.0 k/s: 1."));
}

TEST(StudyAnswers, AreTimesOfSomethingThatFits) {
  StudyQuestion asked{.base = question()};
  asked.global_batch = 4095;
  EXPECT_THAT(study_answers(asked).error().message, HasSubstr("expected a multiple of 4 GPUs"));
  asked.base.costs = "torchrec";
  EXPECT_THAT(study_answers(asked).error().message, HasSubstr("ratings are no times"));
  asked = {.base = question(), .worlds = {1, 2}};
  asked.base.tables =
      folder().written("huge.csv", "table,rows,dim,pooling\nbig,90000000000,128,1\n");
  EXPECT_THAT(study_answers(asked).error().message, HasSubstr("big"));
}

TEST(StudySweep, HasARowForEachValue) {
  SweepQuestion asked{.base = question(), .axis = "batch-per-gpu", .values = {"64", "4096"}};
  const auto rows = sweep_study(asked);
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_LT(rows->front().report->plans.front().cost(), rows->back().report->plans.front().cost());
  EXPECT_EQ(rows->back().report->loaded, rows->back().loaded.get());
  asked.values = {"many"};
  EXPECT_EQ(sweep_study(asked).error().message,
            "--values: expected values of batch-per-gpu, found many");
  asked.axis = "speed";
  EXPECT_THAT(sweep_study(asked).error().message, HasSubstr("values of speed"));
}

}  // namespace sharding_study_questions_test
}  // namespace perfmodel::sharding
