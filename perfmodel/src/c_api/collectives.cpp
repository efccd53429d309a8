// The C interface: collectives.
#include "kernels/collective_answer.hpp"
#include "perfmodel/collective.hpp"
#include "support.hpp"

namespace perfmodel::c_api {
namespace {

perfmodel_collective_answer answer_of(const CollectiveAnswer& answer) {
  const CollectiveTime& price = answer.price;
  return {.struct_size = 0,
          .time_us = price.time.count(),
          .low_us = answer.low.count(),
          .high_us = answer.high.count(),
          .latency_us = price.latency.count(),
          .wire_us = price.wire.count(),
          .bus_gb_per_s = price.bus_bandwidth.value * 1e-9,
          .algorithm_gb_per_s = answer.algorithm_bandwidth().value * 1e-9,
          .wire_bytes = price.wire_bytes.value,
          .algorithm = price.algorithm.data(),  // literals
          .protocol = price.protocol.data(),
          .nodes = answer.question.nodes,
          .in_range = price.in_range};
}

// Looked up without opening a file.
Result<Topology> topology_of(const perfmodel_predictor& predictor, const char* gpu,
                             const char* topology) {
  PERFMODEL_TRY(known, predictor.predictor.gpu(gpu));
  if (topology == nullptr) return topology_for(*known);
  PERFMODEL_TRY(named, TopologyCatalog::builtin().named(topology));
  return **named;
}

}  // namespace
}  // namespace perfmodel::c_api

using namespace perfmodel;
using namespace perfmodel::c_api;

perfmodel_status perfmodel_collective(const perfmodel_predictor* predictor, const char* gpu,
                                      const char* topology,
                                      const perfmodel_collective_question* question,
                                      perfmodel_collective_answer* answer, perfmodel_error* error) {
  if (const auto bad = clear_struct(answer, "answer", sizeof *answer, error)) return bad;
  const Arguments needed = {{predictor, "predictor"}, {gpu, "gpu"}, {question, "question"}};
  return guarded(error, needed, [&] {
    perfmodel_collective_question given;
    if (const auto bad = copy_struct(question, sizeof given, given, error)) return bad;
    const auto asked =
        collective_question(text_or_empty(given.op), {given.bytes}, given.world, given.nodes);
    if (!asked) return failed(error, asked.error());
    const auto where = topology_of(*predictor, gpu, topology);
    if (!where) return failed(error, where.error());
    const auto priced = answer_collective(*where, *asked);
    if (!priced) return failed(error, priced.error());
    write_struct(answer_of(*priced), answer);
    return PERFMODEL_OK;
  });
}
