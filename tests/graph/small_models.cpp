#include "small_models.hpp"

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/rewrites/training.hpp"

namespace perfmodel::test_support {

std::map<std::string, ExecutionGraph> small_models() {
  std::map<std::string, ExecutionGraph> models;
  for (const bool on_gpu : {true, false}) {
    TrainingOptions training;
    if (!on_gpu) training.pytorch.device = {.kind = Device::Kind::kCpu};
    const std::string device = on_gpu ? "_gpu" : "_cpu";

    MlpConfig mlp{.widths = {8, 16, 4}, .batch = 2, .training = training};
    models["mlp" + device] = build_mlp(mlp).value();

    DlrmConfig dlrm{.bottom_mlp = {4, 8},
                    .top_mlp = {11, 1},
                    .tables = {{100, 8, 2}, {50, 8, 1}},
                    .batch = 2,
                    .table_batched = false,
                    .training = training};
    models["dlrm" + device] = build_dlrm(dlrm).value();

    BertConfig bert = bert_preset("bert-base").value();
    bert.layers = 2;
    bert.hidden = 8;
    bert.heads = 2;
    bert.feed_forward = 16;
    bert.vocabulary = 50;
    bert.batch = 2;
    bert.sequence = 4;
    bert.training.pytorch = training.pytorch;
    models["bert" + device] = build_bert(bert).value();

    for (const RecurrentCell cell : {RecurrentCell::kLstm, RecurrentCell::kGru}) {
      const LstmConfig recurrent{.cell = cell,
                                 .form = RecurrentForm::kUnfused,
                                 .vocabulary = 6,
                                 .embedding = 4,
                                 .hidden = 4,
                                 .layers = 1,
                                 .dropout = 0,
                                 .batch = 2,
                                 .steps = 2,
                                 .training = training};
      models[(cell == RecurrentCell::kLstm ? "lstm" : "gru") + device] =
          build_lstm(recurrent).value();
    }

    ResnetConfig resnet = resnet_preset("resnet18").value();
    resnet.batch = 1;
    resnet.training.pytorch = training.pytorch;
    models["resnet" + device] = build_resnet(resnet).value();
  }

  // Few ops, yet wide enough for products in 8 and 4 bits and for activations that are offloaded.
  GptConfig gpt = gpt_preset("gpt2").value();
  gpt.layers = 2;
  gpt.hidden = 256;
  gpt.heads = 4;
  gpt.feed_forward = 512;
  gpt.vocabulary = 1024;
  gpt.batch = 64;
  gpt.sequence = gpt.positions = 128;
  models["gpt_gpu"] = build_gpt(gpt).value();

  // Attention in single ops, in a type and a width that every attention kernel has.
  gpt.layers = 1;
  gpt.batch = 2;
  gpt.sequence = gpt.positions = 16;
  models["gpt_bf16_gpu"] =
      rewrite_precision(build_gpt(gpt).value(), {.precision = PrecisionOptions::Precision::kBf16})
          .value();

  LlamaConfig llama = llama_preset("llama-7b").value();
  llama.layers = 1;
  llama.hidden = 8;
  llama.heads = llama.kv_heads = 2;
  llama.feed_forward = 16;
  llama.vocabulary = 50;
  llama.batch = 2;
  llama.sequence = 4;
  models["llama_gpu"] = build_llama(llama).value();

  const Seq2seqConfig translation{.bidirectional = false,
                                  .source_vocabulary = 20,
                                  .target_vocabulary = 30,
                                  .embedding = 8,
                                  .hidden = 8,
                                  .attention = 8,
                                  .encoder_layers = 1,
                                  .decoder_layers = 1,
                                  .batch = 2,
                                  .source_steps = 3,
                                  .target_steps = 2};
  models["seq2seq_gpu"] = build_seq2seq(translation).value();
  return models;
}

}  // namespace perfmodel::test_support
