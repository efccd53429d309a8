#pragma once

namespace perfmodel {

// Text of data/names/{calls,kernels,rows}.json, compiled in: reading a trace needs no data folder.
extern const char* const kCallNamesJson;
extern const char* const kKernelNamesJson;
extern const char* const kRowNamesJson;

}  // namespace perfmodel
