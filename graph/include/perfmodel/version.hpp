#pragma once

#include <string>
#include <string_view>

namespace perfmodel {

/// Of the programs and libraries alike: "0.1.0".
std::string_view program_version();

/// The commit that this was built from: 12 hexadecimal digits, with "-dirty" behind them where
/// files differed from it; "unknown" outside of a git checkout.
std::string_view git_revision();

/// Both: "0.1.0 (git 0123456789ab)".
std::string version_text();

/// What `--version` says, with the compiler and the build type:
/// "0.1.0 (git 0123456789ab, GNU 12.2.0, Release)".
std::string build_text();

}  // namespace perfmodel
