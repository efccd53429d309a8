#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/decimal_number.hpp"
#include "rewrite_texts.hpp"

namespace perfmodel {
namespace {

struct Sizes {
  std::int64_t current = 0, wanted = 0;
};

bool read_size(std::string_view text, std::int64_t& size) {
  return read_decimal(text, size) && size > 0;
}

Result<Sizes> read_sizes(const std::string& text) {
  Sizes sizes;
  const std::size_t equals = text.find('=');
  const bool named = equals != std::string::npos;
  const std::string_view all = text;
  if (!read_size(named ? all.substr(equals + 1) : all, sizes.wanted) ||
      (named && !read_size(all.substr(0, equals), sizes.current))) {
    return fail(ErrorCode::kFormat,
                fmt::format("expected a size of at least 1, or OLD=NEW, found {}", text));
  }
  return sizes;
}

// "545:0+557:0".
Result<std::vector<BatchInput>> read_batch_inputs(std::string_view text) {
  std::vector<BatchInput> inputs;
  const auto read_index = [](std::string_view digits, auto& value) {
    return read_decimal(digits, value) && value >= 0;
  };
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find('+'));
    text.remove_prefix(std::min(one.size() + 1, text.size()));
    const std::size_t colon = one.find(':');
    BatchInput input;
    if (colon == std::string_view::npos || !read_index(one.substr(0, colon), input.tensor) ||
        !read_index(one.substr(colon + 1), input.dim)) {
      return fail(
          ErrorCode::kFormat,
          fmt::format("expected inputs such as 545:0+557:0 after the @, found \"{}\"", one));
    }
    inputs.push_back(input);
  }
  return inputs;
}

// Names may hold '=' (no op does), numbers do not.
Result<KernelTimeOptions> read_pattern_value(const std::string& text, std::string_view unit,
                                             double most) {
  const std::size_t equals = text.rfind('=');
  KernelTimeOptions options;
  if (equals != std::string::npos && equals > 0) {
    options.pattern = text.substr(0, equals);
    if (read_decimal(std::string_view(text).substr(equals + 1), options.value) &&
        options.value >= 0 && options.value <= most) {
      return options;
    }
  }
  return fail(ErrorCode::kFormat, fmt::format("expected PATTERN={}, {} from 0 to {}, found {}",
                                              unit, unit, most, text));
}

}  // namespace

Result<BatchSizeOptions> read_batch_size(const std::string& text) {
  const std::size_t at = std::min(text.find('@'), text.size());
  PERFMODEL_TRY(sizes, read_sizes(text.substr(0, at)));
  BatchSizeOptions options{.batch = sizes->wanted, .current = sizes->current};
  if (at < text.size()) {
    PERFMODEL_TRY(inputs, read_batch_inputs(std::string_view(text).substr(at + 1)));
    options.inputs = std::move(*inputs);
  }
  return options;
}

Result<SequenceLengthOptions> read_sequence_length(const std::string& text) {
  return read_sizes(text).map([](const Sizes& sizes) {
    return SequenceLengthOptions{.length = sizes.wanted, .current = sizes.current};
  });
}

Result<double> read_index_skew(const std::string& text) {
  double exponent = 0;
  if (read_decimal(text, exponent)) return exponent;
  return fail(ErrorCode::kFormat, fmt::format("expected a number, found \"{}\"", text));
}

Result<std::string> read_pattern(const std::string& text) {
  if (text.empty()) return fail(ErrorCode::kFormat, "expected a pattern, found nothing");
  return text;
}

Result<KernelTimeOptions> read_kernel_time(const std::string& text) {
  return read_pattern_value(text, "US", kMostKernelTimeUs);
}
Result<KernelTimeOptions> read_kernel_scale(const std::string& text) {
  return read_pattern_value(text, "X", kMostKernelTimeScale);
}

}  // namespace perfmodel
