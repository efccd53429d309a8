#pragma once

#include "fields/result_field.hpp"
#include "perfmodel/job_duration.hpp"

namespace perfmodel {

extern const ResultFields<JobDuration> kJobDurationFields;

/// The errors of `job_durations` that need no prediction.
Result<void> check_question(const JobDurationQuestion& question);

/// Sets `steps` of a row, whose prediction may be older than the question.
void set_steps(const JobDurationQuestion& question, JobDuration& row);

}  // namespace perfmodel
