#include <CLI/CLI.hpp>

#include "build_commands.hpp"
#include "command.hpp"

namespace perfmodel::cli {

std::vector<Command> build_commands(CLI::App& parent) {
  CLI::App* build = parent.add_subcommand("build", "Make an execution graph without PyTorch");
  build->require_subcommand(1);
  // One per line, in alphabetical order.
  return {
      build_bert_command(*build),     build_deepspeech2_command(*build),
      build_dlrm_command(*build),     build_faster_rcnn_command(*build),
      build_gpt_command(*build),      build_inception_command(*build),
      build_llama_command(*build),    build_lstm_command(*build),
      build_mlp_command(*build),      build_opt_command(*build),
      build_resnet_command(*build),   build_seq2seq_command(*build),
      build_t5_command(*build),       build_torch_encoder_command(*build),
      build_torchrec_command(*build), build_vgg_command(*build),
      build_wgan_command(*build),
  };
}

}  // namespace perfmodel::cli
