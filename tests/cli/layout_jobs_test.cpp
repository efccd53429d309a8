// perfpredict layout and memory of the job files of tests/jobs, which are written after public
// ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "program.hpp"

namespace perfmodel::test_support {
namespace layout_jobs_test {

using ::testing::HasSubstr;
using ::testing::Not;

std::string job(const std::string& name) {
  return (fs::path(PERFMODEL_SOURCE_DIR) / "tests/jobs" / name).string();
}

struct JobCase {
  std::string file;
  Words more;   // flags with the job
  Words flags;  // that say the same without it
};

std::vector<JobCase> job_cases() {
  const Words llama70 = {"--layers",    "80", "--hidden",       "8192",  "--heads", "64",
                         "--kv-heads",  "8",  "--feed-forward", "28672", "--gated", "--no-tied",
                         "--positions", "0",  "--sequence",     "4096"};
  return {
      {"torchtitan.toml",
       {"--gpu", "h100-sxm-80gb", "--world", "8"},
       {"llama3-8b", "--gpu", "h100-sxm-80gb", "--world", "8", "--software", "torchtitan",
        "--micro-batch", "1", "--global-batch", "8", "--sequence", "8192", "--zero", "fsdp",
        "--recompute", "op", "--compiled"}},
      {"megatron.sh",
       {"--gpu", "a100-sxm-80gb"},
       {"--layers",       "96",     "--hidden",       "12288", "--heads",       "96",
        "--feed-forward", "49152",  "--vocabulary",   "51200", "--positions",   "2048",
        "--no-gated",     "--tied", "--sequence",     "2048",  "--gpu",         "a100-sxm-80gb",
        "--world",        "128",    "--global-batch", "1536",  "--micro-batch", "1",
        "--precision",    "fp16",   "--zero",         "1",     "--recompute",   "full",
        "--tp",           "8",      "--pp",           "16",    "--vp",          "2"}},
      {"megatron.log",
       {"--gpu", "h100-sxm-80gb"},
       with(llama70, {"--vocabulary", "32768", "--head-width", "128", "--gpu", "h100-sxm-80gb",
                      "--world", "64", "--global-batch", "256", "--micro-batch", "1", "--zero", "1",
                      "--tp", "8", "--pp", "4"})},
      {"nemo1.yaml",
       {"--gpu", "a100-sxm-80gb"},
       with(llama70, {"--vocabulary",  "32256", "--gpu",          "a100-sxm-80gb",
                      "--world",       "64",    "--global-batch", "128",
                      "--micro-batch", "1",     "--zero",         "1",
                      "--tp",          "4",     "--pp",           "4",
                      "--vp",          "5",     "--recompute",    "selective",
                      "--software",    "nemo"})},
      {"nemo2.yaml",
       {"--gpu", "h100-sxm-80gb"},
       {"llama3-8b", "--gpu", "h100-sxm-80gb", "--world", "8", "--global-batch", "128",
        "--micro-batch", "1", "--cp", "2", "--zero", "1", "--grad-dtype", "bf16", "--software",
        "nemo"}},
      {"primus.yaml",
       {"--gpu", "mi300x", "--world", "8"},
       {"mixtral-8x7b", "--gpu", "mi300x", "--world", "8", "--global-batch", "256", "--micro-batch",
        "2", "--sequence", "4096", "--ep", "8", "--zero", "1"}},
      {"axolotl.yaml",
       {"--gpu", "l40s", "--world", "4"},
       {"llama3-8b", "--gpu",         "l40s", "--world",       "4",    "--global-batch",
        "32",        "--micro-batch", "2",    "--sequence",    "4096", "--lora",
        "32",        "--lora-on",     "all",  "--frozen-bits", "4",    "--zero",
        "fsdp",      "--recompute",   "full"}},
      {"llama_factory.yaml",
       {"--gpu", "h100-sxm-80gb", "--world", "8"},
       {"llama3-8b", "--gpu", "h100-sxm-80gb", "--world", "8", "--global-batch", "16",
        "--micro-batch", "1", "--sequence", "2048", "--zero", "3", "--recompute", "full",
        "--software", "deepspeed"}},
      {"swift.sh",
       {"--gpu", "a100-sxm-80gb"},
       {"qwen2.5-7b",
        "--gpu",
        "a100-sxm-80gb",
        "--world",
        "4",
        "--global-batch",
        "64",
        "--micro-batch",
        "1",
        "--sequence",
        "2048",
        "--lora",
        "8",
        "--lora-on",
        "all",
        "--zero",
        "2",
        "--recompute",
        "full",
        "--software",
        "deepspeed"}},
      {"deepspeed.json",
       {"llama2-7b", "--gpu", "a100-sxm-80gb", "--world", "8", "--global-batch", "16"},
       {"llama2-7b", "--gpu", "a100-sxm-80gb", "--world", "8", "--global-batch", "16", "--zero",
        "3", "--software", "deepspeed"}},
  };
}

// Asks `layout` about the job alone, or about a model with --job.
Json answer_of(const JobCase& one) {
  const bool has_model = !one.more.front().starts_with("--");
  const Words first =
      has_model ? Words{"layout", "eval", "--job", job(one.file)} : Words{"layout", job(one.file)};
  return json_of(with(first, one.more));
}

TEST(LayoutJobs, AnswerAsFlagsDo) {
  for (const JobCase& one : job_cases()) {
    SCOPED_TRACE(one.file);
    const Json by_job = answer_of(one);
    const Json by_flags = json_of(with({"layout", "eval"}, one.flags));
    ASSERT_EQ(by_job["layouts"].size(), 1u);
    EXPECT_EQ(by_job["layouts"], by_flags["layouts"]);
    EXPECT_EQ(by_job["model"], by_flags["model"]);
    EXPECT_EQ(by_job["software"], by_flags["software"]);
    EXPECT_TRUE(by_job["job"]["understood"].size() > 0);
  }
}

std::vector<std::string> keys_of(const Json& lines) {
  std::vector<std::string> keys;
  for (const Json& line : lines) keys.push_back(line["key"]);
  return keys;
}

TEST(LayoutJobs, SayWhatBecomesOfEachSetting) {
  const Json titan = answer_of(job_cases()[0])["job"];
  EXPECT_EQ(titan["format"], "torchtitan");
  EXPECT_THAT(keys_of(titan["ignored"]), ::testing::Contains("metrics.log_freq"));
  EXPECT_TRUE(titan["not_modelled"].empty());
  EXPECT_TRUE(titan["unknown"].empty());
  const Json megatron = answer_of(job_cases()[1])["job"];
  ASSERT_EQ(megatron["unknown"].size(), 1u);
  EXPECT_EQ(megatron["unknown"][0]["key"], "some_new_flag");
  EXPECT_EQ(megatron["unknown"][0]["line"], 40);  // where the command begins
  const std::string text = output_of({"layout", job("megatron.sh"), "--gpu", "a100-sxm-80gb"});
  EXPECT_THAT(text, HasSubstr("unknown       some_new_flag = 3"));
  EXPECT_THAT(text, HasSubstr("vp 2: 96 layers / (16 stages x 3)"));
  expect_narrow(text);
}

// The same few settings in each syntax of a trainer.
TEST(LayoutJobs, HaveOneMeaningInAllSyntaxes) {
  const std::string sizes = " --num-layers=8 --hidden-size 1024 --num-attention-heads 8 ";
  const std::pair<const char*, std::string> megatron[] = {
      {"line.txt", "torchrun --nproc_per_node 8 pretrain_gpt.py --bf16" + sizes +
                       "--seq-length 1024 --max-position-embeddings 1024 --vocab-size 32000 "
                       "--micro-batch-size 2 --tensor-model-parallel-size 2"},
      {"script.sh", "TP=\"2\"\nexport N=${N:-8}\nSIZES='" + sizes +
                        "'\ntorchrun --nproc_per_node $((4*2)) pretrain_gpt.py $SIZES --bf16 \\\n"
                        "  --seq-length 1024 --max-position-embeddings 1024 --vocab-size 32000 \\\n"
                        "  --micro-batch-size 2 --tensor-model-parallel-size $TP | tee log"},
      {"megatron.yml",
       "language_model:\n  num_layers: 8\n  hidden_size: 1024\n"
       "  num_attention_heads: 8\nmodel_parallel:\n"
       "  tensor_model_parallel_size: 2\nseq_length: 1024\n"
       "max_position_embeddings: 1024\nvocab_size: 32000\n"
       "micro_batch_size: 2\nworld_size: 8\nbf16: yes\n"}};
  Json first;
  for (const auto& [name, text] : megatron) {
    SCOPED_TRACE(name);
    const Json json = json_of({"layout", written(name, text), "--gpu", "h100-sxm-80gb"});
    EXPECT_EQ(json["layouts"][0]["tp"], 2);
    EXPECT_EQ(json["global_batch"], 8);
    EXPECT_EQ(json["model"]["vocabulary"], 32000);  // a multiple of 128 x 2
    if (first.is_null()) first = json["layouts"];
    EXPECT_EQ(json["layouts"], first);
  }
  const std::string json =
      R"({"model": {"name": "llama3", "flavor": "8B"}, "compile": {"enable": true},
    "training": {"local_batch_size": 1, "seq_len": 8192}, "activation_checkpoint": {"mode": "selective"}})";
  const Words more = {"--gpu", "h100-sxm-80gb", "--world", "8"};
  EXPECT_EQ(json_of(with({"layout", written("titan.json", json)}, more))["layouts"],
            json_of(with({"layout", job("torchtitan.toml")}, more))["layouts"]);
}

