#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perfmodel/graph/chakra.hpp"
#include "perfmodel/result.hpp"
#include "rank_program.hpp"

namespace perfmodel {

/// Makes the programs of all stages of a pipeline from the program of one rank, in order. Sends and
/// receives meet.
///
/// The rank's sends and receives mark where passes begin and end: a receive from the previous stage
/// begins a forward pass, a send to the next one ends it; a receive from the next stage begins a
/// backward pass, a send to the previous one ends it. The first message tells which neighbour is
/// which: the first forward pass of the step either receives or, on the first stage, only sends.
/// Autograd's functions tell the two directions apart. What follows the last backward pass
/// (optimizer) belongs to no pass.
///
/// Each stage runs copies of these passes in the recorded order: GPipe if all forward passes come
/// first although 1F1B would have begun the backward passes, else 1F1B. With several chunks of
/// layers per stage the order is Megatron-LM's interleaved one, whose last stage sends to the first
/// one; the first and the last stage show the chunks by passes that lack a message, the others by
/// the passes before the first backward one. Stages that lack a neighbour neither send to it nor
/// receive from it; the others do both. Copies have the recorded rank's layers: an embedding or a
/// loss is in every stage or in none. `layers` has a number for each stage if they differ: a
/// stage's work takes as many times the recorded one's as it has more layers.
///
/// Errors: no messages, more than two neighbours, several steps, passes that do not come in pairs
/// or in another order, several chunks on two stages, which cannot be told apart.
Result<std::vector<RankProgram>> make_stage_programs(const RankProgram& recorded,
                                                     std::int64_t stages,
                                                     const std::vector<double>& layers,
                                                     std::vector<std::string>& warnings);

/// The traces of all ranks, stage by stage, from one trace per stage: `per_stage` ranks of each
/// stage do the same and exchange messages with the rank of their own position. Adds the group of
/// each stage, which all its collectives span, to `options`. Errors: collectives of other groups.
Result<std::vector<ChakraTrace>> traces_of_all_ranks(const std::vector<ChakraTrace>& stages,
                                                     std::int64_t per_stage,
                                                     ChakraJobOptions& options);

}  // namespace perfmodel
