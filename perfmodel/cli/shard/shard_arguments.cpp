#include "shard_arguments.hpp"

#include "cli/shared/field_flags.hpp"
#include "cli/shared/kernel_models_option.hpp"
#include "sharding/study/shard_fields.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

void add_shard_options(CommandParser app, ShardArguments& arguments) {
  app.add_argument("tables TABLES", arguments.tables,
                   "Study (JSON), list of tables (CSV table,rows,dim,pooling) or execution graph");
  for (const sharding::ShardField& field : sharding::shard_fields()) {
    add_field<sharding::ShardQuestion>(app, field, arguments);
  }
  add_models_option(app, arguments.models);
  app.add_flag("--json", arguments.json, "Print one JSON document");
}

}  // namespace perfmodel::cli
