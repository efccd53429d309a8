#pragma once

#include "perfmodel/predictors/topology.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

/// Adds --nics, --nic-gb-per-s and --network: the machine's NICs, in place of the NICs
/// of the topology that the flag `other` names.
void add_network_options(const CommandParser& app, const std::string& other, NetworkFacts& network);

}  // namespace perfmodel::cli
