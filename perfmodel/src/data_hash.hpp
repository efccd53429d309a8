#pragma once

#include <string>

namespace perfmodel {

/// 16 digits that change with each name and byte of the data files that predictions read: all of
/// the data folder except `measurements/` and `graphs/`. Worked out once in a process, in some
/// milliseconds; empty: there is no data folder, or a file of it cannot be read.
const std::string& data_hash();

}  // namespace perfmodel