TEST(LayoutJobs, AnswersSayThatLayersAreCompiled) {
  const std::string text =
      output_of({"layout", job("torchtitan.toml"), "--gpu", "h100-sxm-80gb", "--world", "8"});
  EXPECT_THAT(text, HasSubstr("bf16, compiled, flash attention"));
}

TEST(LayoutJobs, AreToldFromModelsByName) {
  const Words more = {"--gpu", "h100-sxm-80gb", "--world", "8", "--global-batch", "8"};
  expect_error(with({"layout", "nosuch.toml"}, more), 1,
               "nosuch.toml: expected a readable training job");
  written("gpt2-xl", "no job");
  const std::string inside = "cd '" + scratch().string() + "' &&";
  EXPECT_THAT(output_of(with({"layout", "gpt2-xl"}, more), inside), HasSubstr("48 layers of 1600"));
}

TEST(LayoutJobs, FlagsCountBeforeTheFile) {
  const Words words = {"layout", job("torchtitan.toml"), "--gpu", "h100-sxm-80gb", "--world",
                       "8",      "--recompute",          "full"};
  const Json json = json_of(words);
  EXPECT_EQ(json["layouts"][0]["recompute"], "full");
  EXPECT_THAT(keys_of(json["job"]["overridden"]),
              ::testing::Contains("activation_checkpoint.mode"));
  EXPECT_THAT(output_of(words), HasSubstr("flags instead  activation_checkpoint.mode"));
}

