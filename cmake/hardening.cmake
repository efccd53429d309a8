# Hardens shipped binaries: stack protectors, checked copies, branch targets (CET), addresses that differ per run,
# tables of the linker that become read-only. tests/install/hardening_test.py asks every binary. Not under sanitizers,
# which do more, nor where lines are counted.
option(PERFMODEL_HARDENING "Harden libraries and programs against what a memory error allows" ON)
add_library(perfmodel_hardening INTERFACE)
set(PERFMODEL_HARDENED OFF)
if(PERFMODEL_HARDENING AND NOT PERFMODEL_SANITIZE AND NOT PERFMODEL_COVERAGE
   AND CMAKE_SYSTEM_NAME STREQUAL "Linux" AND CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  set(PERFMODEL_HARDENED ON)
  include(CheckPIESupported)
  check_pie_supported(LANGUAGES CXX)
  target_compile_options(perfmodel_hardening INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-fstack-protector-strong>
    # Checked copies need an optimising compiler.
    $<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<CONFIG:Release,RelWithDebInfo,MinSizeRel>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    target_compile_options(perfmodel_hardening INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-fcf-protection=full>)
  endif()
  # No folder of the machine that built it; the same bytes from any.
  target_compile_options(perfmodel_hardening INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.>)
  target_link_options(perfmodel_hardening INTERFACE LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack)
endif()

# perfmodel_harden(<target>...): those that there are.
function(perfmodel_harden)
  foreach(target IN LISTS ARGN)
    if(TARGET ${target} AND PERFMODEL_HARDENED)
      target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:perfmodel_hardening>)
      set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    endif()
  endforeach()
endfunction()
