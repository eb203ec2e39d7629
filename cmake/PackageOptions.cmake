# CPack reads this file once for each kind of package. It holds what differs between them.
if(CPACK_GENERATOR STREQUAL DEB)
  # The order matters, because the last component compresses files of the first.
  set(CPACK_COMPONENTS_ALL permafrost debian)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY FALSE)
  set(CPACK_SET_DESTDIR TRUE)
  set(CPACK_INSTALL_PREFIX /usr)
else()
  set(CPACK_COMPONENTS_ALL permafrost portable)
  set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY TRUE)
endif()
