#include "perfmodel/graph/build_model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <type_traits>

#include "builders/optimizer_names.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"

namespace perfmodel {
namespace {

template <class Optimizer, std::size_t kCount>
Result<void> choose(const std::string& name, const Named<Optimizer> (&names)[kCount],
                    Optimizer& optimizer) {
  if (name.empty()) return {};
  if (const Optimizer* known = find_named(names, name)) {
    optimizer = *known;
    return {};
  }
  return fail(ErrorCode::kUnknownName, fmt::format("expected an optimizer of {}, found \"{}\"",
                                                   fmt::join(names_of(names), ", "), name));
}

Result<void> choose_optimizer(const ModelRequest& request, DlrmConfig& config) {
  return choose(request.optimizer, kTableOptimizerNames, config.optimizer);
}
template <class Config>
Result<void> choose_optimizer(const ModelRequest& request, Config& config) {
  return choose(request.optimizer, kOptimizerNames, config.training.optimizer);
}

template <class Config>
Result<void> apply_sizes(const ModelRequest& request, Config& config) {
  if constexpr (std::is_base_of_v<TransformerConfig, Config>) {
    if constexpr (std::is_same_v<Config, GptConfig>) {
      if (request.sequence > 0) set_sequence(config, request.sequence);
    } else if (request.sequence > 0) {
      config.sequence = request.sequence;
    }
    if (request.layers > 0) config.layers = request.layers;
    if constexpr (std::is_same_v<Config, T5Config>) {
      if (request.layers > 0) config.decoder_layers = request.layers;
    }
  } else if (request.sequence > 0 || request.layers > 0) {
    return fail(ErrorCode::kImpossible,
                fmt::format("expected no {} for the family {}, which has none",
                            request.sequence > 0 ? "sequence" : "layers", request.family));
  }
  if (request.batch > 0) config.batch = request.batch;
  return {};
}

template <auto kPreset, auto kBuild>
Result<ExecutionGraph> make(const ModelRequest& request, std::string_view default_preset) {
  PERFMODEL_TRY(config, kPreset(request.preset.empty() ? default_preset : request.preset));
  if (auto chosen = choose_optimizer(request, *config); !chosen) return Unexpected{chosen.error()};
  if (auto resized = apply_sizes(request, *config); !resized) return Unexpected{resized.error()};
  return kBuild(*config);
}

struct Family {
  std::string_view name, preset;
  Result<ExecutionGraph> (*make)(const ModelRequest&, std::string_view);
};
constexpr Family kFamilies[] = {
    {"bert", "bert-base", make<bert_preset, build_bert>},
    {"dlrm", "default", make<dlrm_preset, build_dlrm>},
    {"gpt", "gpt2", make<gpt_preset, build_gpt>},
    {"inception", "inception_v3", make<inception_preset, build_inception>},
    {"llama", "tinyllama-1.1b", make<llama_preset, build_llama>},
    {"mlp", "mnist", make<mlp_preset, build_mlp>},
    {"opt", "opt-125m", make<opt_preset, build_opt>},
    {"resnet", "resnet18", make<resnet_preset, build_resnet>},
    {"t5", "t5-small", make<t5_preset, build_t5>},
    {"vgg", "vgg16", make<vgg_preset, build_vgg>},
};

}  // namespace

Result<ExecutionGraph> build_model(const ModelRequest& request) {
  const auto family = std::ranges::find(kFamilies, request.family, &Family::name);
  if (family == std::end(kFamilies)) {
    return fail(ErrorCode::kUnknownName,
                fmt::format("expected a family of {}, found \"{}\"",
                            fmt::join(model_families(), ", "), request.family));
  }
  for (const std::int64_t size : {request.batch, request.sequence, request.layers}) {
    if (size < 0) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("expected sizes of at least 1 (0: the preset's), found {}", size));
    }
  }
  return family->make(request, family->preset);
}

std::vector<std::string_view> model_families() {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.name);
  return names;
}

}  // namespace perfmodel
