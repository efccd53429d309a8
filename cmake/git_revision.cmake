# Run at each build: writes OUTPUT, the source that knows the commit, if that has changed.
#   cmake -D GIT=... -D SOURCE_DIR=... -D OUTPUT=... -P git_revision.cmake
set(revision unknown)
# A checkout of our own: sources that were unpacked inside of another one do not have its commits.
if(GIT AND EXISTS ${SOURCE_DIR}/.git)
  execute_process(COMMAND ${GIT} --no-optional-locks describe --always --dirty --abbrev=12 --exclude=*
    WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE described RESULT_VARIABLE failed
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT failed)
    set(revision ${described})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#include "perfmodel/version.hpp"

std::string_view perfmodel::git_revision() { return "@revision@"; }
]] @ONLY)
