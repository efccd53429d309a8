#include <fmt/format.h>

#include <memory>

#include "base/byte_amount.hpp"
#include "cli/kernels/network_options.hpp"
#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/write_asked.hpp"
#include "kernels/collective_answer.hpp"
#include "plot/line_plot.hpp"
#include "plot/svg_document.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/field_table.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

struct CollectiveArguments : CollectiveStudy {
  std::string plot;
  bool json = false;
};

std::string title_of(const CollectiveTable& table) {
  return fmt::format("{} of {} on {} of {}, {}", table.study.op,
                     counted(static_cast<std::size_t>(table.study.world), "GPU"),
                     counted(static_cast<std::size_t>(table.rows.front().question.nodes), "node"),
                     table.topology.name, table.gpu);
}

/// One size, in words.
void add_rows(const CollectiveAnswer& answer, TextList& list) {
  const CollectiveTime& price = answer.price;
  list.row("size", byte_amount_text(answer.question.bytes.value));
  list.row("time",
           fmt::format("{:.2f} us ({:.2f} to {:.2f}){}", price.time.count(), answer.low.count(),
                       answer.high.count(), price.in_range ? "" : ", out of what was measured"));
  list.row("  is made of", fmt::format("{:.2f} us latency, {:.2f} us on the wire",
                                       price.latency.count(), price.wire.count()));
  list.row("bus bandwidth",
           fmt::format("{:.4g} GB/s (algorithm's: {:.4g})", price.bus_bandwidth.value * 1e-9,
                       answer.algorithm_bandwidth().value * 1e-9));
  list.row("NCCL takes", fmt::format("{}, {}", price.algorithm, price.protocol));
}

std::string collective_text(const CollectiveTable& table, bool bold) {
  TextList list;
  for (const std::string& warning : table.warnings) list.row("warning", warning);
  list.row("collective", title_of(table));
  if (table.study.network.says_nics()) {
    const Topology::Nic& nic = *table.topology.nic;
    list.row("NICs of a node", fmt::format("{} x {:.4g} GB/s, {:.4g} us", nic.count,
                                           nic.bandwidth.value * 1e-9, nic.latency.count()));
  }
  if (table.rows.size() == 1) {
    add_rows(table.rows.front(), list);
    return list.text();
  }
  const TextTable rows =
      field_table(table.rows, kCollectiveSizeFields,
                  {"bytes", "time_us", "low_us", "high_us", "bus_gb_per_s", "algorithm_gb_per_s",
                   "latency_us", "wire_us", "algorithm", "protocol", "in_range"});
  return list.text() + "\n" + rows.text(bold);
}

// Bus bandwidth over the sizes with its range.
Result<std::string> collective_svg(const CollectiveTable& table) {
  LinePlot plot{.title = "Bus bandwidth", .x_label = "bytes", .y_label = "GB/s", .legend = false};
  LinePlot::Line line{.name = table.study.op, .points = {}};
  for (const CollectiveAnswer& row : table.rows) {
    const double wire = row.price.wire_bytes.value * 1e-3;  // GB/s are this by us
    line.points.emplace_back(row.question.bytes.value, wire / row.price.time.count());
    line.ranges.emplace_back(wire / row.high.count(), wire / row.low.count());
  }
  plot.lines.push_back(std::move(line));
  PERFMODEL_TRY(panel, line_panel(plot));
  return svg_document(fmt::format("{} of {} GPUs", table.study.op, table.study.world),
                      fmt::format("{}, {}; predicted by perfmodel", table.gpu, table.topology.name),
                      {std::move(*panel)}, 1);
}

Result<void> run_collective(const CollectiveArguments& arguments) {
  PERFMODEL_TRY(table, answer_collectives(arguments));
  PERFMODEL_TRY_TO(write_asked(arguments.plot, [&] { return collective_svg(*table); }));
  if (arguments.json) return print_document(schemas::kCollective, collective_json(*table));
  return print_report(collective_text(*table, bold_allowed()));
}

}  // namespace

Command collective_command(CommandParser parent) {
  auto arguments = std::make_shared<CollectiveArguments>();
  const CommandParser app = parent.add_subcommand(
      "collective", "How long a collective of NCCL takes between GPUs, by size");
  app.add_argument("OP", arguments->op,
                   "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, gather, "
                   "scatter, send or recv");
  app.add_argument(
      "SIZE", arguments->sizes,
      "Bytes as nccl-tests counts them: 4096, 64KiB, 1MiB, 2GiB; 1KiB:1GiB doubles from "
      "one to the other");
  app.add_option("--gpu NAME", arguments->gpu, "A known name, or a GPU file").required();
  app.add_option("--world N", arguments->world, "GPUs that take part").required();
  app.add_option("--nodes N", arguments->nodes,
                 "Nodes that they are spread over evenly (default: as few as hold them)")
      .check(at_least(1));
  app.add_option("--topology NAME", arguments->topology,
                 "A known name, or a topology file (default: what the GPU usually sits in)");
  add_network_options(app, "--topology", arguments->network);
  app.add_option("--type TYPE", arguments->type,
                 "fp32, bf16, ...: sizes without a unit count elements of this type");
  app.add_option("--plot FILE", arguments->plot, "Write bus bandwidth by size as SVG");
  app.add_flag("--json", arguments->json, "Print one JSON document");
  return {app, [arguments] { return run_collective(*arguments); }};
}

}  // namespace perfmodel::cli
