#pragma once

#include "perfmodel/graph/detail/recording.hpp"

namespace perfmodel {

/// {"findings": [{"kind": ..., "count": ..., "sentence": ...}]}: what a check found, as every
/// document that came from a trace has it under "recording".
template <class Json>
Json recording_json(const Recording& recording) {
  Json findings = Json::array();
  for (const RecordingFinding& finding : recording.findings) {
    findings.push_back(
        {{"kind", finding.kind}, {"count", finding.count}, {"sentence", finding.sentence}});
  }
  return {{"findings", std::move(findings)}};
}

}  // namespace perfmodel