TEST(LayoutJobs, RankSearchesOtherLayoutsOfTheSameJob) {
  const Json json = json_of({"layout", "rank", job("nemo2.yaml"), "--gpu", "h100-sxm-80gb",
                             "--micro-batch", "1", "--zero", "1"});
  EXPECT_GT(json["layouts"].size(), 1u);
  EXPECT_EQ(json["global_batch"], 128);
  EXPECT_EQ(json["gpus"], 8);
}

Json layout_of_job(const std::string& name, const std::string& text, const Words& more = {}) {
  return json_of(with({"layout", written(name, text), "--gpu", "h100-sxm-80gb", "--world", "8"},
                      more))["layouts"][0];
}

const std::string kMegatron =
    "pretrain_gpt.py --bf16 --num-layers 8 --hidden-size 1024 --num-attention-heads 8 --swiglu "
    "--position-embedding-type rope --seq-length 1024 --max-position-embeddings 1024 "
    "--vocab-size 32000 --micro-batch-size 2";

// A log names all settings, those too that do not count.
TEST(LayoutJobs, BackendsCountOfTheFlexibleDispatcherAlone) {
  const std::string sizes = kMegatron +
                            " --num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 512 "
                            "--expert-model-parallel-size 8";
  const std::string backend = " --moe-flex-dispatcher-backend deepep";
  const auto dispatcher = [&](const std::string& more) {
    return layout_of_job("experts.txt", sizes + more)["dispatcher"];
  };
  const std::string type = " --moe-token-dispatcher-type ";
  EXPECT_EQ(dispatcher(type + "alltoall" + backend), "alltoall");
  EXPECT_EQ(dispatcher(type + "allgather" + backend), dispatcher(""));
  EXPECT_EQ(dispatcher(type + "flex" + backend), "deepep");
  EXPECT_EQ(dispatcher(type + "flex"), "deepep");
  EXPECT_EQ(dispatcher(" --moe-enable-deepep"), "deepep");
  EXPECT_EQ(dispatcher(type + "flex --moe-flex-dispatcher-backend hybridep --moe-enable-deepep"),
            "hybridep");
  EXPECT_EQ(layout_of_job("experts.txt", sizes + type + "flex",
                          {"--dispatcher", "alltoall"})["dispatcher"],
            "alltoall");
}

