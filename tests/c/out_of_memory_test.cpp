// Memory that ends at the n-th allocation, for all n: every function of the C interface says so or
// succeeds, holds nothing back, and answers afterwards as before.
#include <gtest/gtest.h>
#include <perfmodel.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>

#include "failing_allocator.hpp"

namespace {

using failing_allocator::Failure;

constexpr const char* kGpu = "a100-sxm-40gb";

perfmodel_error error;

perfmodel_predictor* loaded() {
  perfmodel_config config = {};
  config.struct_size = sizeof config;
  config.gpus = &kGpu;
  config.gpu_count = 1;
  perfmodel_predictor* predictor = nullptr;
  EXPECT_EQ(perfmodel_predictor_load(1, &config, &predictor, &error), PERFMODEL_OK)
      << error.message;
  return predictor;
}

perfmodel_graph* built() {
  perfmodel_model model = {};
  model.struct_size = sizeof model;
  model.family = "dlrm";
  perfmodel_graph* graph = nullptr;
  EXPECT_EQ(perfmodel_graph_build(&model, &graph, &error), PERFMODEL_OK) << error.message;
  return graph;
}

perfmodel_totals asked(const perfmodel_predictor* predictor, const perfmodel_graph* graph,
                       std::int64_t batch) {
  perfmodel_options options = {};
  options.struct_size = sizeof options;
  options.batch = batch;
  perfmodel_totals totals = {};
  totals.struct_size = sizeof totals;
  EXPECT_EQ(perfmodel_predict(predictor, graph, kGpu, &options, &totals, &error), PERFMODEL_OK)
      << error.message;
  return totals;
}

// One attempt: calls one function, frees its result.
using Attempt = std::function<perfmodel_status()>;

// The next n to try: each one at first, then ever fewer, about 400 in a million.
std::size_t next(std::size_t n, std::size_t dense) { return n < dense ? n + 1 : n + n / 24 + 1; }

struct Trials {
  std::size_t failed = 0, succeeded = 0, allocations = 0;
};

void expect_safe(const char* what, const Attempt& attempt, const std::function<void()>& good,
                 std::size_t dense = 2000) {
  ASSERT_EQ(attempt(), PERFMODEL_OK) << what;
  good();
  // Memory that is kept for good (static tables, texts of the system's errors) is there after one
  // round.
  long before = 0;
  int rounds = 0;
  for (const Failure failure :
       {Failure::kOne, Failure::kAllFrom, Failure::kOne, Failure::kAllFrom}) {
    Trials trials;
    for (std::size_t n = 1;; n = next(n, dense)) {
      failing_allocator::arm(n, failure);
      const perfmodel_status status = attempt();
      const std::size_t allocations = failing_allocator::disarm();
      if (status == PERFMODEL_OK) {
        ++trials.succeeded;
      } else {
        ++trials.failed;
        // The system tells of a file or folder for which it has no memory that it cannot be opened.
        ASSERT_TRUE(status == PERFMODEL_ERROR_OUT_OF_MEMORY || status == PERFMODEL_ERROR_IO)
            << what << ", allocation " << n << ": " << error.message;
        if (status == PERFMODEL_ERROR_OUT_OF_MEMORY) {
          ASSERT_STREQ(error.message, "out of memory");
        }
      }
      if (n % 16 == 0 || n < 64) good();
      trials.allocations = allocations;
      if (allocations < n) break;  // none failed
    }
    good();
    if (++rounds == 2) before = failing_allocator::live();
    if (rounds > 2) {
      EXPECT_EQ(failing_allocator::live(), before) << what;
    }
    EXPECT_GT(trials.failed, 0U) << what;
    std::printf("%s: %zu allocations, %zu failures told, %zu survived\n", what, trials.allocations,
                trials.failed, trials.succeeded);
  }
}

class OutOfMemory : public testing::Test {
 protected:
  void SetUp() override {
    predictor_ = loaded();
    graph_ = built();
    ASSERT_TRUE(predictor_ && graph_);
    expected_ = asked(predictor_, graph_, 1024);
  }
  void TearDown() override {
    perfmodel_graph_free(graph_);
    perfmodel_predictor_free(predictor_);
  }
  void ask_again() {
    const perfmodel_totals again = asked(predictor_, graph_, 1024);
    EXPECT_EQ(std::memcmp(&again, &expected_, sizeof again), 0);
  }

