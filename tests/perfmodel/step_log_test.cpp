// Step times from the lines that training programs print.
#include "step_log/step_log.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "../scratch.hpp"

namespace perfmodel {
namespace step_log_test {

using ::testing::HasSubstr;

StepLog log_of(const std::string& text, const StepLogOptions& options = {}) {
  auto log = read_step_log_text(text, "a.log", options);
  EXPECT_TRUE(log.has_value()) << (log ? "" : log.error().message);
  return log.value_or(StepLog{});
}

std::string refusal(const std::string& text, const StepLogOptions& options = {}) {
  const auto log = read_step_log_text(text, "a.log", options);
  return log ? "none" : to_string(log.error());
}

std::vector<std::int64_t> steps_of(const StepLog& log) {
  std::vector<std::int64_t> steps;
  for (const LoggedStep& step : log.steps) steps.push_back(step.step);
  return steps;
}

std::string megatron_line(int step, double ms, int batch = 64, int skipped = 0) {
  return fmt::format(
      " [2024-05-14 10:11:12] iteration {:8}/     500 | consumed samples:          640 | elapsed "
      "time per iteration (ms): {:.1f} | throughput per GPU (TFLOP/s/GPU): 412.3 | learning rate: "
      "1.500000E-06 | global batch size: {:5} | lm loss: 1.045231E+01 | loss scale: 1.0 | grad "
      "norm: 12.313 | number of skipped iterations: {:3} | number of nan iterations:   0 |\n",
      step, ms, batch, skipped);
}

TEST(StepLog, MegatronSaysEveryTenthStep) {
  const StepLog log = log_of(
      "training ...\n" + megatron_line(10, 9000, 32) + megatron_line(20, 8000) +
      megatron_line(30, 4211.3) + megatron_line(40, 4190, 64, 1) + megatron_line(50, 4200.1) +
      "saving checkpoint at iteration      50 to /ckpt in torch_dist format\n"
      "  successfully saved checkpoint from iteration      50 to /ckpt\n" +
      megatron_line(60, 5200) + megatron_line(70, 4205) +
      " validation loss at iteration 70 | lm loss value: 9.1E+00 | lm loss PPL: 9E+03 | \n" +
      megatron_line(80, 4999) + megatron_line(90, 4207) +
      " [2024-05-14 10:11:12] iteration      100/     500 | consumed samples:  640 | elapsed "
      "time per iteration (ms): 42");
  EXPECT_EQ(log.program, "Megatron-LM");
  EXPECT_EQ(log.steps_per_record, 10);
  EXPECT_EQ(steps_of(log), (std::vector<std::int64_t>{30, 50, 70, 90}));
  EXPECT_NEAR(log.median_us(), 4206e3, 1);
  EXPECT_NEAR(log.resolution_us, 100, 1e-6);
  EXPECT_EQ(
      left_out_text(log),
      "step 10 (of another batch size), step 20 (warm-up), step 40 (skipped), step 60 (after "
      "a checkpoint), step 80 (after an evaluation), step 100 (the log ends within its line)");
}

TEST(StepLog, NanotronPrintsThreeDigits) {
  std::string text;
  for (int i = 1; i <= 5; ++i) {
    text += fmt::format(
        "05/14/2024 10:11:1{} [INFO|DP=0|PP=0|TP=0|ip-26-0-1]: iteration: {} / 100 | "
        "consumed_tokens: 10.5M | elapsed_time_per_iteration_ms: 1.2{}K | tokens_per_sec: 850K | "
        "tokens_per_sec_per_gpu: 13.3K | global_batch_size: 1.02K | lm_loss: 10.9 | lr: 0.0003\n",
        i, i, i);
  }
  const StepLog log = log_of(text);
  EXPECT_EQ(log.program, "nanotron");
  EXPECT_EQ(steps_of(log), (std::vector<std::int64_t>{2, 3, 4, 5}));
  EXPECT_NEAR(log.steps[0].us, 1.22e6, 1);
  EXPECT_NEAR(log.resolution_us, 1e4, 1e-3);
  ASSERT_EQ(log.warnings.size(), 1U);
  EXPECT_EQ(log.warnings[0], "times are printed to 0.8 % of a step");
}

// Two ranks print, the terminal's colours are on; 8192 tokens a step at 2 s.
std::string torchtitan_text(const std::string& stamp_end) {
  std::string text;
  for (int i = 1; i <= 6; ++i) {
    for (int rank = 0; rank < 2; ++rank) {
      text += fmt::format(
          "[rank{}]:[titan] 2025-06-05 15:57:{:02}{} - root - INFO - \x1b[31mstep: {:2}  "
          "\x1b[32mloss:  8.1880  \x1b[38;2;180;60;0mgrad_norm:  1.30  \x1b[33mmemory: "
          "47.56GiB(50.03%)  \x1b[34mtps: 4,096  \x1b[36mtflops: 1.10  \x1b[35mmfu: "
          "0.11%\x1b[39m\n",
          rank, 2 * i, stamp_end, i);
    }
    if (i == 3) {
      text +=
          "[rank0]:[titan] 2025-06-05 15:57:06,100 - root - INFO - Saving the checkpoint\n"
          "[rank0]:[titan] 2025-06-05 15:57:06,200 - root - INFO - \x1b[32mvalidate step:  3  "
          "loss: 8.1  memory: 47.56GiB(50.03%)  tps: 9,999\n";
    }
  }
  return text;
}

TEST(StepLog, RatesOfTorchtitanBecomeTimesByItsStamps) {
  const StepLog log = log_of(torchtitan_text(",098"));
  EXPECT_EQ(log.program, "torchtitan");
  EXPECT_EQ(steps_of(log), (std::vector<std::int64_t>{2, 3, 5, 6}));
  EXPECT_NEAR(log.median_us(), 2e6, 1);
  ASSERT_TRUE(log.work_per_step.has_value());
  EXPECT_NEAR(*log.work_per_step, 8192, 1e-6);
  EXPECT_THAT(left_out_text(log), HasSubstr("6 records (of another rank)"));
  EXPECT_THAT(left_out_text(log), HasSubstr("step 4 (after an evaluation)"));
}

TEST(StepLog, RatesAloneAreNoTimes) {
  EXPECT_THAT(refusal(torchtitan_text("")),
              HasSubstr("expected time stamps in milliseconds next to the rates of torchtitan"));
  const StepLog log = log_of(torchtitan_text(""), {.work_per_step = 4096});
  EXPECT_NEAR(log.median_us(), 1e6, 1);
  EXPECT_NEAR(log.resolution_us, 1e6 / 4096, 1e-3);
}

TEST(StepLog, DeepSpeedShowsSamplesOfItsBatch) {
  std::string text =
      "[2024-05-14 10:11:12,345] [INFO] [config.py:1000:print]   train_batch_size ............. "
      "256\n";
  for (int step = 10; step <= 40; step += 10) {
    text += fmt::format(
        "[2024-05-14 10:11:12,345] [INFO] [timer.py:264:stop] epoch=0/micro_step={0}/"
        "global_step={0}, RunningAvgSamplesPerSec=25.3, CurrSamplesPerSec=128.0, "
        "MemAllocated=1.2GB, MaxMemAllocated=5.6GB\n",
        step);
  }
  const StepLog log = log_of(text);
  EXPECT_EQ(log.program, "DeepSpeed");
  EXPECT_NEAR(log.median_us(), 2e6, 1);
  EXPECT_EQ(log.steps.size(), 3U);
}

TEST(StepLog, PipelinesOfDeepSpeedAndNemoSayTimes) {
  std::string pipeline, nemo;
  for (int i = 1; i <= 4; ++i) {
    pipeline +=
        fmt::format("steps: {} loss: 5.1234 iter time (s): 1.25{} samples/sec: 207.5\n", i, i);
    nemo += fmt::format(
        "Training epoch 0, iteration {}/99 | lr: 2.699e-06 | global_batch_size: 512 | global_step: "
        "{} | reduced_train_loss: 11.03 | train_step_timing in s: 4.52 | consumed_samples: 5120\n",
        i, i);
  }
  EXPECT_NEAR(log_of(pipeline).median_us(), 1.253e6, 1);
  EXPECT_EQ(log_of(nemo).program, "NeMo");
  EXPECT_NEAR(log_of(nemo).median_us(), 4.52e6, 1);
}

TEST(StepLog, TheTrainersBarIsReadAndItsEvaluationsAreNot) {
  const StepLog log = log_of(
      "Loading checkpoint shards: 100%|##########| 4/4 [00:10<00:00,  2.5s/it]\n"
      "  0%|          | 0/1000 [00:00<?, ?it/s]\r"
      "  0%|          | 1/1000 [00:05<1:23:20,  5.01s/it]\r"
      "  0%|          | 2/1000 [00:06<20:34,  1.25s/it]\r"
      "  0%|          | 3/1000 [00:07<20:34,  1.25it/s, loss=2.1]\r"
      "{'loss': 2.1234, 'grad_norm': 1.2, 'learning_rate': 5e-05, 'epoch': 0.01}\n"
      "  0%|          | 3/1000 [00:07<20:34,  1.25it/s]\r"
      " 50%|#####     | 5/10 [00:01<00:01,  4.00it/s]\r"
      "  0%|          | 4/1000 [00:19<20:34,  3.25s/it]\r"
      "  0%|          | 5/1000 [00:20<20:34,  1.20s/it]\r");
  EXPECT_EQ(log.program, "Hugging Face Trainer");
  EXPECT_EQ(steps_of(log), (std::vector<std::int64_t>{2, 3, 5}));
  EXPECT_NEAR(log.steps[1].us, 0.8e6, 1);
  EXPECT_EQ(left_out_text(log), "step 1 (warm-up), step 4 (after an evaluation)");
  EXPECT_THAT(refusal("{'loss': 2.1, 'learning_rate': 5e-05, 'epoch': 0.01}\n"),
              HasSubstr("trainer_state.json"));
}

TEST(StepLog, AStepThatARestartRepeatsIsNamedOnce) {
  const StepLog log{.left_out = {{"warm-up", {1, 1}}, {"after a checkpoint", {4, 9, 4}}}};
  EXPECT_EQ(left_out_text(log), "step 1 (warm-up), step 4 and 9 (after a checkpoint)");
}

TEST(StepLog, TrainerStateHasOneMeanOrTheStepTimesOfTrl) {
  const StepLog mean = log_of(
      R"({"global_step": 100, "log_history": [{"loss": 2, "step": 50},
          {"eval_loss": 2, "eval_runtime": 20.0, "step": 100},
          {"train_loss": 2, "train_runtime": 220.0, "step": 100}]})");
  ASSERT_EQ(mean.steps.size(), 1U);
  EXPECT_NEAR(mean.steps[0].us, 2e6, 1);
  EXPECT_EQ(mean.steps_per_record, 100);
  EXPECT_THAT(mean.warnings.at(0), HasSubstr("1 record says how long 100 steps took"));
  const StepLog trl = log_of(
      R"({"log_history": [{"step_time": 9, "step": 1}, {"step_time": 2.5, "step": 2},
          {"step_time": 2.5, "step": 3}, {"step_time": 2.6, "step": 4}]})");
  EXPECT_NEAR(trl.median_us(), 2.5e6, 1);
  EXPECT_EQ(left_out_text(trl), "step 1 (warm-up)");
}

