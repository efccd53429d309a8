#pragma once

#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "sharding/study/shard_results.hpp"

/// Drawings (SVG) and the page of results about sharding. Same input, same bytes.
namespace perfmodel::report_page {

/// Load and memory of every GPU under the first plan; of many GPUs, the busiest.
Result<std::string> shard_svg(const sharding::ShardReport& report);

/// Time per batch over the values of the axis that are numbers above 0.
Result<std::string> sweep_svg(const std::string& axis, const std::vector<sharding::SweepRow>& rows);

struct StudyDrawing {
  std::string name;  ///< file name without the ending
  std::string svg;
};
/// The time of the answers to each kind of question, then samples per second over GPUs.
Result<std::vector<StudyDrawing>> study_drawings(const sharding::StudyAnswers& answers);

/// The answers as one HTML page with the drawings inside.
std::string study_html(const sharding::StudyAnswers& answers,
                       const std::vector<StudyDrawing>& drawings);

}  // namespace perfmodel::report_page
