#pragma once

#include "command.hpp"

namespace perfmodel::cli {

// `perfpredict build FAMILY`, one file per family.

Command build_bert_command(CLI::App& build);
Command build_deepspeech2_command(CLI::App& build);
Command build_dlrm_command(CLI::App& build);
Command build_faster_rcnn_command(CLI::App& build);
Command build_gpt_command(CLI::App& build);
Command build_inception_command(CLI::App& build);
Command build_llama_command(CLI::App& build);
Command build_lstm_command(CLI::App& build);
Command build_mlp_command(CLI::App& build);
Command build_opt_command(CLI::App& build);
Command build_resnet_command(CLI::App& build);
Command build_seq2seq_command(CLI::App& build);
Command build_t5_command(CLI::App& build);
Command build_torch_encoder_command(CLI::App& build);
Command build_torchrec_command(CLI::App& build);
Command build_vgg_command(CLI::App& build);
Command build_wgan_command(CLI::App& build);

}  // namespace perfmodel::cli
