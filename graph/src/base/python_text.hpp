#pragma once

#include <string>
#include <string_view>

namespace perfmodel {

/// The JSON text of a Python literal: `{'ranks': (0, 1), 'local': True}` becomes
/// `{"ranks": [0, 1], "local": true}`. JSON stays as it is; other text becomes no JSON.
std::string json_of_python(std::string_view literal);

/// The name of a process group that may be written as a dictionary or a tuple, in JSON or Python:
/// "1", "{'pg_name': '1', 'ranks': [0, 1]}" and "('1', 'mp')" all name "1".
std::string process_group_name(std::string_view text);

}  // namespace perfmodel
