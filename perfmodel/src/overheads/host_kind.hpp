#pragma once

#include <cstdint>
#include <string_view>

#include "perfmodel/detail/overhead_table.hpp"

namespace perfmodel {

/// Kind of an op for the host that runs it, by its name as graphs hold it: "any view", "any
/// gradient of a view", "any list of tensors", ... Ops of a kind take about the same time, whatever
/// they compute: an op that no table has seen takes the time of its kind.
std::string_view host_kind(std::string_view op);

/// Whether an op is a node of the backward pass, as autograd's engine runs it.
bool runs_gradient(std::string_view op);

/// Key of the kind in the figures of a term, which has figures by op name, too.
std::uint64_t host_kind_key(std::string_view op);

/// Whether the name belongs to a kind, not to an op.
bool is_host_kind(std::string_view name);

/// Adds figures of each kind to the figures by name: the median of the means of its ops, which
/// weigh alike. Lists of tensors have figures already, by their length.
void add_kinds(OverheadTerm& term);

}  // namespace perfmodel
