#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/trace.hpp"

namespace perfmodel {

/// One input of an op as in the trace, before the device of its tensors is known.
struct RecordedArgument {
  Argument::Kind kind = Argument::Kind::kOpaque;
  DType dtype = DType::kUnknown;
  std::vector<std::int64_t> shape;  // for a tensor
  bool is_channels_last = false;
  std::int64_t integer = 0;
  double real = 0;
  std::string text;
  std::vector<RecordedArgument> elements;  // for a list
};

/// Parses the recorded texts of calls, equal ones once.
class ArgumentParser {
 public:
  explicit ArgumentParser(const Trace& trace) : trace_(trace), by_index_(trace.arguments.size()) {}

  /// `index` into Trace::arguments.
  const std::vector<RecordedArgument>& parse(std::int32_t index);
  /// Shapes that are none; they count as empty.
  std::size_t odd() const { return odd_; }

 private:
  const Trace& trace_;
  std::vector<std::optional<std::vector<RecordedArgument>>> by_index_;
  std::size_t odd_ = 0;
};

/// The schema of the overload of `op` that takes so many inputs; empty: none is known.
std::string_view schema_for(std::string_view op, std::size_t inputs);

/// Writes an argument with its elements to place `slot` of the graph's arguments.
void place_argument(ExecutionGraph& graph, const RecordedArgument& recorded, bool on_gpu,
                    std::uint32_t slot);

}  // namespace perfmodel