TEST(StepLog, TablesAndNumbersHaveUnits) {
  EXPECT_NEAR(log_of("step,loss,step_time_ms\n1,2,900\n2,2,412\n3,2,412\n4,2,412\n").median_us(),
              412e3, 1e-6);
  EXPECT_NEAR(log_of("time\n9\n4\n4\n4\n", {.unit = "s"}).median_us(), 4e6, 1);
  EXPECT_NEAR(log_of("# steps\n0.9s\n412 ms\n0.412s\n412000us\n").median_us(), 412e3, 1e-6);
  EXPECT_NEAR(log_of("900\n412\n412\n412", {.unit = "ms"}).median_us(), 412e3, 1e-6);
  // As numpy.savetxt writes them.
  const StepLog savetxt = log_of("9.00e-01\n4.12e-01\n4.12e-01\n4.12e-01\n", {.unit = "s"});
  EXPECT_NEAR(savetxt.median_us(), 412e3, 1e-6);
  EXPECT_NEAR(savetxt.resolution_us, 1e3, 1e-9);
  EXPECT_THAT(refusal("412\n413\n"), HasSubstr("expected a unit for numbers alone"));
  EXPECT_THAT(refusal("1,412\n2,413\n", {.unit = "ms"}), HasSubstr("found none"));
  EXPECT_THAT(refusal("412ms\n412,5ms\n"), HasSubstr("a.log:2: expected a time above 0"));
  EXPECT_THAT(refusal("412ms\n-3ms\n"), HasSubstr("a.log:2: expected a time above 0"));
  EXPECT_THAT(refusal("step_ms,wall_s\n1,2\n"), HasSubstr("found step_ms, wall_s"));
  EXPECT_THAT(refusal("step,tokens_per_s\n1,2\n"), HasSubstr("found none"));
  EXPECT_THAT(refusal("step_ms\nnan\n"), HasSubstr("a time above 0"));
  EXPECT_THAT(refusal("0.1us\n1000000000000s\n"), HasSubstr("found 1e+18 us at step 1"));
}

