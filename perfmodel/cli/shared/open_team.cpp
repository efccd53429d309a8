#include "open_team.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "../mpi/module.hpp"
#include "terminal/hosted_run.hpp"

namespace perfmodel::cli {
namespace {

namespace fs = std::filesystem;

// The number of ranks as the starter of this process says it; "several" if it does not.
std::optional<std::string> ranks_of_job() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const char* size = std::getenv(name); size && *size) return size;
  }
  if (std::getenv("PMIX_RANK")) return "several";
  return std::nullopt;
}

Unexpected no_team(const std::string& ranks, const std::string& why) {
  return decline(
      fmt::format("expected to talk to the other ranks of this job ({}), found {}", ranks, why));
}

}  // namespace

Result<std::shared_ptr<sweep::Team>> open_team() {
  if (HostedRun::current()) return std::shared_ptr<sweep::Team>();  // ranks, if any, are the host's
  const auto ranks = ranks_of_job();
  if (!ranks || *ranks == "1") return std::shared_ptr<sweep::Team>();
  std::error_code failure;
  const fs::path module =
      fs::read_symlink("/proc/self/exe", failure).parent_path() / mpi::kModuleFile;
  if (failure || !fs::exists(module, failure)) {
    return no_team(*ranks, fmt::format("no {} beside the program (it is built where MPI is found); "
                                       "--shard divides a sweep without MPI",
                                       mpi::kModuleFile));
  }
  // Open MPI's own modules look for its symbols among the global ones.
  void* handle = dlopen(module.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!handle) return no_team(*ranks, dlerror());
  const auto open = reinterpret_cast<mpi::OpenTeamFunction*>(dlsym(handle, mpi::kOpenTeamSymbol));
  if (!open) return no_team(*ranks, "a module of another version of this program");
  std::shared_ptr<sweep::Team> team(open());
  if (!team) return no_team(*ranks, "an MPI without threads (MPI_THREAD_SERIALIZED)");
  if (team->size() == 1) team.reset();
  return team;
}

}  // namespace perfmodel::cli
