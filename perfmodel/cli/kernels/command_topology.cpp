#include <fmt/format.h>

#include <memory>

#include "base/byte_amount.hpp"
#include "cli/kernels/network_options.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/write_asked.hpp"
#include "kernels/topology_fit.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/field_table.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

struct TopologyArguments : TopologyFitStudy {
  std::string output;
};

void add_figures(const std::vector<FittedFigure>& figures, TextList& list) {
  for (const FittedFigure& figure : figures) {
    list.row("  " + figure.name,
             fmt::format("{:.4g} ({:.4g} to {:.4g})", figure.value, figure.low, figure.high));
  }
}

std::string fit_text(const TopologyFit& fit) {
  TextList list;
  for (const std::string& warning : fit.warnings) list.row("warning", warning);
  for (const GroupFit& at : fit.groups) {
    const auto& sizes = at.group.sizes;
    // The error of sizes that were not fitted, if there are enough to leave some out.
    list.row("fitted", fmt::format("{}, {} to {}: {:.1f} % off", at.group.text(),
                                   byte_amount_text(sizes.front().bytes),
                                   byte_amount_text(sizes.back().bytes),
                                   at.half_percent.value_or(at.error_percent)));
    add_figures(at.figures, list);
    list.row("  sizes",
             fmt::format("{} measured, {} needed{}", sizes.size(), at.enough,
                         at.half_percent ? "; every second one predicts the others" : ""));
    for (const std::string& sentence : at.deviations) list.row("deviates", sentence);
  }
  if (!fit.figures.empty()) list.row("NICs", "share of the data sheet, latency");
  add_figures(fit.figures, list);
  return list.text();
}

Result<void> run_fit(const TopologyArguments& arguments) {
  PERFMODEL_TRY(fit, fit_topology(arguments));
  PERFMODEL_TRY_TO(write_asked(arguments.output, [&] { return to_text(fit->topology); }));
  return print_report(fit_text(*fit));
}

}  // namespace

Command topology_command(CommandParser parent) {
  auto arguments = std::make_shared<TopologyArguments>();
  const CommandParser topology =
      parent.add_subcommand("topology", "Topology files: links, NICs and measured collectives");
  topology.require_subcommand(1);
  const CommandParser app = topology.add_subcommand(
      "fit", "Fits a topology file to logs of nccl-tests or rccl-tests, and says what deviates");
  app.add_argument("LOG", arguments->logs, "Output of nccl-tests or rccl-tests");
  app.add_option("--gpu NAME", arguments->gpu, "A known name, or a GPU file").required();
  app.add_option("--like NAME", arguments->like,
                 "The healthy machine: a known topology or a file (default: what the GPU usually "
                 "sits in)");
  add_network_options(app, "--like", arguments->network);
  app.add_option("--op OP", arguments->reading.op, "The collective, if the logs do not name it");
  app.add_option("--world N", arguments->reading.world, "GPUs, if the logs do not list them")
      .check(at_least(2));
  app.add_option("--nodes N", arguments->reading.nodes, "Nodes, if the logs do not list the GPUs")
      .check(at_least(1));
  app.add_flag("--in-place", arguments->reading.in_place, "Take the times in place");
  app.add_option("--name NAME", arguments->name, "Name of the topology (default: ...-fitted)");
  app.add_option("-o,--output FILE", arguments->output, "Write the topology file");
  return {app, [arguments] { return run_fit(*arguments); }};
}

}  // namespace perfmodel::cli
