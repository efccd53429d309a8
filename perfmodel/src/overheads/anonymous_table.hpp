#pragma once

#include "base/anonymize.hpp"
#include "perfmodel/detail/overhead_table.hpp"

namespace perfmodel {

/// Pseudonyms in the place of names of users, hosts and addresses (base/anonymize.hpp) in every
/// text of a table. Keys by context are hashes of the names as recorded and stay: programs find
/// their contexts in it; an op whose name changed is priced by its context, else by the mean of all
/// ops.
void anonymize(OverheadTable& table, Anonymizer& anonymizer);

}  // namespace perfmodel
