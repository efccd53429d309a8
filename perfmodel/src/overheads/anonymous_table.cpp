#include "anonymous_table.hpp"

#include <string>
#include <utility>

namespace perfmodel {
namespace {

// Two names that become one: the figures of the one with more samples.
void rename_figures(std::map<std::string, OverheadStats>& figures, Anonymizer& anonymizer) {
  std::map<std::string, OverheadStats> renamed;
  for (auto& [name, stats] : figures) {
    const auto [at, is_new] = renamed.try_emplace(anonymizer.replaced(name), stats);
    if (!is_new && at->second.count < stats.count) at->second = stats;
  }
  figures = std::move(renamed);
}

}  // namespace

void anonymize(OverheadTable& table, Anonymizer& anonymizer) {
  for (std::string& source : table.sources) anonymizer.replace(source);
  anonymizer.replace(table.gpu, table.command, table.unfit_for_pools);
  for (OverheadProgram& program : table.programs) {
    anonymizer.replace(program.name, program.gpu, program.left_out);
    for (std::string& source : program.sources) anonymizer.replace(source);
  }
  for (const HostTerm& host : kHostTerms) {
    if (!host.figures) continue;
    for (auto& [key, named] : (table.*host.figures).by_name) anonymizer.replace(named.name);
  }
  rename_figures(table.t4, anonymizer);
  rename_figures(table.ops, anonymizer);
  for (auto& list : table.templates.lists) {
    for (TemplateCall& call : list) anonymizer.replace(call.call, call.kernel);
  }
  for (std::string& warning : table.warnings) anonymizer.replace(warning);
}

}  // namespace perfmodel
