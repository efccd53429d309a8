#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "perfmodel/graph/detail/string_pool.hpp"

namespace perfmodel {

struct Item;
struct ModuleCall;
struct ModuleText;
using ModuleFunction = Item (*)(const ModuleCall&);
using ModuleFunctions = std::unordered_map<std::string_view, ModuleFunction>;
/// By names.
const ModuleFunctions& module_functions();
/// The part for models of jobs of several ranks.
ModuleFunctions job_functions();

/// A function that is called: one of the texts, one that is written in C++, or else an op.
struct Callee {
  ModuleText* text = nullptr;
  ModuleFunction written = nullptr;
};
/// An unknown name is a defect; ops have "::" in theirs.
Callee callee_of(std::string_view name);

/// A name as a number, so that runs compare no texts. From any thread.
struct Name {
  Name() = default;
  Name(std::string_view text);
  Name(const char* text) : Name(std::string_view(text)) {}
  NameId number = 0;
};

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
    kEach,      ///< [parts[0] for parts[2] in parts[1]]
    kRecord,    ///< {member of each part: its parts[0], ...}
    kCall,      ///< text(parts, ...)
    kOperator,  ///< parts[0] text parts[1], or text parts[0]
    kChoice,    ///< parts[1] if parts[0] else parts[2]
    kAssign,    ///< parts[1], ... = parts[0]: several names take a list apart
    kAdd,       ///< parts[1] += parts[0]
    kIf,        ///< if parts[0]: block parts[1], else block parts[2] (may be missing)
    kWhile,     ///< while parts[0]: block parts[1]
    kFor,       ///< for parts[2] in parts[0]: block parts[1]
    kWithout,   ///< without_gradient: block parts[0]
    kReturn,    ///< return parts[0]
    kBlock,     ///< statements
  };
  Kind kind = Kind::kConstant;
  std::string_view text = {};
  std::variant<std::monostate, std::int64_t, double, bool> constant = {};
  std::vector<Syntax> parts = {};
  int line = 0;
  // Known when the whole function is read:
  std::int32_t slot = -1;  ///< a variable's place; -1: all functions see the name
  Name name = {};          ///< a name or a member
  Callee callee = {};
};

/// def name(parameters): body. A parameter may have a default, an expression.
struct Definition {
  std::string_view name;
  std::vector<Syntax> parameters;  ///< kAssign with a default, else kName
  Syntax body;
  bool has_variables = false;  ///< it has a list of parameters; else all functions see its names
  std::int32_t num_slots = 0;  ///< for parameters, variables, names of "[... for name in list]"
};
/// The function of a text, read when it is first asked for; from any thread.
const Definition& definition_of(ModuleText& text);

/// The functions of the texts, each read when it is first asked for: a model needs a few of many.
struct Definitions {
  std::vector<std::string_view> names;  ///< in the order of the texts
  std::unordered_map<std::string_view, std::shared_ptr<ModuleText>> by_name;

  /// From any thread. Null: there is none of that name.
  const Definition* find(std::string_view name) const;
  /// The ends of all names that begin with `prefix`.
  std::vector<std::string_view> with_prefix(std::string_view prefix) const;
};

/// All functions of the texts in models/.
const Definitions& module_definitions();

}  // namespace perfmodel