TEST(LayoutJobs, PutPartsIntoHostMemoryTogether) {
  EXPECT_EQ(
      layout_of_job("host.txt", kMegatron + " --fine-grained-activation-offloading "
                                            "--optimizer-cpu-offload --cpu-offloading")["offload"],
      "optimizer+activations");
  const std::string axolotl =
      "base_model: NousResearch/Meta-Llama-3-8B\nmicro_batch_size: 1\nsequence_len: 2048\n"
      "gradient_accumulation_steps: 1\nbf16: true\n";
  const Json layout = layout_of_job(
      "host.yaml",
      axolotl + "gradient_checkpointing: offload\nfsdp:\n  - full_shard\n  - offload\n");
  EXPECT_EQ(layout["offload"], "optimizer+parameters+activations");
  EXPECT_EQ(layout["recompute"], "full");
  EXPECT_EQ(layout["zero"], "fsdp");
}

TEST(LayoutJobs, DeepSpeedPutsParametersIntoHostMemory) {
  const std::string optimizer = R"("offload_optimizer": {"device": "cpu"}, )";
  const auto settings = [](const std::string& more) {
    return R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
               "zero_optimization": {"stage": 3, )" +
           more + R"("offload_param": {"device": "cpu"}}})";
  };
  const Words words = {"layout", "eval", "llama2-7b", "--gpu", "h100-sxm-80gb", "--world", "8"};
  const std::string file = written("parameters.json", settings(optimizer));
  EXPECT_EQ(json_of(with(words, {"--job", file}))["layouts"][0]["offload"], "optimizer+parameters");
  expect_error(with(words, {"--job", written("alone.json", settings(""))}), 1,
               "offload_param.device: expected the optimizer in host memory with its parameters");
}

TEST(LayoutJobs, PutPartsOfTheOptimizerElsewhere) {
  const std::string part = kMegatron + " --optimizer-offload-fraction 0.5";
  const Json gpu = layout_of_job("part.txt", kMegatron);
  EXPECT_EQ(layout_of_job("part.txt", part)["optimizer_gb"], gpu["optimizer_gb"]);
  const Json half = layout_of_job("part.txt", part + " --optimizer-cpu-offload");
  EXPECT_EQ(half["offload"], "optimizer");
  EXPECT_NEAR(half["optimizer_gb"].get<double>(), gpu["optimizer_gb"].get<double>() / 2, 0.01);
  const std::string file = written(
      "drives.json", R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3,
      "offload_optimizer": {"device": "nvme", "nvme_path": "/drives", "pipeline_read": false}}})");
  const Words words = {"layout",  "eval", "llama2-7b", "--gpu", "h100-sxm-80gb",
                       "--world", "8",    "--job",     file};
  expect_error(words, 1, "offload optimizer-nvme: expected nvme_gb_per_s");
  EXPECT_EQ(json_of(with(words, {"--nvme-gb-per-s", "6"}))["layouts"][0]["offload"],
            "optimizer-nvme");
}

void expect_refused(const std::string& name, const std::string& text, const std::string& message) {
  expect_error({"layout", written(name, text), "--gpu", "h100-sxm-80gb", "--world", "8"}, 1,
               message);
}

const std::string kTitan =
    "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 1\n";

