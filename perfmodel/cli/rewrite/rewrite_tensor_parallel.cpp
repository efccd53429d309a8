#include <fmt/format.h>

#include <charconv>
#include <string>

#include "perfmodel/graph/rewrites/training.hpp"
#include "rewrite_flags.hpp"

namespace perfmodel::cli {
namespace {

// "8", "8,sequence"
Result<TensorParallelOptions> parse_tensor_parallel(std::string_view text) {
  TensorParallelOptions options;
  std::string_view number = text;
  constexpr std::string_view kSequence = ",sequence";
  if (number.ends_with(kSequence)) {
    options.sequence_parallel = true;
    number.remove_suffix(kSequence.size());
  }
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), options.ranks);
  if (error == std::errc() && end == number.data() + number.size() && options.ranks >= 1) {
    return options;
  }
  return fail(ErrorCode::kImpossible,
              fmt::format("expected a number of GPUs, then ,sequence or nothing, as in 8,sequence, "
                          "found \"{}\"",
                          text));
}

}  // namespace

RewriteOption tensor_parallel_option() {
  return {.flag = "--tensor-parallel",
          .value = "N[,sequence]",
          .help =
              "One rank of N that share each layer (Megatron-LM): heads, feed-forward layers, "
              "vocabulary and loss are cut, all-reduces stand behind them; with ,sequence "
              "all-gathers and reduce-scatters, norms and residuals on 1/N of the tokens",
          .for_build = true,
          .parse = [](const std::string& text) -> Result<Rewrite> {
            const auto options = parse_tensor_parallel(text);
            if (!options) return Unexpected{options.error()};
            return [options = *options](const ExecutionGraph& graph) {
              return make_tensor_parallel(graph, options);
            };
          }};
}

}  // namespace perfmodel::cli
