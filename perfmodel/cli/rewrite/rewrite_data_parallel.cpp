#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <string>

#include "perfmodel/graph/rewrites/training.hpp"
#include "rewrite_flags.hpp"

namespace perfmodel::cli {
namespace {

template <class Number>
bool read(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

Unexpected bad(std::string_view text) {
  return fail(ErrorCode::kImpossible,
              fmt::format("expected a number of GPUs, then cap=MIB, first=MIB, split=MIB or views, "
                          "as in 8,cap=50,views, found \"{}\"",
                          text));
}

bool read_mebibytes(std::string_view text, std::int64_t& bytes) {
  double mebibytes = 0;
  if (!read(text, mebibytes) || !(mebibytes > 0) || !(mebibytes < 1e9)) return false;
  bytes = std::llround(mebibytes * (1 << 20));
  return true;
}

// "8", "8,cap=50,views"
Result<DataParallelRewrite> parse_data_parallel(std::string_view text) {
  DataParallelRewrite rewrite;
  std::string_view rest = text;
  for (bool first = true; first || !rest.empty(); first = false) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest = part.size() < rest.size() ? rest.substr(part.size() + 1) : std::string_view();
    bool good = false;
    if (first) {
      good = read(part, rewrite.world_size) && rewrite.world_size >= 1;
    } else if (part == "views") {
      good = rewrite.gradient_as_bucket_view = true;
    } else if (part.starts_with("cap=")) {
      good = read_mebibytes(part.substr(4), rewrite.bucket_cap_bytes);
    } else if (part.starts_with("split=")) {
      std::int64_t bytes = 0;
      good = read_mebibytes(part.substr(6), bytes);
      rewrite.split_bytes = bytes;
    } else if (part.starts_with("first=")) {
      good = read_mebibytes(part.substr(6), rewrite.first_bucket_bytes);
    }
    if (!good) return bad(text);
  }
  return rewrite;
}

}  // namespace

RewriteOption data_parallel_option() {
  return {.flag = "--data-parallel",
          .value = "N[,cap=MIB][,split=MIB][,views]",
          .help =
              "What DistributedDataParallel on N GPUs adds: buckets (the first of 1 MiB, or "
              "first=MIB, then 25 MiB, or cap=MIB; split=MIB: larger gradients in pieces), "
              "all-reduces, copies unless gradients are "
              "views of the buckets, broadcasts of buffers",
          .for_build = true,
          .parse = [](const std::string& text) -> Result<Rewrite> {
            const auto rewrite = parse_data_parallel(text);
            if (!rewrite) return Unexpected{rewrite.error()};
            return [rewrite = *rewrite](const ExecutionGraph& graph) {
              return rewrite_data_parallel(graph, rewrite);
            };
          }};
}

}  // namespace perfmodel::cli
