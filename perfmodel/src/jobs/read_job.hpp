#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "builders/configured_decoder.hpp"
#include "fields/result_field.hpp"
#include "job_reading.hpp"
#include "layout/layout_inputs.hpp"

namespace perfmodel {

/// Values of flags by the field's name; they count before what the file says.
using GivenFields = std::map<std::string, std::string>;

/// Whether it is a file, but not the config.json of a model.
bool may_be_job(const std::filesystem::path& file);

/// Whether it has the settings of a known trainer, or is named as such files are. Cheap: a recorded
/// graph is not read.
bool is_job(const std::filesystem::path& file);

/// Reads a training job and writes what it says into the question, unless `given` says otherwise.
/// `given` may have "model", too. Errors: as read_job_text() and recognised_format() have
/// them; values that no row of the format's table knows, settings that contradict each other.
Result<JobReading> read_job(const std::filesystem::path& file, const GivenFields& given,
                            LayoutInputs& inputs);

/// Whether it is a part of the layout, which a search may choose: one of the fields from `dp` on.
bool is_of_layout(std::string_view field);

/// Copies the parts of the layout, which a search chooses, from another question.
void copy_layout(const LayoutInputs& from, LayoutInputs& to);

OrderedJson job_json(const JobReading& reading);

}  // namespace perfmodel
