#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "perfmodel/detail/explanation.hpp"
#include "perfmodel/layout.hpp"
#include "perfmodel/prediction.hpp"

namespace perfmodel::serve {

using Json = nlohmann::ordered_json;

/// Answer to `predict`; with ops if the prediction kept them.
Json prediction_json(const Prediction& prediction);
Json explanation_json(const Explanation& explanation);

/// Answer to `layout`: one layout with its price. `notes`: parts of the model that are left out.
Json layout_answer(const RankedLayout& layout, const std::vector<std::string>& notes);
/// Answer to `layout_rank`.
Json ranking_answer(const LayoutRanking& ranking, const std::vector<std::string>& notes);

/// JSON text without newlines, in UTF-8 whatever the strings hold.
std::string json_line(const Json& json);

/// One line without newline.
std::string result_line(const std::string& id, const Json& result);
/// The same of a result in JSON text without newlines.
std::string result_line(const std::string& id, std::string_view result);
/// The message is plain text without secrets, whatever the request or a file held.
std::string error_line(const std::string& id, const std::string& code, const std::string& message);
/// The same for a request that was not read: `"id":null`.
std::string error_line(const char* code, const std::string& message);

}  // namespace perfmodel::serve
