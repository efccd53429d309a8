#pragma once

#include <string>
#include <vector>

#include "analyze/step_facts.hpp"
#include "fields/result_field.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A part of the step's work [us per step]. The parts run side by side and do not add up.
struct GateSum {
  std::string name;
  double before_us = 0, after_us = 0;
  double change_us() const { return after_us - before_us; }
};

/// Work that a change added or took away, by its purpose. Figures are per step.
struct GateReason {
  std::string name;  ///< "waits for the GPU", "attention", "casts", "collectives" or an op
  double count_before = 0, count_after = 0;  ///< kernels and copies; of waits: waits
  double device_before_us = 0, device_after_us = 0;
  double host_before_us = 0, host_after_us = 0;
  double wait_before_us = 0, wait_after_us = 0;
  /// The step without this change is shorter by so much; below 0: the change gains.
  double cost_us = 0;

  double device_change_us() const { return device_after_us - device_before_us; }
  double host_change_us() const { return host_after_us - host_before_us; }
  double wait_change_us() const { return wait_after_us - wait_before_us; }
};

/// Why a step takes another time than before.
struct StepCost {
  std::vector<GateSum> sums;
  std::vector<GateReason> reasons;  ///< largest cost or gain first; not what costs less than 0.05 %
  double rest_us = 0;               ///< change of the step less all costs
};

/// A step and its schedule.
struct ScheduledStep {
  const findings::StepFacts& facts;
  const findings::Rescheduler& schedule;
  double step_us = 0;  ///< as it is
};

/// Puts each kernel, op and wait of two steps into one group: reading a value (aten::item) and
/// other waits, casts, attention if it became fused or unfused, collectives, else the outermost op.
/// The groups that changed most are scheduled again with as much work as before the change;
/// the difference is their cost. Errors of the schedules.
Result<StepCost> step_cost(const ScheduledStep& before, const ScheduledStep& after);

extern const ResultFields<GateSum> kGateSumFields;
extern const ResultFields<GateReason> kGateReasonFields;

}  // namespace perfmodel
