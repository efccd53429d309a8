#include "dialect.hpp"

#include <charconv>

#include "optimizer_reader.hpp"

namespace perfmodel {

std::optional<PyTorch> pytorch_of_capture(const ExecutionGraph& graph) {
  constexpr std::string_view kKey = R"("torch":")";
  const std::size_t at = graph.captured.find(kKey);
  if (at == std::string::npos) return std::nullopt;
  const char* const end = graph.captured.data() + graph.captured.size();
  PyTorch pytorch;
  const auto major = std::from_chars(graph.captured.data() + at + kKey.size(), end, pytorch.major);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return std::nullopt;
  const auto minor = std::from_chars(major.ptr + 1, end, pytorch.minor);
  if (minor.ec != std::errc()) return std::nullopt;
  return pytorch;
}

PyTorch dialect_of(const ExecutionGraph& graph) {
  PyTorch pytorch;
  pytorch.device = {.kind = Device::Kind::kCpu, .index = -1};
  for (const Tensor& tensor : graph.tensors) {
    if (!tensor.on_gpu()) continue;
    pytorch.device = tensor.device;
    break;
  }
  if (const auto captured = pytorch_of_capture(graph)) {
    pytorch.major = captured->major;
    pytorch.minor = captured->minor;
    return pytorch;
  }
  bool before_2 = !graph.built && graph.schema.starts_with("1.0.1");
  for (std::int32_t label : optimizer_steps(graph)) {
    const auto step = read_optimizer_step(graph, label);
    if (!step) continue;
    before_2 = (before_2 && !step->is_2) || step->before_2;
  }
  if (before_2) {
    pytorch.major = 1;
    pytorch.minor = 13;
  }
  return pytorch;
}

}  // namespace perfmodel
