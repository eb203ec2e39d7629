# Run at an installation: the copyright of each Debian package of which something lies in `folder`/lib/permafrost, or is
# compiled into the programs, goes into `folder`/share/doc/permafrost/licenses. On another system there are none to be found.
find_program(DPKG_QUERY dpkg-query)
if(DPKG_QUERY)
  file(GLOB libraries RELATIVE ${folder}/lib/permafrost ${folder}/lib/permafrost/*.so.*)
  # By whole paths: dpkg-query compares a pattern with every file of the machine.
  set(paths "")
  foreach(library ${libraries})
    list(APPEND paths /lib/${architecture}/${library} /usr/lib/${architecture}/${library})
  endforeach()
  execute_process(COMMAND ${DPKG_QUERY} -S ${paths} OUTPUT_VARIABLE found ERROR_QUIET)
  # Lines of `package:architecture, other: path`.
  string(REGEX MATCHALL "[^\n]+" lines "${found}")
  list(TRANSFORM lines REPLACE "[:,].*" "")
  foreach(package ${lines} libcli11-dev libfast-float-dev libsqlitecpp-dev nlohmann-json3-dev)
    if(EXISTS /usr/share/doc/${package}/copyright)
      file(MAKE_DIRECTORY ${folder}/share/doc/permafrost/licenses/${package})
      file(COPY_FILE /usr/share/doc/${package}/copyright ${folder}/share/doc/permafrost/licenses/${package}/copyright)
    endif()
  endforeach()
endif()
