#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tree_ensemble.hpp"

namespace perfmodel::learned {

/// The nodes of an ensemble as text that a JSON string holds: base64 of five bytes per node, tree
/// after tree in preorder. First byte: the feature of a split, 255 for a leaf; then the threshold
/// or the leaf's value, a 32-bit float, little endian. A split has two children, so the order tells
/// where each tree ends. Less than half as long as lists of numbers, and no number is parsed.
std::string tree_text(const TreeEnsemble& ensemble);

/// Adds the nodes to `ensemble`. The answer is empty, or names the expected text: features are
/// below `columns`, values are finite, each tree is whole and has 1 to 65535 nodes.
std::string read_tree_text(std::string_view text, std::size_t columns, TreeEnsemble& ensemble);

}  // namespace perfmodel::learned
