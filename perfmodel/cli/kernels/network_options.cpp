#include "cli/kernels/network_options.hpp"

#include "cli/shared/arguments.hpp"

namespace perfmodel::cli {

void add_network_options(const CommandParser& app, const std::string& other,
                         NetworkFacts& network) {
  app.add_option("--nics N", network.nics, "NICs of a machine, if " + other + " has others")
      .check(between(1, 1e6));
  app.add_option_function<double>(
         "--nic-gb-per-s X", [&](double rate) { network.nic_bandwidth = {rate * 1e9}; },
         "One NIC, one direction (400 Gb/s: 50)")
      .check(between(1e-3, 1e6));
  app.add_option("--network KIND", network.network, network_kinds());
}

}  // namespace perfmodel::cli
