#include <fmt/format.h>

#include <cctype>
#include <string>

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
    {"llama3.1-8b", DecoderStyle::kLlama, 32, 4096, 32, 8, 14336, 128256, 8192, false},
    {"llama3.1-70b", DecoderStyle::kLlama, 80, 8192, 64, 8, 28672, 128256, 8192, false},
    {"llama3.1-405b", DecoderStyle::kLlama, 126, 16384, 128, 8, 53248, 128256, 8192, false},
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

// What models have beside these sizes.
struct ExpertDecoder {
  DecoderSize size;
  DecoderExperts experts = {};
  std::int64_t head_width = 0;
  LatentAttentionSizes latent = {};
  std::int64_t state_layers = 0, attention_layers = 0;
  StateSpaceSizes states = {};
  std::int64_t window = 0, windowed_layers = 0;
  std::int64_t next_tokens = 0;
  bool gated = true;
  bool sinks = false;
};

constexpr DecoderStyle kLl = DecoderStyle::kLlama;
constexpr LatentAttentionSizes kLatentOfDeepSeek = {1536, 512, 128, 64, 128};

// From the models' config.json on Hugging Face. Left out: norms of heads (Qwen3), biases (Qwen2,
// GPT-OSS), the convolutions of state spaces but for their traffic.
constexpr ExpertDecoder kExpertDecoders[] = {
    {.size = {"mixtral-8x7b", kLl, 32, 4096, 32, 8, 14336, 32000, 4096, false}, .experts = {8, 2}},
    {.size = {"mixtral-8x22b", kLl, 56, 6144, 48, 8, 16384, 32768, 4096, false}, .experts = {8, 2}},
    {.size = {"qwen1.5-moe-a2.7b", kLl, 24, 2048, 16, 16, 5632, 151936, 4096, false},
     .experts = {60, 4, 1408, 5632}},
    {.size = {"qwen2-57b-a14b", kLl, 28, 3584, 28, 4, 18944, 151936, 4096, false},
     .experts = {64, 8, 2560, 20480}},
    {.size = {"qwen3-30b-a3b", kLl, 48, 2048, 32, 4, 6144, 151936, 4096, false},
     .experts = {128, 8, 768},
     .head_width = 128},
    {.size = {"qwen3-235b-a22b", kLl, 94, 4096, 64, 4, 12288, 151936, 4096, false},
     .experts = {128, 8, 1536},
     .head_width = 128},
    {.size = {"deepseek-v2-lite", kLl, 27, 2048, 16, 16, 10944, 102400, 4096, false},
     .experts = {64, 6, 1408, 2816, 0, 1},
     .latent = {0, 512, 128, 64, 128}},
    {.size = {"deepseek-v2", kLl, 60, 5120, 128, 128, 12288, 102400, 4096, false},
     .experts = {160, 6, 1536, 3072, 0, 1},
     .latent = kLatentOfDeepSeek},
    {.size = {"deepseek-v3", kLl, 61, 7168, 128, 128, 18432, 129280, 4096, false},
     .experts = {256, 8, 2048, 2048, 0, 3},
     .latent = kLatentOfDeepSeek,
     .next_tokens = 1},
    {.size = {"kimi-k2", kLl, 61, 7168, 64, 64, 18432, 163840, 4096, false},
     .experts = {384, 8, 2048, 2048, 0, 1},
     .latent = kLatentOfDeepSeek},
    {.size = {"gpt-oss-20b", kLl, 24, 2880, 64, 8, 2880, 201088, 4096, false},
     .experts = {32, 4, 2880},
     .head_width = 64,
     .window = 128,
     .windowed_layers = 12,
     .sinks = true},
    {.size = {"gpt-oss-120b", kLl, 36, 2880, 64, 8, 2880, 201088, 4096, false},
     .experts = {128, 4, 2880},
     .head_width = 64,
     .window = 128,
     .windowed_layers = 18,
     .sinks = true},
    {.size = {"nemotron-h-56b", kLl, 118, 8192, 64, 8, 32768, 131072, 8192, false},
     .head_width = 128,
     .state_layers = 54,
     .attention_layers = 10,
     .states = {256, 64, 8, 256},
     .gated = false},
    {.size = {"nemotron-3-nano", kLl, 52, 2688, 32, 2, 1856, 131072, 8192, false},
     .experts = {128, 6, 1856, 3712},
     .head_width = 128,
     .state_layers = 23,
     .attention_layers = 6,
     .states = {64, 64, 8, 128},
     .gated = false},
    {.size = {"nemotron-3-super", kLl, 88, 4096, 32, 2, 2688, 131072, 8192, false},
     .experts = {512, 22, 2688, 5376, 1024},
     .head_width = 128,
     .state_layers = 40,
     .attention_layers = 8,
     .states = {128, 64, 8, 128},
     .gated = false},
};

// "Qwen3_30B_a3B" and "qwen3-30b-a3b" are the same name.
std::string letters_of(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte)) letters += static_cast<char>(std::tolower(byte));
  }
  return letters;
}

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
  constexpr std::int64_t kFirstPositionOfOpt = 2;
  make_gpt(model, size.style == DecoderStyle::kGpt   ? size.sequence
                  : size.style == DecoderStyle::kOpt ? size.sequence + kFirstPositionOfOpt
                                                     : 0);
  if (size.style == DecoderStyle::kOpt) model.activation = DecoderModel::Activation::kRelu;
  return model;
}

DecoderModel decoder_of(const ExpertDecoder& known) {
  DecoderModel model = decoder_of(known.size);
  model.experts = known.experts;
  model.head_width = known.head_width;
  model.latent = known.latent;
  model.state_layers = known.state_layers;
  model.attention_layers = known.attention_layers;
  model.states = known.states;
  model.window = known.window;
  model.windowed_layers = known.windowed_layers;
  model.next_tokens = known.next_tokens;
  model.gated = known.gated;
  model.sinks = known.sinks;
  return model;
}

}  // namespace

void make_gpt(DecoderModel& model, std::int64_t positions) {
  model.positions = positions;
  model.gated = false;
  model.biases = true;
  model.rms_norm = false;
  model.activation = DecoderModel::Activation::kGelu;
}

std::vector<std::string_view> decoder_names() {
  std::vector<std::string_view> names;
  for (const DecoderSize& size : kDecoderSizes) names.push_back(size.name);
  for (const ExpertDecoder& known : kExpertDecoders) names.push_back(known.size.name);
  return names;
}

Result<NamedDecoder> find_decoder(std::string_view name) {
  const std::string letters = letters_of(name);
  for (const DecoderSize& size : kDecoderSizes) {
    if (letters_of(size.name) == letters) return NamedDecoder{decoder_of(size), size.sequence};
  }
  for (const ExpertDecoder& known : kExpertDecoders) {
    if (letters_of(known.size.name) != letters) continue;
    return NamedDecoder{decoder_of(known), known.size.sequence};
  }
  const std::vector<std::string_view> known = decoder_names();
  return fail(ErrorCode::kUnknownName,
              fmt::format("expected a known model, a config.json or the sizes of a model, "
                          "found \"{}\"; the nearest known model is {}",
                          name, nearest_name(name, known)));
}

}  // namespace perfmodel
