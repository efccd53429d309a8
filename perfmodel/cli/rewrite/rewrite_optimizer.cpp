#include <fmt/format.h>

#include <map>
#include <string>

#include "cli/shared/arguments.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "rewrite_flags.hpp"

namespace perfmodel::cli {
namespace {

using Optimizer = TrainingOptions::Optimizer;
using Implementation = TrainingOptions::Implementation;

const std::map<std::string, Optimizer, std::less<>> kKinds = {{"sgd", Optimizer::kSgd},
                                                              {"momentum", Optimizer::kMomentum},
                                                              {"adagrad", Optimizer::kAdagrad},
                                                              {"adam", Optimizer::kAdam},
                                                              {"adamw", Optimizer::kAdamW}};
const std::map<std::string, Implementation, std::less<>> kImplementations = {
    {"loop", Implementation::kLoop},
    {"foreach", Implementation::kForeach},
    {"fused", Implementation::kFused},
    {"8bit", Implementation::kEightBit}};

// "adam", "fused" or "adam/fused".
Result<OptimizerRewrite> parse_optimizer(std::string_view text) {
  OptimizerRewrite rewrite;
  const auto slash = text.find('/');
  const std::string_view first = text.substr(0, slash);
  if (const auto kind = kKinds.find(first); kind != kKinds.end()) rewrite.optimizer = kind->second;
  const std::string_view second = slash == std::string_view::npos ? first : text.substr(slash + 1);
  if (const auto how = kImplementations.find(second); how != kImplementations.end()) {
    rewrite.implementation = how->second;
  }
  const bool both = slash != std::string_view::npos;
  const bool good = both ? rewrite.optimizer && rewrite.implementation
                         : rewrite.optimizer || rewrite.implementation;
  if (good) return rewrite;
  return fail(ErrorCode::kUnknownName,
              fmt::format("expected sgd, momentum, adagrad, adam or adamw, loop, foreach, fused or "
                          "8bit, or both as adam/fused, found \"{}\"",
                          text));
}

}  // namespace

RewriteOption optimizer_option() {
  return {.flag = "--optimizer",
          .value = "KIND/HOW",
          .help =
              "Another optimizer (sgd, momentum, adagrad, adam, adamw), another way to walk the "
              "parameters (loop, foreach, fused, 8bit: state in 8 bits as bitsandbytes keeps it), "
              "or both: adam/fused",
          .parse = [](const std::string& text) -> Result<Rewrite> {
            const auto rewrite = parse_optimizer(text);
            if (!rewrite) return Unexpected{rewrite.error()};
            return [rewrite = *rewrite](const ExecutionGraph& graph) {
              return rewrite_optimizer(graph, rewrite);
            };
          }};
}

}  // namespace perfmodel::cli
