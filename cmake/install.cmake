# Libraries, headers, the program, data and the package config; included by the top level.
set(PERFMODEL_INSTALL_CMAKEDIR ${CMAKE_INSTALL_LIBDIR}/cmake/perfmodel)
set(PERFMODEL_INSTALL_DATADIR ${CMAKE_INSTALL_DATADIR}/perfmodel/data)

install(TARGETS perfmodel_graph perfmodel_predictors perfmodel_schedule perfmodel_perfmodel
  EXPORT perfmodelTargets)
install(TARGETS perfmodel_c EXPORT perfmodelTargets)
install(EXPORT perfmodelTargets NAMESPACE perfmodel:: DESTINATION ${PERFMODEL_INSTALL_CMAKEDIR})
install(TARGETS perfpredict)

# Programs that nothing else needs: if one was not built, a message says so, and all others are installed. All the rest
# is built by examples/quickstart.sh.
function(install_if_built target)
  if(NOT TARGET ${target})
    return()
  endif()
  install(TARGETS ${target} OPTIONAL ${ARGN})
  install(CODE "if(NOT EXISTS \"$<TARGET_FILE:${target}>\")
  message(STATUS \"Not built, so not installed: ${target}\")
endif()")
endfunction()
install_if_built(perfpredict-train)
install_if_built(perfpredict_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_BINDIR})  # found in that folder

install(DIRECTORY
  graph/include/
  predictors/include/
  perfmodel/include/
  perfmodel/schedule/include/
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp" PATTERN "perfmodel.h"
  PATTERN "training" EXCLUDE)  # only the program perfpredict-train uses them
install(DIRECTORY data/ DESTINATION ${PERFMODEL_INSTALL_DATADIR}
  PATTERN "measurements" EXCLUDE  # raw rows; what was fitted to them is in models/
  PATTERN "*.sh" EXCLUDE)  # scripts that made the files, from sources that are not installed
install_if_built(kernels_bench)
foreach(backend IN ITEMS cuda hip)
  install_if_built(kernels_bench_${backend} LIBRARY DESTINATION ${CMAKE_INSTALL_BINDIR})  # found in that folder
endforeach()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/perfmodel)

# Manual pages and completions: the programs write them out of their own parsers.
find_program(PERFMODEL_GZIP gzip)
mark_as_advanced(PERFMODEL_GZIP)
function(install_pages program)
  set(pages ${PROJECT_BINARY_DIR}/pages)
  set(page ${pages}/${program}.1)
  set(pack)
  if(PERFMODEL_GZIP)
    set(pack COMMAND ${PERFMODEL_GZIP} -9nf ${page})
    set(page ${page}.gz)
  endif()
  file(MAKE_DIRECTORY ${pages})
  add_custom_command(OUTPUT ${page} ${pages}/${program} ${pages}/_${program}
    COMMAND ${program} completion bash -o ${pages}/${program}
    COMMAND ${program} completion zsh -o ${pages}/_${program}
    COMMAND ${program} man -o ${pages}/${program}.1
    ${pack}
    DEPENDS ${program} VERBATIM)
  add_custom_target(${program}_pages ALL DEPENDS ${page})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 ${ARGN})
  install(FILES ${pages}/${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions ${ARGN})
  install(FILES ${pages}/_${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions ${ARGN})
endfunction()
if(NOT CMAKE_CROSSCOMPILING)
  install_pages(perfpredict)
  if(TARGET kernels_bench)
    install_pages(kernels_bench OPTIONAL)  # where it was built
  endif()
  # perfpredict starts perfpredict-train and has the same commands, so one page serves both.
  if(TARGET perfpredict-train)
    file(WRITE ${PROJECT_BINARY_DIR}/pages/perfpredict-train.1 ".so man1/perfpredict.1\n")
    set(page ${PROJECT_BINARY_DIR}/pages/perfpredict-train.1)
    if(PERFMODEL_GZIP)
      execute_process(COMMAND ${PERFMODEL_GZIP} -9nf ${page} COMMAND_ERROR_IS_FATAL ANY)
      set(page ${page}.gz)
    endif()
    install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  endif()
endif()

# pkg-config. Relative folders only, so that the prefix may be moved.
# Static libraries need what they use in every link, so perfmodel.pc has it under Requires.
file(RELATIVE_PATH PERFMODEL_PC_UP /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
foreach(package IN ITEMS perfmodel perfmodel-c)
  configure_file(cmake/${package}.pc.in ${package}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${package}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

configure_package_config_file(cmake/perfmodelConfig.cmake.in perfmodelConfig.cmake
  INSTALL_DESTINATION ${PERFMODEL_INSTALL_CMAKEDIR}
  PATH_VARS PERFMODEL_INSTALL_DATADIR)
write_basic_package_version_file(perfmodelConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/perfmodelConfig.cmake
  ${PROJECT_BINARY_DIR}/perfmodelConfigVersion.cmake
  DESTINATION ${PERFMODEL_INSTALL_CMAKEDIR})