TEST(LayoutJobs, LeaveOutOverlapWhereNothingIsThereToHide) {
  const std::string async = "[parallelism]\nenable_async_tensor_parallel = true\n";
  const auto with_tp = [&](const char* tp) {
    return layout_of_job("async.toml", kTitan + async + "tensor_parallel_degree = " + tp + "\n");
  };
  EXPECT_EQ(with_tp("1")["async_tp"], false);
  EXPECT_EQ(with_tp("2")["async_tp"], true);
  const std::string overlap =
      kMegatron + " --nproc_per_node 4 --nnodes 2 --tp-comm-overlap --tensor-model-parallel-size ";
  const std::string splits = " --sequence-parallel";
  EXPECT_EQ(layout_of_job("async.txt", overlap + "4" + splits)["async_tp"], true);
  EXPECT_EQ(layout_of_job("async.txt", overlap + "4")["async_tp"], false);
  EXPECT_EQ(layout_of_job("async.txt", overlap + "8" + splits)["async_tp"], false);
  expect_error({"layout", written("one.toml", kTitan), "--gpu", "h100-sxm-80gb", "--world", "8",
                "--async-tp"},
               1, "async_tp: expected tp above 1");
}

TEST(LayoutJobs, OwnSettingsHideThoseOfMergedMaps) {
  const std::string own =
      "base_model: NousResearch/Meta-Llama-3-8B\nbf16: true\nmicro_batch_size: 2\n";
  const Json plain =
      layout_of_job("plain.yaml", own + "sequence_len: 4096\ngradient_accumulation_steps: 4\n");
  const std::string maps =
      "late: &late\n  sequence_len: 512\n  gradient_accumulation_steps: 4\n"
      "early: &early\n  micro_batch_size: 1\n  sequence_len: 4_096\n";
  EXPECT_EQ(layout_of_job("merged.yaml", maps + own + "<<: [*early, *late]\n"), plain);
  EXPECT_EQ(layout_of_job("first.yaml", maps + "<<: [*early, *late]\n" + own), plain);
  EXPECT_EQ(layout_of_job("nested.yaml", maps + "both: &both\n  <<: *late\n  sequence_len: 4096\n" +
                                             "<<: *both\n" + own),
            plain);
  expect_refused("number.yaml", own + "<<: 3\n", "settings with plain keys");
  std::string map = "map: &map\n", aliases;
  for (int i = 0; i < 2000; ++i) {
    map += "  setting" + std::to_string(i) + ": 1\n";
    aliases += "*map, ";
  }
  expect_refused("often.yaml", map + own + "<<: [" + aliases + "]\n", "settings with plain keys");
}

TEST(LayoutJobs, RefuseWhatContradictsItself) {
  expect_refused("tp.toml", kTitan + "[parallelism]\ntensor_parallel_degree = 3\n",
                 "world: expected GPUs that tp 3 x pp 1 x cp 1 divide, found 8");
  expect_refused("shards.toml", kTitan + "[parallelism]\ndata_parallel_shard_degree = 4\n",
                 "shards.toml:7: parallelism.data_parallel_shard_degree: expected shards and "
                 "replicas that make up 8 data parallel ranks (8 GPUs / 1), found 4 x 1");
  expect_refused("flavor.toml", "[model]\nname = \"llama3\"\nflavor = \"9B\"\n",
                 "flavor.toml:3: model.flavor: expected a known model, or a config.json or its "
                 "folder, found \"llama3-9B\"");
  expect_refused("batch.json",
                 R"({"train_batch_size": 33, "train_micro_batch_size_per_gpu": 2,
                     "gradient_accumulation_steps": 2})",
                 "MODEL: expected a model with --job");
  expect_error({"layout", "eval", "llama3-8b", "--job", scratch_file("batch.json"), "--gpu",
                "h100-sxm-80gb", "--world", "8"},
               1,
               "train_batch_size: expected 32 sequences (2 x 2 microbatches x 8 data parallel "
               "ranks), found 33");
  expect_refused("twice.sh", "#!/bin/sh\npretrain_gpt.py --num-layers 2\nx --num-layers 4\n",
                 "twice.sh:3: --num_layers: expected one value, found \"4\" and, in line 2, \"2\"");
}

