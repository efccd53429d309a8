#include "advice_families.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/enum_name.hpp"

namespace perfmodel::advice {
namespace {

struct Family {
  const char* name;
  /// Empty: the family makes sense; else why not.
  std::string (*contradiction)(const Job& job, AdviceObjective objective);
};

std::string none(const Job&, AdviceObjective) { return {}; }

const Family kFamilyRows[] = {
    {"batch",
     [](const Job& job, AdviceObjective objective) -> std::string {
       if (objective == AdviceObjective::kStep) {
         return "another batch changes the samples that the objective step keeps (samples-per-s "
                "allows it)";
       }
       return job.batch ? "" : "the inputs of the graph do not tell its batch";
     }},
    {"tables", none},
    {"precision", none},
    {"channels-last", none},
    {"attention", none},
    {"loss", none},
    {"norms", none},
    {"in-place", none},
    {"checkpoint", none},
    {"offload", none},
    {"accumulation",
     [](const Job& job, AdviceObjective objective) -> std::string {
       if (!job.batch) return "the inputs of the graph do not tell its batch";
       const bool divides = objective != AdviceObjective::kStep || *job.batch % 2 == 0;
       return divides ? "" : fmt::format("a batch of {} cannot be halved", *job.batch);
     }},
    {"optimizer", none},
    {"buckets",
     [](const Job& job, AdviceObjective) -> std::string {
       return job.world > 1 ? "" : "one rank reduces no gradients (--world N runs N)";
     }},
    {"ranks",
     [](const Job& job, AdviceObjective objective) -> std::string {
       if (job.world <= 1) return "one rank is the least (--world N runs N)";
       return objective == AdviceObjective::kSamplesPerGpuHour
                  ? ""
                  : "fewer GPUs help the objective samples-per-gpu-hour alone";
     }},
    {"sharding",
     [](const Job& job, AdviceObjective) -> std::string {
       return job.world > 1 ? "" : "one rank holds all tables (--world N runs N)";
     }},
    {"layout",
     [](const Job& job, AdviceObjective) -> std::string {
       return job.world > 1 ? "" : "one rank has one layout (--world N runs N)";
     }},
    {"fusion", none},
    {"cuda-graphs", none},
    {"compile", none},
};

}  // namespace

Result<std::vector<std::string>> allowed_families(const Job& job, const OptimizeOptions& options) {
  std::vector<std::string> allowed;
  for (const Family& family : kFamilyRows) {
    // Graphs of many passes take most of a search for larger batches: there it has to be named.
    const bool left_out = options.objective != AdviceObjective::kStep &&
                          std::string_view(family.name) == "accumulation";
    if (options.allow.empty() && !left_out &&
        family.contradiction(job, options.objective).empty()) {
      allowed.emplace_back(family.name);
    }
  }
  for (const std::string& name : options.allow) {
    const auto* known = std::ranges::find(kFamilyRows, name, &Family::name);
    if (known == std::end(kFamilyRows)) {
      return fail(ErrorCode::kUnknownName, fmt::format("allow: expected some of {}, found \"{}\"",
                                                       fmt::join(advice_families(), ", "), name));
    }
    const std::string why = known->contradiction(job, options.objective);
    if (!why.empty()) {
      return decline(fmt::format("allow: expected no \"{}\" with objective {} on {} {}: {}", name,
                                 to_string(options.objective), job.world,
                                 job.world == 1 ? "rank" : "ranks", why));
    }
    allowed.push_back(name);
  }
  return allowed;
}

}  // namespace perfmodel::advice

namespace perfmodel {

const std::vector<std::string>& advice_families() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> made;
    for (const advice::Family& family : advice::kFamilyRows) made.emplace_back(family.name);
    return made;
  }();
  return names;
}

std::string_view to_string(AdviceObjective objective) {
  static constexpr std::string_view kNames[] = {"step", "samples-per-s", "samples-per-gpu-hour"};
  return enum_name(kNames, objective);
}

Result<AdviceObjective> advice_objective(std::string_view name) {
  std::vector<std::string_view> names;
  for (const auto one : {AdviceObjective::kStep, AdviceObjective::kSamplesPerS,
                         AdviceObjective::kSamplesPerGpuHour}) {
    if (to_string(one) == name) return one;
    names.push_back(to_string(one));
  }
  return fail(ErrorCode::kUnknownName, fmt::format("objective: expected one of {}, found \"{}\"",
                                                   fmt::join(names, ", "), name));
}

std::string_view to_string(LostMove::Why why) {
  static constexpr std::string_view kNames[] = {"refused", "lacks units", "slower", "too large",
                                                "cannot gain"};
  return enum_name(kNames, why);
}

}  // namespace perfmodel
