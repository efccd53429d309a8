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

// Every text of a table that is no key.
template <class Visit>
void visit_texts(OverheadTable& table, Visit visit) {
  for (std::string* text : {&table.gpu, &table.command, &table.unfit_for_pools}) visit(*text);
  for (std::string& source : table.sources) visit(source);
  for (OverheadProgram& program : table.programs) {
    for (std::string* text : {&program.name, &program.gpu, &program.left_out}) visit(*text);
    for (std::string& source : program.sources) visit(source);
  }
  for (const HostTerm& host : kHostTerms) {
    if (!host.figures) continue;
    for (auto& [key, named] : (table.*host.figures).by_name) visit(named.name);
  }
  for (auto& list : table.templates.lists) {
    for (TemplateCall& call : list) {
      visit(call.call);
      visit(call.kernel);
    }
  }
  for (std::string& warning : table.warnings) visit(warning);
  for (RecordingFinding& finding : table.recording.findings) visit(finding.sentence);
}

}  // namespace

void anonymize(OverheadTable& table, Anonymizer& anonymizer) {
  visit_texts(table, [&](const std::string& text) { anonymizer.learn(text); });
  for (const auto* figures : {&table.t4, &table.ops}) {
    for (const auto& [name, stats] : *figures) anonymizer.learn(name);
  }
  visit_texts(table, [&](std::string& text) { anonymizer.replace(text); });
  rename_figures(table.t4, anonymizer);
  rename_figures(table.ops, anonymizer);
}

}  // namespace perfmodel
