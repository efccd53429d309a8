#include <fmt/format.h>

#include <charconv>
#include <utility>

#include "perfmodel/graph/rewrite.hpp"
#include "rewrite_flags.hpp"

namespace perfmodel::cli {
namespace {

struct PatternValue {
  std::string pattern;
  double value = 0;
};

// "aten::mm=12.5": names may hold '=' (no op does), numbers do not.
Result<PatternValue> parse_pattern_value(const std::string& text, std::string_view what,
                                         double most) {
  const std::size_t equals = text.rfind('=');
  PatternValue parsed;
  if (equals != std::string::npos && equals > 0) {
    parsed.pattern = text.substr(0, equals);
    const std::string_view number = std::string_view(text).substr(equals + 1);
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), parsed.value);
    if (error == std::errc() && end == number.data() + number.size() && parsed.value >= 0 &&
        parsed.value <= most) {
      return parsed;
    }
  }
  return fail(ErrorCode::kFormat, fmt::format("expected PATTERN={}, {} from 0 to {}, found {}",
                                              what, what, most, text));
}

RewriteOption kernel_option(std::string flag, std::string what, double most, std::string help,
                            Result<ExecutionGraph> (*apply)(const ExecutionGraph&,
                                                            const KernelTimeOptions&)) {
  return {.flag = std::move(flag),
          .value = "P=" + what,
          .help = std::move(help),
          .parse = [what, most, apply](const std::string& text) -> Result<Rewrite> {
            const auto parsed = parse_pattern_value(text, what, most);
            if (!parsed) return Unexpected{parsed.error()};
            return [parsed = *parsed, apply](const ExecutionGraph& graph) {
              return apply(graph, {.pattern = parsed.pattern, .value = parsed.value});
            };
          },
          .of_ops_alone = true};
}

RewriteOption pattern_option(std::string flag, std::string help,
                             Result<ExecutionGraph> (*apply)(const ExecutionGraph&,
                                                             std::string_view)) {
  return {.flag = std::move(flag),
          .value = "PATTERN",
          .help = std::move(help),
          .parse = [apply](const std::string& text) -> Result<Rewrite> {
            if (text.empty()) return fail(ErrorCode::kFormat, "expected a pattern, found nothing");
            return [text, apply](const ExecutionGraph& graph) { return apply(graph, text); };
          },
          .of_ops_alone = true};
}

}  // namespace

RewriteOption subgraph_option() {
  return pattern_option("--subgraph",
                        "Keep only what lies under labels or ops of this name ('*' stands for any "
                        "text), or nodes of ids A:B",
                        keep_subgraph);
}

RewriteOption remove_option() {
  return pattern_option("--remove", "Take out ops of this name with all below them", remove_ops);
}

RewriteOption kernel_time_option() {
  return kernel_option("--kernel-time", "US", kMostKernelTimeUs,
                       "Kernels of each op of this name take so many microseconds together",
                       set_kernel_time);
}

RewriteOption scale_kernel_option() {
  return kernel_option("--scale-kernel", "X", kMostKernelTimeScale,
                       "Multiplies the time of the kernels of ops of this name", scale_kernel_time);
}

}  // namespace perfmodel::cli
