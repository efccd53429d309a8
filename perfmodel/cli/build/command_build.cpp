
#include <algorithm>
#include <string_view>

#include "build_commands.hpp"
#include "cli/shared/command.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

std::vector<Command> build_commands(CommandParser parent) {
  const CommandParser build =
      parent.add_subcommand("build", "Make an execution graph without PyTorch");
  build.require_subcommand(1);
  // One per line, in alphabetical order.
  return {
      build_a3c_command(build),           build_bert_command(build),
      build_deepspeech2_command(build),   build_dlrm_command(build),
      build_faster_rcnn_command(build),   build_gpt_command(build),
      build_inception_command(build),     build_llama_command(build),
      build_lstm_command(build),          build_mlp_command(build),
      build_opt_command(build),           build_resnet_command(build),
      build_seq2seq_command(build),       build_t5_command(build),
      build_torch_encoder_command(build), build_torchrec_command(build),
      build_transformer_command(build),   build_vgg_command(build),
      build_wgan_command(build),
  };
}

namespace {

template <auto kPreset>
bool has(std::string_view name) {
  return kPreset(name).has_value();
}

struct Presets {
  std::string_view family;
  bool (*has)(std::string_view name);
};
constexpr Presets kPresets[] = {
    {"a3c", has<a3c_preset>},
    {"bert", has<bert_preset>},
    {"deepspeech2", has<deepspeech2_preset>},
    {"dlrm", has<dlrm_preset>},
    {"faster-rcnn", has<faster_rcnn_preset>},
    {"gpt", has<gpt_preset>},
    {"inception", has<inception_preset>},
    {"llama", has<llama_preset>},
    {"lstm", has<lstm_preset>},
    {"mlp", has<mlp_preset>},
    {"opt", has<opt_preset>},
    {"resnet", has<resnet_preset>},
    {"seq2seq", has<seq2seq_preset>},
    {"t5", has<t5_preset>},
    {"torchrec", has<torchrec_dlrm_preset>},
    {"transformer", has<transformer_preset>},
    {"vgg", has<vgg_preset>},
    {"wgan", has<wgan_preset>},
};

}  // namespace

std::string suggest_preset(CommandParser command, const std::string& word) {
  if (command.name() != "build") return {};
  const auto family =
      std::ranges::find_if(kPresets, [&](const Presets& presets) { return presets.has(word); });
  if (family == std::end(kPresets)) return {};
  return "build " + std::string(family->family) + " --preset " + word;
}

}  // namespace perfmodel::cli
