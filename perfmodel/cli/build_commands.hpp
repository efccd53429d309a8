#pragma once

#include <string>

#include "command.hpp"

namespace perfmodel::cli {

// `perfpredict build FAMILY`, one file per family.

Command build_a3c_command(CLI::App& build);
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
Command build_transformer_command(CLI::App& build);
Command build_vgg_command(CLI::App& build);
Command build_wgan_command(CLI::App& build);

/// "build gpt --preset gpt2" for `build gpt2`: the name of a preset is no family. Empty: it is no
/// preset, or `command` is not `build`.
std::string suggest_preset(const CLI::App& command, const std::string& word);

}  // namespace perfmodel::cli