  perfmodel_predictor* predictor_ = nullptr;
  perfmodel_graph* graph_ = nullptr;
  perfmodel_totals expected_ = {};
};

TEST_F(OutOfMemory, Load) {
  perfmodel_config config = {};
  config.struct_size = sizeof config;
  config.gpus = &kGpu;
  config.gpu_count = 1;
  expect_safe(
      "load",
      [&] {
        perfmodel_predictor* predictor = nullptr;
        const auto status = perfmodel_predictor_load(1, &config, &predictor, &error);
        EXPECT_EQ(predictor == nullptr, status != PERFMODEL_OK);
        failing_allocator::disarm();
        if (predictor != nullptr) {  // nothing was left out
          const perfmodel_totals totals = asked(predictor, graph_, 1024);
          EXPECT_EQ(std::memcmp(&totals, &expected_, sizeof totals), 0);
        }
        perfmodel_predictor_free(predictor);
        return status;
      },
      [&] { ask_again(); }, 100);
  perfmodel_predictor* predictor = loaded();
  const perfmodel_totals totals = asked(predictor, graph_, 1024);
  EXPECT_EQ(std::memcmp(&totals, &expected_, sizeof totals), 0);
  perfmodel_predictor_free(predictor);
}

TEST_F(OutOfMemory, Build) {
  perfmodel_model model = {};
  model.struct_size = sizeof model;
  model.family = "mlp";
  expect_safe(
      "build",
      [&] {
        perfmodel_graph* graph = nullptr;
        const auto status = perfmodel_graph_build(&model, &graph, &error);
        perfmodel_graph_free(graph);
        return status;
      },
      [&] { ask_again(); });
}

TEST_F(OutOfMemory, Parse) {
  const std::string text = R"json({"schema": "1.0.1", "pid": 1, "nodes": [
      {"name": "[pytorch|profiler|execution_graph|process]", "id": 1, "parent": 1, "inputs": [],
       "input_shapes": [], "input_types": [], "outputs": [], "output_shapes": [],
       "output_types": [], "rf_id": 0, "tid": 1, "fw_tid": 0, "scope": 7},
      {"name": "aten::relu", "id": 2, "parent": 1, "inputs": [[3, 4, 0, 8, 4, "cuda:0"]],
       "input_shapes": [[8]], "input_types": ["Tensor(float)"],
       "outputs": [[5, 6, 0, 8, 4, "cuda:0"]], "output_shapes": [[8]],
       "output_types": ["Tensor(float)"], "rf_id": 1, "tid": 1, "fw_tid": 0, "scope": 0}]})json";
  expect_safe(
      "parse",
      [&] {
        perfmodel_graph* graph = nullptr;
        const auto status = perfmodel_graph_parse(text.data(), text.size(), &graph, &error);
        perfmodel_graph_free(graph);
        return status;
      },
      [&] { ask_again(); });
}

TEST_F(OutOfMemory, Prepare) {
  expect_safe(
      "prepare",
      [&] {
        perfmodel_graph* prepared = nullptr;
        const auto status = perfmodel_graph_prepare(predictor_, graph_, &prepared, &error);
        perfmodel_graph_free(prepared);
        return status;
      },
      [&] { ask_again(); });
}

TEST_F(OutOfMemory, PredictPrepared) {
  perfmodel_graph* prepared = nullptr;
  ASSERT_EQ(perfmodel_graph_prepare(predictor_, graph_, &prepared, &error), PERFMODEL_OK);
  perfmodel_options options = {};
  options.struct_size = sizeof options;
  options.batch = 1024;
  expect_safe(
      "predict",
      [&] {
        perfmodel_totals totals = {};
        totals.struct_size = sizeof totals;
        const auto status =
            perfmodel_predict(predictor_, prepared, kGpu, &options, &totals, &error);
        EXPECT_EQ(totals.e2e_us > 0, status == PERFMODEL_OK);
        return status;
      },
      [&] {
        const perfmodel_totals again = asked(predictor_, prepared, 1024);
        EXPECT_EQ(std::memcmp(&again, &expected_, sizeof again), 0);
      });
  perfmodel_graph_free(prepared);
}

