#pragma once

#include <string>
#include <string_view>

namespace perfmodel {

/// Version of the programs and libraries: "0.1.0".
std::string_view program_version();

/// The commit that this was built from: 12 hexadecimal digits, followed by "-dirty" if files
/// differed from it; "unknown" outside of a git checkout.
std::string_view git_revision();

/// Both: "0.1.0 (git 0123456789ab)".
std::string version_text();

/// The text of `--version`, with the compiler and the build type:
/// "0.1.0 (git 0123456789ab, GNU 12.2.0, Release)".
std::string build_text();

}  // namespace perfmodel