TEST(StepLog, TwoRecordsAreTooFew) {
  EXPECT_EQ(log_of("412ms\n413ms\n").warnings.size(), 1U);
  EXPECT_TRUE(log_of("900ms\n880ms\n412ms\n412ms\n").warnings.empty());
  EXPECT_TRUE(log_of("900ms\n412ms\n412ms\n").warnings.empty());
}

TEST(StepLog, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(refusal("epoch 1 done\nepoch 2 done\n"),
              HasSubstr("expected step times of Megatron-LM, nanotron"));
  EXPECT_THAT(refusal(""), HasSubstr("expected step times"));
  EXPECT_THAT(refusal("{\"nodes\": []}"), HasSubstr("expected a log_history, found none"));
  EXPECT_THAT(refusal(" iteration 10/ 50 | elapsed time per iteration (ms): nan |\n"),
              HasSubstr("a.log:1: expected a positive number after"));
}

TEST(StepLog, AJobThatStartsAgainWarmsUpAgain) {
  std::string text;
  for (int run = 0; run < 2; ++run) {
    for (int step = 1; step <= 4; ++step) text += megatron_line(step, step == 1 ? 900 : 400 + step);
  }
  const StepLog log = log_of(text);
  EXPECT_EQ(steps_of(log), (std::vector<std::int64_t>{2, 3, 4, 2, 3, 4}));
  EXPECT_EQ(left_out_text(log), "step 1 (warm-up)");
}

TEST(StepLog, ToldFromGraphsByTheirBeginning) {
  const auto file = [](const std::string& name, const std::string& text) {
    const std::string path = test_support::scratch_file(name);
    std::ofstream(path, std::ios::binary) << text;
    return path;
  };
  EXPECT_TRUE(is_step_log(file("a.log", "[2024-05-14] [INFO]\n")));
  EXPECT_TRUE(is_step_log(file("a.json", "{\"epoch\": 1, \"log_history\": []}")));
  EXPECT_FALSE(is_step_log(file("b.json", "{\"nodes\": []}")));
  EXPECT_FALSE(is_step_log(file("c.json", "[ {\"ph\": \"X\"} ]")));
  EXPECT_FALSE(is_step_log(file("d.json.gz", "\x1f\x8b\x08")));
  EXPECT_FALSE(is_step_log("nowhere.log"));
}

}  // namespace step_log_test
}  // namespace perfmodel
