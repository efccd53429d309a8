# The program perfpredict-first is `predict` alone, of models and files as they are (no rewrites, no other command), so
# that a quickstart answers after half of the build. Its sources become object libraries, of which the
# libraries are made, too: nothing is compiled twice. A source that uses another folder's needs a word in BUT there, or
# the program does not link.

# perfmodel_first_objects(<target> [LATER <regex>] [BUT <regex>]): the target's sources, except those that match LATER and
# not BUT, become the object library <target>_first.
function(perfmodel_first_objects target)
  if(NOT PERFMODEL_FIRST_ANSWER)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "LATER;BUT" "")
  get_target_property(sources ${target} SOURCES)
  set(later ${sources})
  if(arg_LATER)
    list(FILTER later INCLUDE REGEX "${arg_LATER}")
    if(arg_BUT)
      list(FILTER later EXCLUDE REGEX "${arg_BUT}")
    endif()
  else()
    set(later)
  endif()
  list(REMOVE_ITEM sources ${later})
  set(first ${target}_first)
  add_library(${first} OBJECT ${sources})
  set_target_properties(${target} PROPERTIES SOURCES "${later};$<TARGET_OBJECTS:${first}>" LINKER_LANGUAGE CXX)
  # The same flags, but not the libraries, which would have to be built first.
  target_compile_features(${first} PRIVATE cxx_std_20)
  target_compile_definitions(${first} PRIVATE $<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>)
  target_include_directories(${first} PRIVATE $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>)
  target_compile_options(${first} PRIVATE $<TARGET_PROPERTY:${target},COMPILE_OPTIONS>)
  set_target_properties(${first} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  get_target_property(needed ${target} MANUALLY_ADDED_DEPENDENCIES)
  if(needed)
    add_dependencies(${first} ${needed})
  endif()
  perfmodel_in_pieces(12 ${first})
endfunction()
