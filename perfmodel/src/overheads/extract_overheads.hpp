#pragma once

#include <span>

#include "perfmodel/detail/overhead_table.hpp"

namespace perfmodel {

// One extractor per method; `table` comes with its provenance filled in.
Result<OverheadTable> extract_raw(std::span<const OverheadSource> sources,
                                  const OverheadOptions& options, OverheadTable table);
Result<OverheadTable> extract_context(std::span<const OverheadSource> sources,
                                      const OverheadOptions& options, OverheadTable table);
Result<OverheadTable> extract_lin(std::span<const OverheadSource> sources,
                                  const OverheadOptions& options, OverheadTable table);

}  // namespace perfmodel
