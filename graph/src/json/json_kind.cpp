#include "json_kind.hpp"

namespace perfmodel {

void JsonKind::see(std::string_view key) {
  if (key == "rocprofiler-sdk-tool") {
    kind_ = Kind::kRocprofiler;
  } else if (key == "traceEvents" || key == "deviceProperties" || key == "traceName" ||
             key == "schemaVersion") {
    kind_ = Kind::kTrace;
  } else if (key == "workload_graph") {
    kind_ = Kind::kChakra;
  } else if (kind_ == Kind::kUnknown) {
    if (key == "segments" || key == "device_traces") kind_ = Kind::kSnapshot;
    if (key == "nodes") kind_ = Kind::kGraph;
    // chakra_jsonizer prints a head with its version and a document per node.
    if (key == "version" || key == "ctrlDeps" || key == "dataDeps") {
      kind_ = Kind::kChakra;
      whole_ = false;
    }
  } else if (key == "nodes" && !whole_) {
    kind_ = Kind::kGraph;
    whole_ = true;
  }
}

std::string JsonKind::found() const {
  switch (kind_) {
    case Kind::kGraph:
      return ", found an execution graph";
    case Kind::kTrace:
      return ", found a timed (Kineto) trace";
    case Kind::kChakra:
      return ", found a Chakra trace as JSON (the binary .et is read)";
    case Kind::kRocprofiler:
      return ", found JSON of rocprofiler-sdk (rocprofv3), which has no ops; record with "
             "torch.profiler";
    case Kind::kSnapshot:
      return ", found a snapshot of PyTorch's allocator (`trace` reads it as a file)";
    case Kind::kUnknown:
      break;
  }
  return "";
}

}  // namespace perfmodel
