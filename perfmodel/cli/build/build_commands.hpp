#pragma once

#include <string>

#include "cli/shared/command.hpp"

namespace perfmodel::cli {

// `perfpredict build FAMILY`, one file per family.

Command build_a3c_command(CommandParser build);
Command build_bert_command(CommandParser build);
Command build_deepspeech2_command(CommandParser build);
Command build_dlrm_command(CommandParser build);
Command build_faster_rcnn_command(CommandParser build);
Command build_gpt_command(CommandParser build);
Command build_inception_command(CommandParser build);
Command build_llama_command(CommandParser build);
Command build_lstm_command(CommandParser build);
Command build_mlp_command(CommandParser build);
Command build_opt_command(CommandParser build);
Command build_resnet_command(CommandParser build);
Command build_seq2seq_command(CommandParser build);
Command build_t5_command(CommandParser build);
Command build_torch_encoder_command(CommandParser build);
Command build_torchrec_command(CommandParser build);
Command build_transformer_command(CommandParser build);
Command build_vgg_command(CommandParser build);
Command build_wgan_command(CommandParser build);

/// "build gpt --preset gpt2" for `build gpt2`: the name of a preset is no family. Empty: it is no
/// preset, or `command` is not `build`.
std::string suggest_preset(CommandParser command, const std::string& word);

}  // namespace perfmodel::cli
