#include <fmt/format.h>

#include "files/json_file.hpp"
#include "perfmodel/detail/decoder_models.hpp"

namespace perfmodel {
namespace {

enum class DecoderStyle { kLlama, kGpt, kNeox, kOpt };

struct DecoderSize {
  std::string_view name;
  DecoderStyle style;
  std::int64_t layers, hidden, heads, kv_heads, feed_forward, vocabulary, sequence;
  bool tied;
};

// Sizes from the models' config.json on Hugging Face, GPT-3 from table 2.1 of Brown et al. 2020,
// nanotron's from the text beside its published runs (Ultra-Scale Playbook).
constexpr DecoderSize kDecoderSizes[] = {
    {"gpt2", DecoderStyle::kGpt, 12, 768, 12, 12, 3072, 50257, 1024, true},
    {"gpt2-medium", DecoderStyle::kGpt, 24, 1024, 16, 16, 4096, 50257, 1024, true},
    {"gpt2-large", DecoderStyle::kGpt, 36, 1280, 20, 20, 5120, 50257, 1024, true},
    {"gpt2-xl", DecoderStyle::kGpt, 48, 1600, 25, 25, 6400, 50257, 1024, true},
    {"gpt3-175b", DecoderStyle::kGpt, 96, 12288, 96, 96, 49152, 50257, 2048, true},
    {"llama2-7b", DecoderStyle::kLlama, 32, 4096, 32, 32, 11008, 32000, 4096, false},
    {"llama2-13b", DecoderStyle::kLlama, 40, 5120, 40, 40, 13824, 32000, 4096, false},
    {"llama2-70b", DecoderStyle::kLlama, 80, 8192, 64, 8, 28672, 32000, 4096, false},
    {"llama3-8b", DecoderStyle::kLlama, 32, 4096, 32, 8, 14336, 128256, 8192, false},
    {"llama3-70b", DecoderStyle::kLlama, 80, 8192, 64, 8, 28672, 128256, 8192, false},
    {"llama3-405b", DecoderStyle::kLlama, 126, 16384, 128, 8, 53248, 128256, 8192, false},
    {"llama3.2-1b", DecoderStyle::kLlama, 16, 2048, 32, 8, 8192, 128256, 8192, true},
    {"llama3.2-3b", DecoderStyle::kLlama, 28, 3072, 24, 8, 8192, 128256, 8192, true},
    {"tinyllama-1.1b", DecoderStyle::kLlama, 22, 2048, 32, 4, 5632, 32000, 2048, false},
    {"mistral-7b", DecoderStyle::kLlama, 32, 4096, 32, 8, 14336, 32000, 8192, false},
    {"qwen2.5-7b", DecoderStyle::kLlama, 28, 3584, 28, 4, 18944, 152064, 4096, false},
    {"qwen2.5-32b", DecoderStyle::kLlama, 64, 5120, 40, 8, 27648, 152064, 4096, false},
    {"qwen2.5-72b", DecoderStyle::kLlama, 80, 8192, 64, 8, 29568, 152064, 4096, false},
    {"gpt-neox-20b", DecoderStyle::kNeox, 44, 6144, 64, 64, 24576, 50432, 2048, false},
    {"opt-1.3b", DecoderStyle::kOpt, 24, 2048, 32, 32, 8192, 50272, 2048, true},
    {"opt-6.7b", DecoderStyle::kOpt, 32, 4096, 32, 32, 16384, 50272, 2048, true},
    {"opt-30b", DecoderStyle::kOpt, 48, 7168, 56, 56, 28672, 50272, 2048, true},
    {"opt-66b", DecoderStyle::kOpt, 64, 9216, 72, 72, 36864, 50272, 2048, true},
    {"opt-175b", DecoderStyle::kOpt, 96, 12288, 96, 96, 49152, 50272, 2048, true},
    {"nanotron-1b", DecoderStyle::kLlama, 16, 2048, 32, 32, 8192, 131072, 4096, true},
    {"nanotron-3b", DecoderStyle::kLlama, 28, 3072, 32, 32, 8192, 131072, 4096, true},
    {"nanotron-8b", DecoderStyle::kLlama, 32, 4096, 32, 32, 14336, 131072, 4096, false},
    {"nanotron-80b", DecoderStyle::kLlama, 80, 8192, 64, 64, 28672, 131072, 4096, false},
};

DecoderModel decoder_of(const DecoderSize& size) {
  DecoderModel model;
  model.name = size.name;
  model.layers = size.layers;
  model.hidden = size.hidden;
  model.heads = size.heads;
  model.kv_heads = size.kv_heads;
  model.feed_forward = size.feed_forward;
  model.vocabulary = size.vocabulary;
  model.tied = size.tied;
  if (size.style == DecoderStyle::kLlama) return model;
  model.gated = false;
  model.biases = true;
  model.rms_norm = false;
  model.activation = size.style == DecoderStyle::kOpt ? DecoderModel::Activation::kRelu
                                                      : DecoderModel::Activation::kGelu;
  if (size.style == DecoderStyle::kGpt) model.positions = size.sequence;
  constexpr std::int64_t kFirstPositionOfOpt = 2;
  if (size.style == DecoderStyle::kOpt) model.positions = size.sequence + kFirstPositionOfOpt;
  return model;
}

}  // namespace

std::vector<std::string_view> decoder_names() {
  std::vector<std::string_view> names;
  for (const DecoderSize& size : kDecoderSizes) names.push_back(size.name);
  return names;
}

Result<NamedDecoder> find_decoder(std::string_view name) {
  for (const DecoderSize& size : kDecoderSizes) {
    if (size.name == name) return NamedDecoder{decoder_of(size), size.sequence};
  }
  const std::vector<std::string_view> known = decoder_names();
  return fail(ErrorCode::kUnknownName,
              fmt::format("expected a known model, a config.json or the sizes of a model, "
                          "found \"{}\"; the nearest known model is {}",
                          name, nearest_name(name, known)));
}

}  // namespace perfmodel
