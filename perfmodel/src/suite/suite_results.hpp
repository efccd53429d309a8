#pragma once

#include <string>
#include <vector>

#include "fields/result_field.hpp"
#include "perfmodel/suite/run_suite.hpp"

namespace perfmodel::suite {

/// A report, with the options that change its figures.
struct SuiteOutput {
  SuiteReport report;
  std::string kernel_models, host;  ///< as asked for
  double host_scale = 1;
};

extern const ResultFields<SuiteModel> kSuiteModelFields;

/// The keys of documents, of one suite and of all that there are.
OrderedJson suite_json(const SuiteOutput& output);
OrderedJson suites_json(const std::vector<Suite>& suites);
std::string suite_csv(const SuiteReport& report);

}  // namespace perfmodel::suite
