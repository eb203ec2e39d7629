# Run at an installation: the copyright of each Debian package of which a library lies in `folder`/lib/permafrost goes into
# `folder`/share/doc/permafrost/licenses. On another system there are none to be found.
find_program(DPKG_QUERY dpkg-query)
if(DPKG_QUERY)
  file(GLOB libraries RELATIVE ${folder}/lib/permafrost ${folder}/lib/permafrost/*.so.*)
  list(TRANSFORM libraries PREPEND "*/")
  execute_process(COMMAND ${DPKG_QUERY} -S ${libraries} OUTPUT_VARIABLE found ERROR_QUIET)
  # Lines of `package:architecture, other: path`.
  string(REGEX MATCHALL "[^\n]+" lines "${found}")
  foreach(line ${lines})
    string(REGEX REPLACE "[:,].*" "" package ${line})
    if(EXISTS /usr/share/doc/${package}/copyright)
      file(MAKE_DIRECTORY ${folder}/share/doc/permafrost/licenses/${package})
      file(COPY_FILE /usr/share/doc/${package}/copyright ${folder}/share/doc/permafrost/licenses/${package}/copyright)
    endif()
  endforeach()
endif()
