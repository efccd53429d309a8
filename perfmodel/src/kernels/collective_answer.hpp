#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fields/result_field.hpp"
#include "perfmodel/collective.hpp"

namespace perfmodel {

/// A collective at several sizes, as `perfpredict collective` asks.
struct CollectiveStudy {
  std::string op, gpu, topology, type;
  std::vector<std::string> sizes;  ///< "64MiB", or "1KiB:1GiB": doubled from one to the other
  std::int64_t world = 0, nodes = 0;
  NetworkFacts network = {};  ///< the machine's NICs, in place of the topology's
};

struct CollectiveTable {
  CollectiveStudy study;
  std::string gpu;
  Topology topology;
  std::vector<CollectiveAnswer> rows = {};  ///< in the order of the sizes
  std::vector<std::string> warnings = {};
};

/// A question in the words of C and the command line; `nodes` 0: as few as hold the GPUs. Errors:
/// an unknown collective, counts below 2 (nodes: below 0) or too large.
Result<CollectiveQuestion> collective_question(const std::string& op, Bytes bytes,
                                               std::int64_t world, std::int64_t nodes);

/// The topology of a name or file with the NICs of `network`; without a name the GPU's own.
/// Warnings: stand-ins, a data sheet in its place, a GPU that it is not built with. Errors: unknown
/// names, a broken file, what `with_network` refuses.
Result<Topology> topology_named(const std::string& name, const Gpu& gpu,
                                const NetworkFacts& network, std::vector<std::string>& warnings);

/// Errors: unknown names of operations, types, GPUs and topologies, sizes that cannot be read, more
/// than 10,000 sizes, what `answer_collective` refuses.
Result<CollectiveTable> answer_collectives(const CollectiveStudy& study);

extern const ResultFields<CollectiveAnswer> kCollectiveSizeFields;

/// The document without its head.
OrderedJson collective_json(const CollectiveTable& table);

}  // namespace perfmodel
