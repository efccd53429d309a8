# Puts library and data beside the package of STAGE and has setuptools make a wheel of them.
set(build ${STAGE}/wheel)
file(REMOVE_RECURSE ${build})
file(COPY ${STAGE}/perfmodel ${STAGE}/pyproject.toml ${STAGE}/setup.py DESTINATION ${build}
  PATTERN "__pycache__" EXCLUDE)
get_filename_component(library ${LIBRARY} REALPATH)
file(COPY_FILE ${library} ${build}/perfmodel/native/lib/${SONAME})
file(COPY ${SOURCE_DIR}/data DESTINATION ${build}/perfmodel/native/share/perfmodel PATTERN "measurements" EXCLUDE)
file(COPY ${SOURCE_DIR}/LICENSE DESTINATION ${build})
find_program(PYTHON NAMES python3)
foreach(python IN ITEMS $ENV{PERFMODEL_WHEEL_PYTHON} ${PYTHON} /usr/bin/python3)
  execute_process(COMMAND ${python} -c "import setuptools, wheel" RESULT_VARIABLE missing OUTPUT_QUIET ERROR_QUIET)
  if(missing EQUAL 0)
    execute_process(COMMAND ${python} setup.py -q bdist_wheel --dist-dir ${STAGE}/dist WORKING_DIRECTORY ${build}
      COMMAND_ERROR_IS_FATAL ANY)
    return()
  endif()
endforeach()
message(FATAL_ERROR "expected a Python with setuptools and wheel (packages python3-setuptools, python3-wheel), found none")