TEST(LayoutJobs, RefuseWhatIsNoJob) {
  expect_refused("empty.toml", "", "expected the settings of a training job, found an empty file");
  expect_refused("bad.toml", "[training\nseq_len = 1\n", "bad.toml:1");
  expect_refused("bad.yaml", "base_model: [a\n", "bad.yaml:");
  expect_refused("array.toml", kTitan + "[ =]\n", "expected bare key starting character");
  expect_refused("list.yaml", "- a\n- b\n", "expected YAML: keys with values");
  expect_refused("other.yaml", "image: debian\nscript: make\n",
                 "found none of their settings but image, script");
  expect_refused("type.toml", kTitan + "seq_len = \"long\"\n",
                 "type.toml:6: training.seq_len: expected N for sequence, found \"long\"");
  expect_refused("mode.toml", kTitan + "[activation_checkpoint]\nmode = \"some\"\n",
                 "mode.toml:7: activation_checkpoint.mode: expected one of none, full, selective, "
                 "found \"some\"");
  expect_refused("list.toml", kTitan + "seq_len = [1, 2]\n",
                 "expected what training.seq_len says too, 1 for sequence, found 2");
  expect_refused(
      "variable.sh", "#!/bin/sh\npretrain_gpt.py --num-layers $LAYERS --hidden-size 64\n",
      "variable.sh:2: num_layers: expected a whole number of at least 1, found \"$LAYERS\"");
  expect_error({"layout", job("torchtitan.toml"), "--gpu", "h100-sxm-80gb"}, 1,
               "--world: expected the number of GPUs, which the job does not say");
}

TEST(MemoryJobs, HaveTheMemoryOfTheirLayout) {
  const Json memory = json_of({"memory", job("nemo2.yaml"), "--gpu", "h100-sxm-80gb"});
  const Json layout = json_of({"layout", job("nemo2.yaml"), "--gpu", "h100-sxm-80gb"});
  EXPECT_EQ(memory["fits"], layout["layouts"][0]["fits"]);
  EXPECT_NEAR(memory["peak_reserved_bytes"].get<double>(),
              1e9 * layout["layouts"][0]["memory_gb"].get<double>(), 1e5);
  EXPECT_EQ(memory["by_purpose"], layout["layouts"][0]["memory_parts_bytes"]);
  EXPECT_EQ(memory["job"]["format"], "NeMo 2");
  EXPECT_THAT(output_of({"memory", job("nemo2.yaml"), "--gpu", "h100-sxm-80gb"}),
              HasSubstr("GB reserved"));
  expect_error({"memory", job("nemo2.yaml")}, 1, "expected --gpu with a job, found none");
}

// As transformers writes Llama 2's.
std::string llama_config(const std::string& more = "") {
  return written("config.json", R"({"model_type": "llama", "hidden_size": 2048, "vocab_size": 32000,
    "intermediate_size": 5632, "num_attention_heads": 32, "num_key_value_heads": 4,
    "num_hidden_layers": 22, "max_position_embeddings": 2048)" +
                                    more + "}");
}

TEST(ModelConfigs, AreBuiltAsPresetsAre) {
  const std::string config = llama_config();
  const Words batch = {"--batch", "2", "-o", scratch_file("graph.json")};
  const Json read = json_of(with({"build", "llama", "--preset", config}, batch));
  const Json known = json_of(with({"build", "llama", "--preset", "tinyllama-1.1b"}, batch));
  for (const char* key : {"parameters", "matrix_flop", "nodes"}) EXPECT_EQ(read[key], known[key]);
  const Json memory = json_of({"memory", config, "--gpu", "h100-sxm-80gb"});
  output_of({"build", "llama", "--preset", config, "-o", scratch_file("graph.json")});
  const Json of_graph = json_of({"memory", scratch_file("graph.json"), "--gpu", "h100-sxm-80gb"});
  EXPECT_EQ(memory["peak_allocated_bytes"], of_graph["peak_allocated_bytes"]);
  expect_error({"build", "gpt", "--preset", config, "-o", scratch_file("graph.json")}, 1,
               "expected the config.json of a gpt, found one of a llama");
  const std::string wide = llama_config(R"(, "head_dim": 128)");
  expect_error({"build", "llama", "--preset", wide, "-o", scratch_file("graph.json")}, 1,
               "found heads of another width (`build decoder` writes them)");
  const Json of_wide = json_of(with({"build", "decoder", "--preset", wide}, batch));
  // Queries and results of 32 more heads' worth, keys and values of 4.
  EXPECT_EQ(of_wide["parameters"],
            known["parameters"].get<std::int64_t>() + 22 * 2048 * 64 * (2 * 32 + 2 * 4));
}

}  // namespace layout_jobs_test
}  // namespace perfmodel::test_support
