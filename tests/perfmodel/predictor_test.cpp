#include "perfmodel/predictor.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "../scratch.hpp"
#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictors/detail/collective_model.hpp"
#include "predictor_cases.hpp"

namespace perfmodel {
namespace test_support {

std::string digest(const Prediction& p) {
  std::string text = fmt::format("{:a} {:a} {:a} {:a} {:a} {:a} {:a} {:a}", p.e2e_us,
                                 p.gpu_active_us, p.gpu_idle_us, p.cpu_us, p.wait_us,
                                 p.kernel_sum_us, p.comm_kernel_us, p.communication.exposed_us);
  for (double us : p.terms_us) text += fmt::format(" {:a}", us);
  text += fmt::format(" {:a} {} {}", p.coverage.modelled_time_fraction,
                      p.coverage.kernels_out_of_range, p.coverage.inferred_kernels);
  for (const PredictedOp& op : p.ops) {
    text += fmt::format("\n{} {} {:a} {:a}", op.id, op.name, op.start_us, op.host_us);
    for (const PredictedKernel& kernel : op.kernels) {
      text +=
          fmt::format(" {}:{:a}:{}", kernel.name, kernel.price.time.count(), kernel.price.model);
    }
  }
  for (const auto& host : p.host_sensitivity) {
    text += fmt::format(" {}:{:a}", host.scale, host.e2e_us);
  }
  for (const std::string& warning : p.warnings) text += "\n" + warning;
  return text;
}

std::string digest(const Result<Prediction>& answer) {
  return answer ? digest(*answer) : "error: " + to_string(answer.error());
}

}  // namespace test_support

namespace predictor_test {

using test_support::digest;
using test_support::mixed_question;
using test_support::MixedQuestion;
using ::testing::HasSubstr;

std::size_t stress_count(const char* variable, std::size_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

class PredictorTest : public ::testing::Test {
 protected:
  PredictorTest()
      : predictor_(Predictor::load(test_support::few_gpus()).value()),
        graphs_(test_support::few_graphs()) {
    for (const ExecutionGraph& graph : graphs_) {
      prepared_.push_back(predictor_.prepare(graph).value());
    }
  }

  Result<Prediction> ask(const MixedQuestion& question) const {
    return question.prepared
               ? predictor_.predict(prepared_[question.graph], question.gpu, question.options)
               : predictor_.predict(graphs_[question.graph], question.gpu, question.options);
  }

  Predictor predictor_;
  std::vector<ExecutionGraph> graphs_;
  std::vector<PreparedGraph> prepared_;
};

// The prediction of the parts put together by hand, without cache and kept facts.
Result<Prediction> by_hand(const ExecutionGraph& graph, std::string_view name,
                           const AskOptions& options) {
  const auto data = test_support::source_data();
  const Gpu gpu = find_gpu(name, data / "gpus").value();
  const auto overheads = OverheadTables(data).choose("", gpu).value();
  const auto chosen = choose_kernel_models("learned", data).value();
  KernelModels models = chosen.models;
  const Topology topology = options.topology.empty()
                                ? topology_for(gpu)
                                : TopologyCatalog::builtin().find(options.topology).value();
  const auto collectives = make_collective_model(topology, {.interference = options.interference});
  models.set(KernelFamily::kCollective, collectives.get());
  ExecutionGraph asked = graph;
  if (options.batch) asked = set_batch_size(asked, {.batch = options.batch}).value();
  if (options.sequence) asked = set_sequence_length(asked, {.length = options.sequence}).value();
  PredictOptions given{
      .models = &models, .world_size = options.world, .keep_ops = options.keep_ops};
  if (options.strategy) {
    given.scale_out = ScaleOut{.world = options.world,
                               .strategy = *options.strategy,
                               .topology = &topology,
                               .interference = options.interference};
  }
  auto made = predict(asked, gpu, *overheads.table, given);
  if (made && !overheads.warning.empty()) {
    made->warnings.insert(made->warnings.begin(), overheads.warning);
  }
  if (!made || made->graph) return made;
  for (PredictedOp& op : made->ops) {  // names must outlive the graph
    for (const Node& node : graph.nodes) {
      if (node.id == op.id) op.name = graph.name(node);
    }
  }
  return made;
}

TEST_F(PredictorTest, AnswersAreThoseOfPredictToTheBit) {
  const AskOptions cases[] = {
      {.keep_ops = true},
      {.batch = 96, .keep_ops = true},
      {.world = 16, .topology = "dgx-a100", .strategy = ParallelStrategy::kDdp, .keep_ops = true},
      {.batch = 128, .world = 8, .strategy = ParallelStrategy::kDdp, .interference = 1.5},
  };
  for (const ExecutionGraph& graph : graphs_) {
    const auto prepared = predictor_.prepare(graph).value();
    for (std::string_view gpu : {"a100-sxm-40gb", "mi250", "t4"}) {
      for (const AskOptions& options : cases) {
        const auto expected = by_hand(graph, gpu, options);
        auto answer = predictor_.predict(graph, gpu, options);
        if (answer && !options.topology.empty() && gpu != "a100-sxm-40gb") {
          EXPECT_THAT(answer->warnings, ::testing::Contains(HasSubstr("is not built with")));
          std::erase_if(answer->warnings,
                        [](const auto& text) { return text.starts_with("topology "); });
        }
        ASSERT_EQ(digest(answer), digest(expected)) << gpu;
        const auto again = predictor_.predict(prepared, gpu, options);
        EXPECT_EQ(again.value().e2e_us, expected.value().e2e_us);
        EXPECT_EQ(again->ops.size(), expected->ops.size());
      }
    }
  }
}

TEST_F(PredictorTest, PreparedGraphsAnswerAsPlainOnes) {
  for (std::size_t g = 0; g < graphs_.size(); ++g) {
    for (std::int64_t batch : {0, 1, 7, 512, 4096, 100'000}) {
      const AskOptions options{.batch = batch, .keep_ops = true};
      EXPECT_EQ(digest(predictor_.predict(prepared_[g], "h100-sxm-80gb", options)),
                digest(predictor_.predict(graphs_[g], "h100-sxm-80gb", options)))
          << g << " batch " << batch;
    }
  }
}

TEST_F(PredictorTest, TimesAloneAreThoseOfTheWholeAnswer) {
  for (const std::int64_t batch : {0, 512}) {
    const auto whole = predictor_.predict(prepared_[0], "t4", {.batch = batch}).value();
    const auto times =
        predictor_.predict(prepared_[0], "t4", {.batch = batch, .times_only = true}).value();
    EXPECT_EQ(times.e2e_us, whole.e2e_us);
    EXPECT_EQ(times.terms_us, whole.terms_us);
    EXPECT_EQ(times.gpu_active_us, whole.gpu_active_us);
    EXPECT_EQ(times.energy_j, whole.energy_j);
    EXPECT_LT(whole.e2e_low_us, whole.e2e_us);
    EXPECT_EQ(times.e2e_low_us, times.e2e_us);
    EXPECT_GT(whole.memory.needed_bytes(), 0);
    EXPECT_EQ(times.memory.needed_bytes(), 0);
  }
}

TEST_F(PredictorTest, TheHostsTimeAloneIsThatOfTheWholeAnswer) {
  const auto overheads = OverheadTables(test_support::source_data()).choose("", {}).value();
  const Gpu gpu = predictor_.gpu("h100-sxm-80gb").value();
  for (const ExecutionGraph& graph : graphs_) {
    const double whole = predict(graph, gpu, *overheads.table).value().cpu_us;
    EXPECT_GT(whole, 0);
    EXPECT_DOUBLE_EQ(predict_host_us(graph, gpu, *overheads.table).value(), whole);
  }
}

// A prepared graph keeps the tasks of the last question for the next one.
TEST_F(PredictorTest, TheQuestionBeforeChangesNothing) {
  const std::pair<std::string_view, AskOptions> questions[] = {
      {"h100-sxm-80gb", {.batch = 512, .keep_ops = true}},
      {"h100-sxm-80gb", {.batch = 64, .times_only = true}},
      {"h100-sxm-80gb", {.batch = 100}},
      {"h100-sxm-80gb", {.batch = 1, .device_scale = 2}},
      {"h100-sxm-80gb", {.batch = 4000}},
      {"h100-sxm-80gb", {}},
      {"a100-sxm-40gb", {.batch = 64}},
      {"a100-sxm-40gb", {.batch = 65536, .keep_ops = true}},
      {"a100-sxm-40gb", {.batch = 65536, .host_scale = 0.5}},
      {"a100-sxm-40gb", {.batch = 4, .keep_ops = true}},
      {"mi250", {.keep_ops = true}},
      {"mi250", {.world = 8, .strategy = ParallelStrategy::kDdp}},
      {"h100-sxm-80gb", {.batch = 512, .host_sensitivity = true}},
      {"h100-sxm-80gb", {.batch = 64, .host_sensitivity = true}},
      {"h100-sxm-80gb", {.batch = 32, .host_sensitivity = true}}};
  for (std::size_t g = 0; g < graphs_.size(); ++g) {
    for (const auto& [gpu, options] : questions) {
      const auto alone = predictor_.prepare(graphs_[g]).value();
      const auto first = predictor_.predict(alone, gpu, options);
      const auto later = predictor_.predict(prepared_[g], gpu, options);
      ASSERT_EQ(digest(later), digest(first)) << g << " on " << gpu;
      if (!first) continue;
      EXPECT_EQ(later->e2e_low_us, first->e2e_low_us);
      EXPECT_EQ(later->e2e_high_us, first->e2e_high_us);
      EXPECT_EQ(later->energy_j, first->energy_j);
    }
  }
}

TEST_F(PredictorTest, SequencesChangeToo) {
  const auto shorter = predictor_.predict(prepared_[2], "h100-sxm-80gb", {.sequence = 128});
  const auto longer =
      predictor_.predict(prepared_[2], "h100-sxm-80gb", {.batch = 16, .sequence = 512});
  ASSERT_TRUE(shorter && longer);
  EXPECT_LT(shorter->gpu_active_us, longer->gpu_active_us);
  EXPECT_EQ(digest(longer),
            digest(by_hand(graphs_[2], "h100-sxm-80gb", {.batch = 16, .sequence = 512})));
}

// Apex reduces after the backward pass, where nothing hides it, and copies each gradient.
TEST_F(PredictorTest, DelayedGradientsAreReducedInTheOpen) {
  AskOptions asked{.world = 8, .strategy = ParallelStrategy::kDdp};
  const auto buckets = predictor_.predict(prepared_[2], "h100-sxm-80gb", asked).value();
  asked.delay_allreduce = true;
  const auto delayed = predictor_.predict(prepared_[2], "h100-sxm-80gb", asked).value();
  EXPECT_GT(delayed.communication.exposed_us, buckets.communication.exposed_us);
  EXPECT_EQ(delayed.scaled_out->collectives, 1U);  // all gradients are of one type
  EXPECT_EQ(predictor_.predict(graphs_[2], "h100-sxm-80gb", asked)->e2e_us, delayed.e2e_us);
  asked.strategy = ParallelStrategy::kFsdp;
  EXPECT_EQ(predictor_.predict(prepared_[2], "t4", asked).error().message,
            "delay_allreduce: expected the strategy ddp, found fsdp");
}

TEST_F(PredictorTest, GpusAreFoundByNameAliasTitleInAnyCase) {
  const double expected = predictor_.predict(prepared_[0], "h100-sxm-80gb").value().e2e_us;
  for (std::string_view name :
       {"H100-SXM-80GB", "NVIDIA H100 80GB HBM3", "nvidia h100 80gb hbm3"}) {
    EXPECT_EQ(predictor_.predict(prepared_[0], name).value().e2e_us, expected) << name;
  }
  EXPECT_THAT(predictor_.gpus(),
              ::testing::ElementsAre("a100-sxm-40gb", "h100-sxm-80gb", "mi250", "t4"));
  EXPECT_EQ(predictor_.gpu("T4").value().vendor, "nvidia");
}

TEST_F(PredictorTest, SaysFirstThatNobodyKnowsTheArchitecture) {
  std::ifstream in(test_support::source_data() / "gpus" / "h100-sxm-80gb.json");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const std::string known = "\"architecture\": \"hopper\"";
  text.replace(text.find(known), known.size(), "\"architecture\": \"rubin\", \"like\": \"hopper\"");
  const auto file = test_support::scratch() / "like.json";
  std::ofstream(file) << text;
  const auto predictor =
      Predictor::load({.data = test_support::source_data(), .gpus = {file.string()}}).value();
  std::filesystem::remove(file);

  const auto asked = predictor.predict(graphs_[0], "h100-sxm-80gb", {.keep_ops = true}).value();
  const auto overheads = OverheadTables(test_support::source_data()).choose("", {}).value();
  const auto gpu = predictor.gpu("h100-sxm-80gb").value();
  const auto plain = predict(graphs_[0], gpu, *overheads.table, {.keep_ops = true}).value();
  for (const Prediction* made : {&asked, &plain}) {
    ASSERT_FALSE(made->warnings.empty());
    EXPECT_EQ(made->warnings[0],
              "architecture rubin of h100-sxm-80gb is not known: hopper stands in, and every price "
              "of a kernel is out of range");
    EXPECT_EQ(std::ranges::count(made->warnings, made->warnings[0]), 1);
    std::size_t kernels = 0;
    for (const PredictedOp& op : made->ops) {
      for (const auto& kernel : op.kernels) {
        EXPECT_FALSE(kernel.price.in_range) << op.name;
        ++kernels;
      }
    }
    EXPECT_GT(kernels, 0u);
    EXPECT_EQ(made->coverage.kernels_out_of_range, kernels);
  }
}

TEST_F(PredictorTest, RefusesWhatItCannotAnswer) {
  const auto message = [](const auto& answer) { return to_string(answer.error()); };
  const auto unknown = predictor_.predict(graphs_[0], "h10");
  EXPECT_EQ(unknown.error().code, ErrorCode::kUnknownName);
  EXPECT_THAT(message(unknown), HasSubstr("found \"h10\"; the nearest known are"));
  EXPECT_THAT(message(unknown), HasSubstr("h100-sxm-80gb"));
  // Known, but not loaded.
  EXPECT_EQ(predictor_.predict(graphs_[0], "v100-sxm2-16gb").error().code, ErrorCode::kUnknownName);
  EXPECT_THAT(message(predictor_.predict(graphs_[0], "t4", {.topology = "dgx"})),
              HasSubstr("expected the name of a known topology"));
  EXPECT_THAT(message(predictor_.predict(graphs_[0], "t4", {.topology = "/etc/passwd"})),
              HasSubstr("expected the name of a known topology"));
  EXPECT_THAT(message(predictor_.predict(prepared_[0], "t4", {.batch = -5})),
              HasSubstr("expected a batch from 1 to 2^40, found -5"));
  EXPECT_THAT(message(predictor_.predict(prepared_[1], "t4", {.interference = 0.5})),
              HasSubstr("expected an interference of at least 1, found 0.5"));
  EXPECT_THAT(message(predictor_.predict(prepared_[1], "t4", {.world = -1})),
              HasSubstr("expected at least 0 ranks, found -1"));
  EXPECT_THAT(message(predictor_.predict(graphs_[0], "t4",
                                         {.world = 0, .strategy = ParallelStrategy::kDdp})),
              HasSubstr("expected at least 1 rank, found 0"));
  EXPECT_THAT(message(predictor_.prepare(ExecutionGraph{.source = "empty.json"})),
              HasSubstr("empty.json: expected at least one op, found none"));
  EXPECT_THAT(message(predictor_.predict(ExecutionGraph{}, "t4")),
              HasSubstr("expected at least one op"));
  EXPECT_THAT(message(Predictor::load({.data = test_support::source_data(), .gpus = {"h10"}})),
              HasSubstr("h100"));
  EXPECT_FALSE(Predictor::load({.data = "/nowhere"}));
  EXPECT_FALSE(Predictor::load({.data = test_support::source_data(), .models = "/nowhere.json"}));
  EXPECT_FALSE(
      Predictor::load({.data = test_support::source_data(), .overheads = "/nowhere.json"}));

  const auto other = Predictor::load(test_support::few_gpus()).value();
  EXPECT_THAT(message(other.predict(prepared_[0], "t4")),
              HasSubstr("expected a graph that this predictor prepared"));
}

// Model files are read when a kernel needs them: a broken one is an error of the answer then, never
// a silent step back to the heuristic.
TEST_F(PredictorTest, ABrokenModelFileIsAnErrorOnceItIsNeeded) {
  namespace fs = std::filesystem;
  const fs::path data = test_support::scratch() / "predictor_models";
  fs::create_directories(data / "models");
  for (const char* part : {"gpus", "architectures", "overheads", "topologies"}) {
    fs::create_directory_symlink(test_support::source_data() / part, data / part);
  }
  std::ofstream(data / "models" / "gemm-float32.json") << "{\"schema\": ";
  std::ofstream(data / "models" / "convolution-float32.json") << "{\"schema\": ";
  PredictorConfig config = test_support::few_gpus();
  config.data = data;
  const auto lazy = Predictor::load(config);
  config.read_models = true;
  const auto early = Predictor::load(config);
  ASSERT_TRUE(lazy) << to_string(lazy.error());
  EXPECT_FALSE(early);
  for (int i = 0; i < 2; ++i) {  // nor is it forgotten
    const auto answer = lazy->predict(graphs_[0], "a100-sxm-40gb");
    ASSERT_FALSE(answer);
    EXPECT_THAT(to_string(answer.error()), HasSubstr("gemm-float32.json"));
  }
  fs::remove_all(data);
}

TEST_F(PredictorTest, ManyQuestionsAreAnsweredInTheirOrder) {
  std::vector<Question> questions;
  for (std::int64_t batch = 64; batch <= 64 * 40; batch += 64) {
    questions.push_back(
        {.prepared = &prepared_[0], .gpu = "a100-sxm-40gb", .options = {.batch = batch}});
  }
  questions[5].gpu = "nothing";
  questions[7].graph = &graphs_[0];
  questions[9].prepared = nullptr;
  for (std::size_t threads : {1, 2, 5}) {
    std::size_t told = 0;
    const auto answers =
        predictor_.predict_many(questions, {.threads = threads, .progress = [&](std::size_t count) {
                                              EXPECT_EQ(count, told + 1);
                                              told = count;
                                            }});
    ASSERT_TRUE(answers);
    ASSERT_EQ(answers->size(), questions.size());
    EXPECT_EQ(told, questions.size());
    for (std::size_t i = 0; i < questions.size(); ++i) {
      if (i == 5 || i == 7 || i == 9) {
        EXPECT_FALSE((*answers)[i]) << i;
        continue;
      }
      EXPECT_EQ(digest((*answers)[i]),
                digest(predictor_.predict(graphs_[0], "a100-sxm-40gb", questions[i].options)));
    }
    EXPECT_THAT(to_string((*answers)[7].error()), HasSubstr("found two"));
    EXPECT_THAT(to_string((*answers)[9].error()), HasSubstr("found none"));
  }
  EXPECT_THAT(to_string(predictor_.predict_many({}).error()),
              HasSubstr("expected at least one question, found none"));
}

TEST_F(PredictorTest, QuestionsOwnTheirNames) {
  static_assert(std::is_same_v<decltype(Question::gpu), std::string>);
  static_assert(std::is_same_v<decltype(AskOptions::topology), std::string>);
  std::vector<Question> questions;
  for (const std::string_view gpu : {"a100-sxm-40gb", "t4"}) {
    std::string name(gpu), topology = "dgx-a100";
    questions.push_back(
        {.graph = &graphs_[1],
         .gpu = name,
         .options = {.world = 16, .topology = topology, .strategy = ParallelStrategy::kDdp}});
    name.assign(name.size(), '?');  // the caller may change its own strings
    topology.assign(topology.size(), '?');
  }
  const auto answers = predictor_.predict_many(questions).value();
  EXPECT_EQ(digest(answers[0]),
            digest(predictor_.predict(graphs_[1], "a100-sxm-40gb", questions[0].options)));
  EXPECT_EQ(digest(answers[1]), digest(predictor_.predict(graphs_[1], "t4", questions[1].options)));
  EXPECT_EQ(questions[1].options.topology, "dgx-a100");
}

TEST_F(PredictorTest, CanBeCancelled) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(predictor_.predict(graphs_[0], "t4", {.cancel = stop.get_token()}).error().code,
            ErrorCode::kCancelled);
  EXPECT_EQ(predictor_.predict(prepared_[0], "t4", {.batch = 96, .cancel = stop.get_token()})
                .error()
                .code,
            ErrorCode::kCancelled);

  // In the middle: what was answered stays.
  std::stop_source middle;
  const std::vector<Question> questions(50, {.prepared = &prepared_[0], .gpu = "t4"});
  const auto answers = predictor_.predict_many(
      questions, {.cancel = middle.get_token(), .progress = [&](std::size_t answered) {
                    if (answered == 20) middle.request_stop();
                  }});
  ASSERT_TRUE(answers);
  for (std::size_t i = 0; i < questions.size(); ++i) {
    EXPECT_EQ((*answers)[i].has_value(), i < 20) << i;
    if (i >= 20) {
      EXPECT_EQ((*answers)[i].error().code, ErrorCode::kCancelled);
    }
  }
}

TEST_F(PredictorTest, RemembersPricesWithinItsBound) {
  EXPECT_EQ(predictor_.cache_report().bytes, 0U);  // nothing asked yet
  predictor_.predict(prepared_[0], "t4").value();
  const auto first = predictor_.cache_report();
  EXPECT_GT(first.misses, 50U);
  EXPECT_EQ(first.bytes, (std::size_t{1} << 12) * PriceCache::kEntryBytes);
  predictor_.predict(prepared_[0], "t4").value();
  EXPECT_EQ(predictor_.cache_report().misses, first.misses);
  for (std::int64_t batch = 1; batch <= 400; ++batch) {
    predictor_.predict(prepared_[0], "t4", {.batch = batch}).value();
  }
  EXPECT_EQ(predictor_.cache_report().bytes, first.bytes);
  EXPECT_LE(predictor_.cache_report().prices, std::size_t{1} << 12);

  PredictorConfig config = test_support::few_gpus();
  config.cached_prices = 0;
  const auto forgetful = Predictor::load(config).value();
  EXPECT_EQ(digest(forgetful.predict(graphs_[0], "t4", {.keep_ops = true})),
            digest(predictor_.predict(graphs_[0], "t4", {.keep_ops = true})));
  EXPECT_EQ(forgetful.cache_report().bytes, 0U);
}

TEST_F(PredictorTest, GraphsOutliveNothingTheyNeed) {
  std::optional<PreparedGraph> job;
  {
    const auto predictor = Predictor::load(test_support::few_gpus()).value();
    job = predictor.prepare(graphs_[0]).value();
  }
  EXPECT_EQ(job->batch(), 2048);  // the predictor is gone, its data is not
  EXPECT_EQ(job->graph().nodes.size(), graphs_[0].nodes.size());
}

TEST_F(PredictorTest, Explains) {
  const auto detailed =
      predictor_.predict(prepared_[0], "a100-sxm-40gb", {.batch = 512, .keep_ops = true}).value();
  const Explanation explained = predictor_.explain(detailed).value();
  EXPECT_TRUE(explained.from_critical_path);
  EXPECT_EQ(explained.bound, "host");
  double path = 0, kernels = 0;
  for (const auto& part : explained.path) path += part.us;
  for (const auto& part : explained.kernels) kernels += part.us;
  EXPECT_NEAR(path, detailed.e2e_us, 1e-6 * detailed.e2e_us);
  EXPECT_NEAR(kernels, detailed.kernel_sum_us, 1e-6 * detailed.kernel_sum_us);
  EXPECT_THAT(explained.text, HasSubstr("of the critical path is the host"));

  const auto brief = predictor_.predict(prepared_[0], "a100-sxm-40gb", {.batch = 512}).value();
  const Explanation guessed = predictor_.explain(brief).value();
  EXPECT_FALSE(guessed.from_critical_path);
  EXPECT_EQ(guessed.bound, "host");
  EXPECT_EQ(guessed.kernels_out_of_range, explained.kernels_out_of_range);
  EXPECT_TRUE(guessed.path.empty());
  // Large batches keep the GPU busy.
  const auto busy =
      predictor_.predict(prepared_[0], "t4", {.batch = 65'536, .keep_ops = true}).value();
  EXPECT_NE(predictor_.explain(busy).value().bound, "host");
  EXPECT_EQ(predictor_.explain(Prediction{}).value().text, "The step takes no time.");
}

// PERFMODEL_STRESS_QUERIES asks for more: 100,000 with ThreadSanitizer is the figure to show.
TEST_F(PredictorTest, MixedQuestionsFromEightThreadsAreAnsweredAlike) {
  constexpr std::size_t kThreads = 8, kDistinct = 500;
  const std::size_t queries = stress_count("PERFMODEL_STRESS_QUERIES", 2'000);
  // One thread, in order, and a predictor that was asked nothing else.
  std::vector<std::size_t> expected(kDistinct);
  for (std::size_t i = 0; i < kDistinct; ++i) {
    expected[i] = std::hash<std::string>{}(digest(ask(mixed_question(i))));
  }
  const Predictor fresh = Predictor::load(test_support::few_gpus()).value();
  std::vector<PreparedGraph> prepared;
  for (const ExecutionGraph& graph : graphs_) prepared.push_back(fresh.prepare(graph).value());
  std::atomic<std::size_t> next = 0, wrong = 0, refused = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < queries; i = next++) {
      const std::size_t number = i * 7919 % kDistinct;  // another order
      const MixedQuestion question = mixed_question(number);
      const auto answer =
          question.prepared
              ? fresh.predict(prepared[question.graph], question.gpu, question.options)
              : fresh.predict(graphs_[question.graph], question.gpu, question.options);
      refused += !answer;
      wrong += std::hash<std::string>{}(digest(answer)) != expected[number];
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < kThreads; ++i) threads.emplace_back(work);
  threads.clear();
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(refused, queries / 20);  // the mix holds both kinds
  EXPECT_LT(refused, queries / 2);
}

#ifndef PERFMODEL_SANITIZED  // sanitizers keep freed memory
std::size_t resident_bytes() {
  std::size_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// PERFMODEL_STRESS_CALLS asks for more: 1,000,000 is the figure to show.
TEST_F(PredictorTest, MemoryStaysFlat) {
  const std::size_t calls = stress_count("PERFMODEL_STRESS_CALLS", 6'000);
  std::size_t warm = 0, most = 0, least = ~std::size_t{0};
  for (std::size_t i = 0; i < calls; ++i) {
    const auto batch = static_cast<std::int64_t>(1 + i % 1'000);
    ASSERT_TRUE(predictor_.predict(prepared_[i % 3], i % 2 == 0 ? "t4" : "h100-sxm-80gb",
                                   {.batch = batch, .keep_ops = i % 16 == 0}));
    if (i + 1 == calls / 4) warm = resident_bytes();
    if (i + 1 > calls / 4 && i % 1'000 == 0) {
      most = std::max(most, resident_bytes());
      least = std::min(least, resident_bytes());
    }
  }
  std::printf("resident: %.1f MiB after a quarter, then %.1f to %.1f\n",
              static_cast<double>(warm) / 0x1p20, static_cast<double>(least) / 0x1p20,
              static_cast<double>(most) / 0x1p20);
  EXPECT_LT(static_cast<double>(most), 1.02 * static_cast<double>(warm));
  EXPECT_GT(static_cast<double>(least), 0.98 * static_cast<double>(warm));
}
#endif

}  // namespace predictor_test
}  // namespace perfmodel
