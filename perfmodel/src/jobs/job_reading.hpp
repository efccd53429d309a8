#pragma once

#include <string>
#include <vector>

namespace perfmodel {

/// A setting, its place, and its meaning to `layout`.
struct JobLine {
  std::string key, value;  ///< as the file has them; no key: worked out from other settings
  std::string field = {};  ///< a field of `layout`, or a fact of which fields are worked out
  std::string as = {};     ///< its value
  int line = 0;
};

/// The settings of a training job, by their fate.
struct JobReading {
  std::string file, format;
  std::vector<JobLine> understood = {};
  std::vector<JobLine> assumed = {};       ///< the trainer's defaults, of what the file leaves out
  std::vector<JobLine> overridden = {};    ///< by flags
  std::vector<JobLine> ignored = {};       ///< no influence on time or memory
  std::vector<JobLine> not_modelled = {};  ///< an influence that `layout` cannot say
  std::vector<JobLine> unknown = {};
};

}  // namespace perfmodel
