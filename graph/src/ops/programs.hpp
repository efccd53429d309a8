#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

namespace perfmodel {

/// A value in the third column of rows.txt: a constant, an argument by its name, or a call.
struct Expression {
  struct Name {
    std::string_view text;
  };
  struct None {};
  struct Call {
    std::string_view function;  ///< an op ("aten::neg") or a helper of the emitter ("sizes")
    std::vector<Expression> arguments;
    bool seen_by_autograd = false;  ///< "^": carries the number of the op around it
    std::string_view like;          ///< the result is like this argument; empty: as broadcast
    bool gives_flags = false;       ///< the result is of bools
  };
  std::variant<None, Name, Call, std::int64_t, double, bool> value;
};

/// `target = value`; without a target the value is not used, or is the result if it comes last.
struct Statement {
  std::string_view target;
  Expression value;
};

/// The calls that PyTorch makes inside an op, and its backward function.
struct OpProgram {
  struct Argument {
    std::string_view name;
    bool is_tensor = false;
  };
  std::vector<Argument> arguments;
  bool in_place = false;             ///< the result is the first argument
  std::string_view like;             ///< as in a call
  std::vector<Statement> calls;      ///< inside the op; empty: it launches its kernel itself
  std::string_view node;             ///< backward function; empty: the op has none
  std::vector<Statement> gradients;  ///< to arguments, and values on the way to them
};

/// The program of an op by its name with overload. A row that cannot be read is a defect.
const OpProgram& program_of(std::string_view op);

}  // namespace perfmodel
