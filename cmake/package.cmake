# A Debian package of everything that is installed. The top level includes this file after install.cmake.
#   cmake --build build/release --target package
# What was found decides what it depends on: -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON keeps Open MPI out, which
# `sweep` needs under mpirun alone.
set(doc_folder ${PROJECT_BINARY_DIR}/debian)
set(source_date "$ENV{SOURCE_DATE_EPOCH}")
set(ENV{SOURCE_DATE_EPOCH} ${PERFMODEL_RELEASE_TIME})  # string(TIMESTAMP) reads the present time from it
string(TIMESTAMP PERFMODEL_RELEASE_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(ENV{SOURCE_DATE_EPOCH} "${source_date}")
configure_file(cmake/debian/changelog.in ${doc_folder}/changelog @ONLY)
install(FILES cmake/debian/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR})
# Compressed without a time and a name, which CMake's own archives have.
if(PERFMODEL_GZIP)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS CHANGELOG.md)
  execute_process(COMMAND ${PERFMODEL_GZIP} -9nc ${doc_folder}/changelog
    OUTPUT_FILE ${doc_folder}/changelog.Debian.gz COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${PERFMODEL_GZIP} -9nc ${PROJECT_SOURCE_DIR}/CHANGELOG.md
    OUTPUT_FILE ${doc_folder}/changelog.gz COMMAND_ERROR_IS_FATAL ANY)
  install(FILES ${doc_folder}/changelog.gz DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(FILES ${doc_folder}/changelog.Debian.gz DESTINATION ${CMAKE_INSTALL_DOCDIR})
  install(FILES ${doc_folder}/changelog.Debian.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/python3-perfmodel
    COMPONENT python)
else()
  install(FILES CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
endif()
install(FILES cmake/debian/perfpredict.service DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples)

# Writes the list of its parts, as SPDX, when the package is packed. Only this step of the build needs Python.
find_program(PERFMODEL_PYTHON3 python3)
mark_as_advanced(PERFMODEL_PYTHON3)
if(PERFMODEL_PYTHON3 AND CMAKE_GENERATOR STREQUAL "Ninja")
  configure_file(cmake/sbom.cmake.in ${doc_folder}/sbom.cmake @ONLY)
  set(CPACK_PRE_BUILD_SCRIPTS ${doc_folder}/sbom.cmake)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME perfmodel)
set(CPACK_PACKAGE_VENDOR "perfmodel developers")
set(CPACK_PACKAGE_CONTACT "perfmodel developers <developers@perfmodel.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "predicts the time of a training batch on a GPU")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"Says how long one training batch of a DLRM or a transformer takes on a GPU,
and why, without that GPU. Reads graphs recorded by PyTorch, or builds them
from the description of a model. Holds the program perfpredict, its library
for C++ and C, and data sheets of GPUs.")
# The package depends on the libraries that the programs load, and suggests those for building with the headers.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_UNSPECIFIED_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/debian/triggers)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS
  "libexpected-dev, libfmt-dev, libsimdjson-dev, nlohmann-json3-dev, zlib1g-dev, pkg-config")
# Two packages: all that is installed without a component, and the Python package.
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL Unspecified python)
set(CPACK_DEBIAN_UNSPECIFIED_PACKAGE_NAME perfmodel)
set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-perfmodel)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
set(CPACK_DEBIAN_PYTHON_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_PYTHON_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS
  "python3 (>= 3.9), perfmodel (= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(CPACK_DEBIAN_PYTHON_PACKAGE_SUGGESTS "python3-pandas, python3-torch")
set(CPACK_COMPONENT_PYTHON_DESCRIPTION
"Predicts the time of a training batch on a GPU, from Python.
The commands of perfpredict as functions, their answers as objects that become
data frames and show themselves in notebooks.")
include(CPack)
