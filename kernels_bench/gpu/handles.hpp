#pragma once

#include <memory>
#include <type_traits>

#include "runtime.hpp"

/// Owners of the runtime's handles.
namespace kernels_bench::gpu {

template <class Handle, auto Destroy>
struct Destroyer {
  void operator()(Handle handle) const { (void)Destroy(handle); }
};
template <class Handle, auto Destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<Handle, Destroy>>;

using OwnedStream = Owned<Stream, &GPU(StreamDestroy)>;
using OwnedEvent = Owned<Event, &GPU(EventDestroy)>;
using OwnedGraph = Owned<GPU(Graph_t), &GPU(GraphDestroy)>;
using OwnedGraphExec = Owned<GPU(GraphExec_t), &GPU(GraphExecDestroy)>;

}  // namespace kernels_bench::gpu
