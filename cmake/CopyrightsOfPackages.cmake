# Runs at an installation. Copies copyrights of Debian packages into `folder`/share/doc/permafrost/licenses: of packages
# with files in `folder`/lib/permafrost, and of those compiled into the programs. On other systems there are none.
find_program(DPKG_QUERY dpkg-query)
if(DPKG_QUERY)
  file(GLOB libraries RELATIVE ${folder}/lib/permafrost ${folder}/lib/permafrost/*.so.*)
  # Searches for whole paths, since dpkg-query compares a pattern with every file of the machine.
  set(paths "")
  foreach(library ${libraries})
    list(APPEND paths /lib/${architecture}/${library} /usr/lib/${architecture}/${library})
  endforeach()
  execute_process(COMMAND ${DPKG_QUERY} -S ${paths} OUTPUT_VARIABLE found ERROR_QUIET)
  # The output has lines of `package:architecture, other: path`.
  string(REGEX MATCHALL "[^\n]+" lines "${found}")
  list(TRANSFORM lines REPLACE "[:,].*" "")
  foreach(package ${lines} libcli11-dev libfast-float-dev libsqlitecpp-dev nlohmann-json3-dev)
    if(EXISTS /usr/share/doc/${package}/copyright)
      file(MAKE_DIRECTORY ${folder}/share/doc/permafrost/licenses/${package})
      file(COPY_FILE /usr/share/doc/${package}/copyright ${folder}/share/doc/permafrost/licenses/${package}/copyright)
    endif()
  endforeach()
endif()
