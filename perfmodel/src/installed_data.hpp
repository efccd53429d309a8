#pragma once

/// The data folder of the package that a program of another project was linked with: its CMake
/// config makes a source that defines this. Null in all other programs.
extern "C" [[gnu::weak]] const char* perfmodel_package_data();

namespace perfmodel {

/// Where `cmake --install` puts the data without --prefix.
extern const char kInstalledData[];

}  // namespace perfmodel
