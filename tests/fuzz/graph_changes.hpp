#pragma once

#include <nlohmann/json.hpp>
#include <random>

namespace perfmodel::fuzz {

/// Changes a document that holds an execution graph, or says how one of the bases is to be changed
/// (rewritten_graphs.hpp), as somebody would who knows what its fields mean: threads, parents, ids,
/// order, sizes, types, storages. False: it is no such document.
bool change_graph(nlohmann::ordered_json& document, std::minstd_rand& random);

}  // namespace perfmodel::fuzz
