# One static library a room: permafrost_room(data/store DEPS base LIBS ZLIB::ZLIB [EXCLUDE file.cc folder] [TORCH]) makes the
# target pf_data_store of every .cc in and below data/store.
# Headers of every room are on every room's path (server/); libraries are PRIVATE, so that torch's bundled protobuf 3.13
# headers never meet a .pb.h. tests/rooms holds the table of which room may include which.
set(PERMAFROST_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror
    # Designated initialisers leave members at their defaults on purpose.
    -Wno-missing-field-initializers)
if(PERMAFROST_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # What is wrong in a header only, or hides a name of its own file only, is found in the wrong places where one .cc
  # includes others.
  list(TRANSFORM PERMAFROST_WARNINGS REPLACE "^-Wshadow$" "-Wshadow=local")
  list(APPEND PERMAFROST_WARNINGS -Wno-subobject-linkage)
endif()

if(PERMAFROST_SANITIZE STREQUAL "address")
  # Under ASan gcc 12 takes std::regex's own code for uninitialised.
  list(APPEND PERMAFROST_WARNINGS -Wno-maybe-uninitialized)
endif()

function(permafrost_torch target)
  target_include_directories(${target} SYSTEM PRIVATE ${TORCH_INCLUDE_DIRS})
  target_compile_options(${target} PRIVATE ${TORCH_CXX_FLAGS})
  target_link_libraries(${target} PRIVATE ${TORCH_LIBRARIES})
endfunction()

# permafrost_precompile(TARGET HEADER...): headers of packages that most files of a target include, compiled once for it.
# A unity build reads them only a few times: it does without.
function(permafrost_precompile target)
  if(NOT PERMAFROST_UNITY)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# Rooms -> their targets: data/store is pf_data_store.
function(permafrost_room_targets out)
  set(targets ${ARGN})
  list(TRANSFORM targets REPLACE "/" "_")
  list(TRANSFORM targets PREPEND pf_)
  set(${out} ${targets} PARENT_SCOPE)
endfunction()

function(permafrost_room name)
  cmake_parse_arguments(ROOM "TORCH" "" "DEPS;LIBS;EXCLUDE" ${ARGN})
  string(REPLACE "/" "_" target pf_${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  foreach(excluded ${ROOM_EXCLUDE})
    list(FILTER sources EXCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/${name}/${excluded}(/|$)")
  endforeach()
  add_library(${target} STATIC ${sources})
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/server)
  target_compile_options(${target} PRIVATE ${PERMAFROST_WARNINGS})
  permafrost_room_targets(deps ${ROOM_DEPS})
  target_link_libraries(${target} PUBLIC ${deps} PRIVATE ${ROOM_LIBS})
  if(ROOM_TORCH)
    permafrost_torch(${target})
  endif()
endfunction()

# One test program a room: every .cc in and below tests/NAME. Each test is a ctest test. With TORCH a whole suite is one,
# since a process takes a second to load libtorch, which is more than most tests take.
# WHOLE_MACHINE: the math library's threads need the cores to themselves; ctest runs nothing beside it.
function(permafrost_room_test name)
  cmake_parse_arguments(ROOM "TORCH;WHOLE_MACHINE" "" "DEPS;LIBS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_test ${sources})
  add_dependencies(room_tests ${name}_test)
  # With -O1 tests compile in less time than with -O2, and none measures its own code's speed.
  target_compile_options(${name}_test PRIVATE ${PERMAFROST_WARNINGS} $<$<CONFIG:RelWithDebInfo>:-O1>)
  target_include_directories(${name}_test PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  permafrost_room_targets(deps ${ROOM_DEPS})
  target_link_libraries(${name}_test PRIVATE ${deps} ${ROOM_LIBS} GTest::gmock_main)
  target_compile_definitions(${name}_test PRIVATE PERMAFROST_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  if(ROOM_TORCH)
    permafrost_torch(${name}_test)
  else()
    permafrost_precompile(${name}_test <gmock/gmock.h> <gtest/gtest.h>)
  endif()
  set(properties TIMEOUT 300)
  if(ROOM_WHOLE_MACHINE)
    # The longest takes 55 s on two cores, and a machine may be many times slower.
    set(properties TIMEOUT 1200 PROCESSORS 2)
    if(ROOM_TORCH)
      # Threads of OpenMP that spin would take the core from those that work. e2e has no torch of its own, and its daemons
      # spin as they do for their users.
      list(APPEND properties ENVIRONMENT OMP_WAIT_POLICY=passive)
    endif()
  endif()
  if(ROOM_TORCH)
    permafrost_suites(${name} ${properties})
  else()
    gtest_discover_tests(${name}_test TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60 PROPERTIES ${properties})
  endif()
endfunction()

# permafrost_suites(NAME PROPERTY VALUE...): each suite of NAME_test is a ctest test NAME.SUITE.
function(permafrost_suites name)
  set(list ${CMAKE_CURRENT_BINARY_DIR}/${name}_suites.cmake)
  list(JOIN ARGN " " properties)
  add_custom_command(TARGET ${name}_test POST_BUILD BYPRODUCTS ${list} VERBATIM COMMENT "" COMMAND ${CMAKE_COMMAND}
    -DPROGRAM=$<TARGET_FILE:${name}_test> -DPREFIX=${name} "-DPROPERTIES=${properties}" -DREPORTS=${CMAKE_BINARY_DIR}/suites
    -DOUT=${list} -P ${CMAKE_SOURCE_DIR}/cmake/AddSuites.cmake)
  # A program that is not built is a test that fails, as gtest_discover_tests has it.
  set(include ${CMAKE_CURRENT_BINARY_DIR}/${name}_include.cmake)
  file(WRITE ${include} "if(EXISTS \"${list}\")\n  include(\"${list}\")\nelse()\n  add_test(${name}_test_NOT_BUILT ${name}_test_NOT_BUILT)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include})
endfunction()
