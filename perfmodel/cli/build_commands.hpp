#pragma once

#include "command.hpp"

namespace perfmodel::cli {

// `perfpredict build FAMILY`, one file per family.

Command build_deepspeech2_command(CLI::App& build);
Command build_dlrm_command(CLI::App& build);
Command build_lstm_command(CLI::App& build);
Command build_seq2seq_command(CLI::App& build);
Command build_torchrec_command(CLI::App& build);

}  // namespace perfmodel::cli
