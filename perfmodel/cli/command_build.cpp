#include <CLI/CLI.hpp>

#include "build_commands.hpp"
#include "command.hpp"

namespace perfmodel::cli {

std::vector<Command> build_commands(CLI::App& parent) {
  CLI::App* build = parent.add_subcommand("build", "Make an execution graph without PyTorch");
  build->require_subcommand(1);
  return {build_deepspeech2_command(*build), build_dlrm_command(*build), build_lstm_command(*build),
          build_seq2seq_command(*build), build_torchrec_command(*build)};
}

}  // namespace perfmodel::cli