// The first question about a GPU allocates the memory of its prices: a predictor for each n.
TEST_F(OutOfMemory, FirstQuestion) {
  for (std::size_t n = 1; n < 40; ++n) {
    perfmodel_predictor* fresh = loaded();
    perfmodel_totals totals = {};
    totals.struct_size = sizeof totals;
    failing_allocator::arm(n, Failure::kOne);
    const auto status = perfmodel_predict(fresh, graph_, kGpu, nullptr, &totals, &error);
    failing_allocator::disarm();
    EXPECT_TRUE(status == PERFMODEL_OK || status == PERFMODEL_ERROR_OUT_OF_MEMORY);
    const perfmodel_totals again = asked(fresh, graph_, 1024);
    EXPECT_EQ(std::memcmp(&again, &expected_, sizeof again), 0);
    perfmodel_predictor_free(fresh);
  }
}

TEST_F(OutOfMemory, PredictInFull) {
  perfmodel_options options = {};
  options.struct_size = sizeof options;
  options.batch = 1024;
  options.keep_ops = 1;
  expect_safe(
      "predict in full",
      [&] {
        perfmodel_prediction* made = nullptr;
        const auto status =
            perfmodel_predict_full(predictor_, graph_, kGpu, &options, &made, &error);
        perfmodel_prediction_free(made);
        return status;
      },
      [&] { ask_again(); }, 300);
}

TEST_F(OutOfMemory, PredictMany) {
  perfmodel_question questions[4] = {};
  for (auto& question : questions) {
    question.struct_size = sizeof question;
    question.graph = graph_;
    question.gpu = kGpu;
  }
  for (const std::size_t threads : {1, 2}) {
    expect_safe(
        "predict many",
        [&] {
          perfmodel_totals totals[4] = {};
          perfmodel_status statuses[4] = {};
          totals[0].struct_size = sizeof totals[0];
          auto status = perfmodel_predict_many(predictor_, questions, 4, threads, nullptr, totals,
                                               statuses, nullptr, &error);
          for (std::size_t i = 0; i < 4 && status == PERFMODEL_OK; ++i) {
            EXPECT_EQ(totals[i].e2e_us > 0, statuses[i] == PERFMODEL_OK);
            status = statuses[i];
          }
          if (status == PERFMODEL_ERROR_OUT_OF_MEMORY) std::strcpy(error.message, "out of memory");
          return status;
        },
        [&] { ask_again(); }, 100);
  }
}

TEST_F(OutOfMemory, Cancel) {
  expect_safe(
      "cancel",
      [&] {
        perfmodel_cancel* cancel = nullptr;
        const auto status = perfmodel_cancel_create(&cancel, &error);
        perfmodel_cancel_request(cancel);
        perfmodel_cancel_free(cancel);
        return status;
      },
      [&] { ask_again(); });
}

