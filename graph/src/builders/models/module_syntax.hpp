#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <variant>
#include <vector>

namespace perfmodel {

/// A node of the text that describes models: a part of Python, with braces for records. Every text
/// is compiled in, so one that cannot be read is a defect.
struct Syntax {
  enum class Kind : std::uint8_t {
    kConstant,  ///< a number, a flag or none
    kText,      ///< "gelu"
    kName,      ///< x
    kMember,    ///< parts[0].text
    kIndex,     ///< parts[0][parts[1]]
    kList,      ///< [parts, ...]
    kEach,      ///< [parts[0] for text in parts[1]]
    kRecord,    ///< {text of each part: its parts[0], ...}
    kCall,      ///< text(parts, ...)
    kOperator,  ///< parts[0] text parts[1], or text parts[0]
    kChoice,    ///< parts[1] if parts[0] else parts[2]
    kAssign,    ///< text = parts[0]; "a, b = ..." takes a list apart
    kAdd,       ///< text += parts[0]
    kIf,        ///< if parts[0]: block parts[1], else block parts[2] (may be missing)
    kWhile,     ///< while parts[0]: block parts[1]
    kFor,       ///< for text in parts[0]: block parts[1]
    kWithout,   ///< without_gradient: block parts[0]
    kReturn,    ///< return parts[0]
    kBlock,     ///< statements
  };
  Kind kind = Kind::kConstant;
  std::string_view text = {};
  std::variant<std::monostate, std::int64_t, double, bool> constant = {};
  std::vector<Syntax> parts = {};
  int line = 0;
};

/// def name(parameters): body. A parameter may have a default, an expression.
struct Definition {
  std::string_view name;
  std::vector<Syntax> parameters;  ///< kAssign with a default, else kName
  Syntax body;
};
/// The functions of the texts, each read when it is first asked for: a model needs a few of many.
struct Definitions {
  struct Unread;
  std::vector<std::string_view> names;  ///< in the order of the texts
  std::map<std::string_view, std::shared_ptr<Unread>> by_name;

  /// From any thread. Null: there is none of that name.
  const Definition* find(std::string_view name) const;
  /// The ends of all names that begin with `prefix`.
  std::vector<std::string_view> with_prefix(std::string_view prefix) const;
};

/// All functions of the texts in models/.
const Definitions& module_definitions();

}  // namespace perfmodel
