#include "anonymous_inputs.hpp"

namespace perfmodel {

void anonymize(Trace& trace, Anonymizer& anonymizer) {
  anonymizer.learn(trace.source);
  for (const TraceThread& thread : trace.threads) anonymizer.learn(thread.name);
  anonymizer.replace_names(trace.names);
  anonymizer.replace(trace.source, trace.unread);
  for (TraceThread& thread : trace.threads) {
    anonymizer.replace(thread.process_id, thread.thread_id, thread.name);
  }
  for (TraceDevice& device : trace.devices) anonymizer.replace(device.name);
  for (std::string& warning : trace.warnings) anonymizer.replace(warning);
  for (RecordingFinding& finding : trace.recording.findings) anonymizer.replace(finding.sentence);
}

void anonymize(ExecutionGraph& graph, Anonymizer& anonymizer) {
  anonymizer.learn(graph.source);
  anonymizer.replace_names(graph.names);
  anonymizer.replace(graph.source);
  if (!graph.captured.empty()) graph.captured = "{}";
  for (CommRecord& record : graph.comm_records) anonymizer.replace(record.process_group);
  for (ProcessGroup& group : graph.process_groups) {
    anonymizer.replace(group.name, group.description);
  }
  for (std::string& warning : graph.warnings) anonymizer.replace(warning);
}

}  // namespace perfmodel
