#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/predictors/detail/key_table.hpp"
#include "perfmodel/predictors/detail/time_terms.hpp"
#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel {

/// One host call that a node makes itself.
struct TemplateCall {
  enum class Kind : std::uint8_t { kKernel, kCopy, kSet, kGraphLaunch, kSync } kind = Kind::kKernel;
  SyncKind sync = SyncKind::kNone;            ///< kSync
  CopyKind copy = CopyKind::kDeviceToDevice;  ///< kCopy
  bool pageable = false;                      ///< kCopy
  bool blocking = false;                      ///< kCopy: the host waits for it
  bool collective = false;                    ///< kKernel
  bool longest = false;                       ///< took the longest of several kernels of the node
  std::uint16_t after_children = 0;           ///< the call comes after this many children
  std::uint16_t tasks = 1;                    ///< device tasks of the call (graph launches: many)
  std::int16_t stream = 0;                    ///< role: 0 = the main compute stream
  std::string call;                           ///< "cudaLaunchKernel"
  std::string kernel;                         ///< name of the (first) kernel, for the report

  friend bool operator==(const TemplateCall&, const TemplateCall&) = default;
};

/// The calls of one node, in order, without its children's.
using LaunchTemplate = std::vector<TemplateCall>;

using TemplateKeys = std::array<std::uint64_t, kTemplateLevels>;

/// Keys of a node, from the most to the least specific. Equal in every file and on every machine.
TemplateKeys template_keys(const ExecutionGraph& graph, const Node& node);

/// The part of a TemplateLevel::kShapes key that a kDevices key lacks.
std::uint64_t shapes_hash(const ExecutionGraph& graph, const Node& node);

/// Launch templates learned from traces: per key the most common list of calls.
struct LaunchTemplates {
  struct Entry {
    std::uint32_t list = 0;   ///< into `lists`
    std::uint32_t count = 0;  ///< observations of `list`
  };
  std::vector<LaunchTemplate> lists;
  std::array<KeyTable<Entry>, kTemplateLevels> by_key;

  struct Found {
    const LaunchTemplate* calls = nullptr;  ///< nullptr: nothing known
    TemplateLevel level = TemplateLevel::kName;
  };
  Found find(const TemplateKeys& keys, TemplateLevel from = TemplateLevel::kShapes) const;

  /// The entry of level kShapes for a node with this key of level kDevices; null: none. A node that
  /// has one has an entry of level kDevices too.
  const LaunchTemplate* with_shapes(std::uint64_t devices_key, std::uint64_t shapes) const;
};

}  // namespace perfmodel
