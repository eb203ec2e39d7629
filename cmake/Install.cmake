# Rules for `cmake --install`. The installation may be moved afterwards, since programs find their libraries relative to
# themselves. deploy/package makes packages by the same rules (cmake/Package.cmake).
# component  | is in                           | what
# permafrost | cmake --install, both packages  | the programs, libtorch, the sample, files for operators, licenses
# portable   | the tarball                     | every other library that the programs load, except glibc's
# wheel      | deploy/wheel                    | the same as both, without libtorch and the compiler's libraries
# debian     | the Debian package              | the service and its configuration, files that Debian's policy requires
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME permafrost)
# Otherwise an installation would first build all targets, including tests.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY TRUE)

if(APPLE)
  # Homebrew's libraries and libtorch are used from where they are.
  set_target_properties(permafrostd permafrost PROPERTIES INSTALL_RPATH_USE_LINK_PATH TRUE)
  install(TARGETS permafrostd permafrost RUNTIME DESTINATION bin)
else()
  # Uses RPATH instead of RUNPATH, since it also holds for libraries that the libraries load. Those of the tarball have
  # no path of their own.
  target_link_options(permafrostd PRIVATE -Wl,--disable-new-dtags)
  target_link_options(permafrost PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(permafrostd permafrost PROPERTIES INSTALL_RPATH "$ORIGIN/../lib/permafrost")

  # The folder of libtorch. A libtorch from a wheel brings its own OpenMP, and a CUDA build loads libraries from the
  # `nvidia` wheels beside it.
  get_filename_component(torch_libraries ${Torch_DIR}/../../../lib ABSOLUTE)
  get_filename_component(cuda_libraries ${torch_libraries}/../../nvidia ABSOLUTE)
  set(torch_regex ${torch_libraries} ${cuda_libraries})
  list(TRANSFORM torch_regex REPLACE "([][+.*()^$?|\\])" "\\\\\\1")
  list(TRANSFORM torch_regex REPLACE "(.+)" "^\\1/")
  # glibc and its loader belong to the machine.
  set(glibc_regex "^ld-linux" "^lib(c|m|mvec|dl|pthread|rt|resolv|util|anl|nsl)\\.so")
  install(TARGETS permafrostd RUNTIME_DEPENDENCY_SET permafrostd_libraries RUNTIME DESTINATION bin)
  install(TARGETS permafrost RUNTIME_DEPENDENCY_SET permafrost_libraries RUNTIME DESTINATION bin)
  install(RUNTIME_DEPENDENCY_SET permafrostd_libraries PRE_EXCLUDE_REGEXES ${glibc_regex}
          POST_INCLUDE_REGEXES ${torch_regex} POST_EXCLUDE_REGEXES "." LIBRARY DESTINATION lib/permafrost)
  foreach(set permafrostd_libraries permafrost_libraries)
    install(RUNTIME_DEPENDENCY_SET ${set} PRE_EXCLUDE_REGEXES ${glibc_regex} POST_EXCLUDE_REGEXES ${torch_regex}
            LIBRARY DESTINATION lib/permafrost COMPONENT portable EXCLUDE_FROM_ALL)
  endforeach()
  # The machine's libstdc++ is used, since another build of libtorch may need a newer one than this build does.
  install(TARGETS permafrostd permafrost RUNTIME_DEPENDENCY_SET programs_libraries
          RUNTIME DESTINATION bin COMPONENT wheel EXCLUDE_FROM_ALL)
  install(RUNTIME_DEPENDENCY_SET programs_libraries PRE_EXCLUDE_REGEXES ${glibc_regex} "^lib(stdc\\+\\+|gcc_s)\\.so"
          POST_EXCLUDE_REGEXES ${torch_regex} LIBRARY DESTINATION lib/permafrost COMPONENT wheel EXCLUDE_FROM_ALL)
  if(TARGET permafrost_cuda)
    # Installed where the daemon's own path leads. No package holds libtorch's CUDA half, which takes gigabytes.
    set_target_properties(permafrost_cuda PROPERTIES INSTALL_RPATH "$ORIGIN")
    install(TARGETS permafrost_cuda LIBRARY DESTINATION lib/permafrost)
    install(TARGETS permafrost_cuda LIBRARY DESTINATION lib/permafrost COMPONENT wheel EXCLUDE_FROM_ALL)
  endif()
  # A fifth of libtorch is debug symbols. --strip alone handles only targets that this build links.
  find_program(STRIP_PROGRAM strip)
  install(CODE "
    if(CMAKE_INSTALL_DO_STRIP)
      file(GLOB libraries \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/permafrost/lib*.so\")
      execute_process(COMMAND ${STRIP_PROGRAM} --strip-unneeded \${libraries} COMMAND_ERROR_IS_FATAL ANY)
    endif()")
  foreach(component portable wheel)
    install(CODE "
      set(folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
      set(architecture ${CMAKE_LIBRARY_ARCHITECTURE})
      include(${CMAKE_CURRENT_LIST_DIR}/CopyrightsOfPackages.cmake)" COMPONENT ${component} EXCLUDE_FROM_ALL)
  endforeach()
endif()

# The first pattern is that of a wheel. A libtorch from elsewhere has its license in another place.
set(packages ${torch_libraries}/../..)
file(GLOB torch_licenses ${packages}/torch-*.dist-info/licenses ${torch_libraries}/../LICENSE)
if(PERMAFROST_TORCH_CUDA)
  # libtorch's CPU half loads these two.
  file(GLOB cuda_licenses ${packages}/nvidia_cuda_runtime-*.dist-info/licenses ${packages}/nvidia_cuda_cupti-*.dist-info/licenses)
endif()
foreach(found ${torch_licenses} ${cuda_licenses})
  if(found MATCHES "/(nvidia_[a-z_]+)-")
    set(name ${CMAKE_MATCH_1})
  else()
    set(name libtorch)
  endif()
  if(IS_DIRECTORY ${found})
    install(DIRECTORY ${found}/ DESTINATION share/doc/permafrost/licenses/${name})
  else()
    install(FILES ${found} DESTINATION share/doc/permafrost/licenses/${name})
  endif()
endforeach()

set(deploy ${CMAKE_SOURCE_DIR}/deploy)
# install_share(ARGUMENT...): passes the arguments to install(), for both components that are complete by themselves.
function(install_share)
  install(${ARGN})
  install(${ARGN} COMPONENT wheel EXCLUDE_FROM_ALL)
endfunction()
install_share(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${deploy}/RUNBOOK.md DESTINATION share/doc/permafrost)
install_share(FILES ${deploy}/INSTALLED.md DESTINATION share/doc/permafrost RENAME README.md)
install_share(FILES ${deploy}/man/permafrost.1 DESTINATION share/man/man1)
install_share(FILES ${deploy}/man/permafrostd.8 DESTINATION share/man/man8)
install_share(FILES ${deploy}/permafrostd.toml DESTINATION share/permafrost)
install_share(FILES ${deploy}/systemd/permafrost.service DESTINATION share/permafrost/systemd)
install_share(FILES ${deploy}/prometheus/alerts.yml ${deploy}/prometheus/prometheus.yml DESTINATION share/permafrost/prometheus)
install_share(FILES ${deploy}/grafana/dashboard.json DESTINATION share/permafrost/grafana)
install_share(DIRECTORY ${deploy}/sample/zinc DESTINATION share/permafrost/sample)
install_share(FILES ${deploy}/sample/SOURCE.md DESTINATION share/permafrost/sample)

install_share(CODE "
  set(folder \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share/bash-completion/completions\")
  file(MAKE_DIRECTORY \"\${folder}\")
  execute_process(COMMAND $<TARGET_FILE:permafrost> completion bash OUTPUT_FILE \"\${folder}/permafrost\" COMMAND_ERROR_IS_FATAL ANY)")

include(${CMAKE_CURRENT_LIST_DIR}/Package.cmake)
