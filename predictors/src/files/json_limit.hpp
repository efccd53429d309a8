#pragma once

#include <cstdint>
#include <string_view>

#include "perfmodel/result.hpp"

namespace perfmodel {

/// Bytes that a JSON document read as a whole may have (GPUs, architectures, topologies, kernel
/// models, overhead tables, specs of sweeps, plans, studies, suites, reports). One for the process:
/// documents are read on behalf of others, deep below the command. 1 GiB unless set.
std::uint64_t json_document_limit();

/// Sets it from "512MiB" (units KiB, MiB, GiB, or bytes). Errors: no such size, 0.
Result<void> set_json_document_limit(std::string_view text);

}  // namespace perfmodel
