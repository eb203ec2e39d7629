# Settings for the packages that deploy/package makes with CPack: a tarball that runs on a machine with only glibc, and
# a Debian package.
set(PERMAFROST_MAINTAINER "Permafrost maintainers <permafrost@localhost.localdomain>" CACHE STRING
    "Who answers for the Debian package, as `Name <address>`")
string(TOLOWER ${CMAKE_SYSTEM_NAME} system)

set(CPACK_PACKAGE_NAME permafrost)
set(CPACK_PACKAGE_VENDOR Permafrost)
set(CPACK_PACKAGE_CONTACT ${PERMAFROST_MAINTAINER})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "training daemon for graph neural networks")
set(CPACK_PACKAGE_FILE_NAME permafrost-${PROJECT_VERSION}-${system}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_STRIP_FILES TRUE)
set(CPACK_THREADS 0)
set(CPACK_VERBATIM_VARIABLES TRUE)
# Puts all components of a package into one file. PackageOptions.cmake lists them.
set(CPACK_ARCHIVE_COMPONENT_INSTALL TRUE)
set(CPACK_DEB_COMPONENT_INSTALL TRUE)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_LIST_DIR}/PackageOptions.cmake)

set(debian ${CMAKE_SOURCE_DIR}/deploy/debian)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"One daemon owns the accelerator of a machine, keeps graph datasets
memory-mapped, and trains graph neural networks that clients submit over
gRPC. After its warm-up a job compiles nothing, and it survives the death
of the daemon.
.
The package has libtorch in it, since Debian has none of its version.")
# dpkg-shlibdeps finds the dependencies on Debian's libraries. libtorch lies in the package.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS TRUE)
set(CPACK_DEBIAN_PACKAGE_DEPENDS adduser)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION TRUE)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${debian}/conffiles ${debian}/postinst ${debian}/prerm ${debian}/postrm)

if(NOT APPLE)
  # Uses Debian's absolute paths, since a package has only one prefix.
  set(units ${CMAKE_BINARY_DIR}/debian)
  file(READ ${CMAKE_SOURCE_DIR}/deploy/systemd/permafrost.service unit)
  string(REPLACE /usr/local/bin/ /usr/bin/ unit "${unit}")
  file(GENERATE OUTPUT ${units}/permafrost.service CONTENT "${unit}")
  install(FILES ${units}/permafrost.service DESTINATION /lib/systemd/system COMPONENT debian EXCLUDE_FROM_ALL)
  install(FILES ${CMAKE_SOURCE_DIR}/deploy/permafrostd.toml DESTINATION /etc/permafrost COMPONENT debian EXCLUDE_FROM_ALL)
  install(FILES ${debian}/copyright DESTINATION /usr/share/doc/permafrost COMPONENT debian EXCLUDE_FROM_ALL)
  install(FILES ${debian}/lintian-overrides DESTINATION /usr/share/lintian/overrides RENAME permafrost COMPONENT debian
          EXCLUDE_FROM_ALL)
  # Debian wants these compressed without a timestamp.
  install(CODE "
    set(folder \"\$ENV{DESTDIR}/usr/share\")
    file(COPY_FILE ${debian}/changelog \${folder}/doc/permafrost/changelog.Debian)
    execute_process(COMMAND gzip -9nf \${folder}/doc/permafrost/changelog.Debian \${folder}/man/man1/permafrost.1
                                      \${folder}/man/man8/permafrostd.8 COMMAND_ERROR_IS_FATAL ANY)"
          COMPONENT debian EXCLUDE_FROM_ALL)
endif()
include(CPack)