// GPT-2 with two layers: a layer is priced once for each shard and remembered, so what fails is
// asked of a pricer of its own.
class LayoutsOutOfMemory : public OutOfMemory {
 protected:
  void SetUp() override {
    OutOfMemory::SetUp();
    job_.struct_size = sizeof job_;
    job_.model = "gpt2";
    job_.layers = 2;
    job_.global_batch = 16;
    layout_.struct_size = sizeof layout_;
    layout_.world = 2;
    layout_.tp = 2;
    pricer_ = pricer();
    ASSERT_TRUE(pricer_);
    answer_ = answer_of(pricer_);
  }
  void TearDown() override {
    perfmodel_layout_pricer_free(pricer_);
    OutOfMemory::TearDown();
  }
  perfmodel_layout_pricer* pricer() {
    perfmodel_layout_pricer* made = nullptr;
    EXPECT_EQ(perfmodel_layout_pricer_create(predictor_, kGpu, nullptr, &made, &error),
              PERFMODEL_OK)
        << error.message;
    return made;
  }
  perfmodel_layout_answer answer_of(const perfmodel_layout_pricer* of) {
    perfmodel_layout_answer answer = {};
    answer.struct_size = sizeof answer;
    EXPECT_EQ(perfmodel_layout_predict(of, &job_, &layout_, &answer, &error), PERFMODEL_OK)
        << error.message;
    return answer;
  }
  void ask_layout_again() {
    const perfmodel_layout_answer again = answer_of(pricer_);
    EXPECT_EQ(again.step_ms, answer_.step_ms);
    EXPECT_EQ(again.reserved_bytes, answer_.reserved_bytes);
  }

  perfmodel_layout_job job_ = {};
  perfmodel_layout layout_ = {};
  perfmodel_layout_pricer* pricer_ = nullptr;
  perfmodel_layout_answer answer_ = {};
};

TEST_F(LayoutsOutOfMemory, Create) {
  expect_safe(
      "layout pricer",
      [&] {
        perfmodel_layout_pricer* made = nullptr;
        const auto status =
            perfmodel_layout_pricer_create(predictor_, kGpu, nullptr, &made, &error);
        EXPECT_EQ(made == nullptr, status != PERFMODEL_OK);
        perfmodel_layout_pricer_free(made);
        return status;
      },
      [&] { ask_layout_again(); }, 100);
}

TEST_F(LayoutsOutOfMemory, Predict) {
  expect_safe(
      "layout",
      [&] {
        perfmodel_layout_answer answer = {};
        answer.struct_size = sizeof answer;
        const auto status = perfmodel_layout_predict(pricer_, &job_, &layout_, &answer, &error);
        EXPECT_EQ(answer.step_ms > 0, status == PERFMODEL_OK);
        return status;
      },
      [&] { ask_layout_again(); }, 200);
}

// Nothing half priced is remembered.
TEST_F(LayoutsOutOfMemory, FirstLayout) {
  for (std::size_t n = 1; n < 200'000; n += 1 + n / 3) {
    perfmodel_layout_pricer* const fresh = pricer();
    perfmodel_layout_answer answer = {};
    answer.struct_size = sizeof answer;
    failing_allocator::arm(n, Failure::kOne);
    const auto status = perfmodel_layout_predict(fresh, &job_, &layout_, &answer, &error);
    failing_allocator::disarm();
    EXPECT_TRUE(status == PERFMODEL_OK || status == PERFMODEL_ERROR_OUT_OF_MEMORY ||
                status == PERFMODEL_ERROR_IO)
        << error.message;
    EXPECT_EQ(answer_of(fresh).step_ms, answer_.step_ms) << n;
    perfmodel_layout_pricer_free(fresh);
  }
}

TEST_F(LayoutsOutOfMemory, Rank) {
  layout_.tp = 0;
  perfmodel_layout_answer warm[2] = {};
  warm[0].struct_size = sizeof warm[0];
  size_t found = 0;
  ASSERT_EQ(perfmodel_layout_rank(pricer_, &job_, &layout_, nullptr, warm, 2, &found, &error),
            PERFMODEL_OK)
      << error.message;
  layout_.tp = 2;
  expect_safe(
      "layouts in order",
      [&] {
        perfmodel_layout within = layout_;
        within.tp = 0;
        perfmodel_layout_answer best[2] = {};
        best[0].struct_size = sizeof best[0];
        size_t count = 0;
        const auto status =
            perfmodel_layout_rank(pricer_, &job_, &within, nullptr, best, 2, &count, &error);
        if (status == PERFMODEL_OK) {
          EXPECT_EQ(count, found);
          EXPECT_EQ(best[0].step_ms, warm[0].step_ms);
        }
        return status;
      },
      [&] { ask_layout_again(); }, 100);
}

}  // namespace
