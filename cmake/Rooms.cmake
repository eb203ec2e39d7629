# permafrost_room(data/store DEPS base LIBS ZLIB::ZLIB [EXCLUDE file.cc folder] [TORCH]) makes the static library of a
# room: the target pf_data_store from every .cc in and below data/store.
# Every room sees the headers of all rooms (server/). Libraries are PRIVATE, so that torch's bundled protobuf 3.13
# headers never meet a .pb.h. tests/rooms holds the table of which room may include which.
set(PERMAFROST_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror
    # Designated initialisers deliberately leave members at their defaults.
    -Wno-missing-field-initializers)
if(PERMAFROST_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # With one .cc including others, these warnings report faults in the wrong places: those of headers, and names that
  # hide a name of their own file.
  list(TRANSFORM PERMAFROST_WARNINGS REPLACE "^-Wshadow$" "-Wshadow=local")
  list(APPEND PERMAFROST_WARNINGS -Wno-subobject-linkage)
endif()

if(PERMAFROST_SANITIZE STREQUAL "address")
  # Under ASan, gcc 12 reports std::regex's own code as uninitialised.
  list(APPEND PERMAFROST_WARNINGS -Wno-maybe-uninitialized)
endif()

function(permafrost_torch target)
  target_include_directories(${target} SYSTEM PRIVATE ${TORCH_INCLUDE_DIRS})
  target_compile_options(${target} PRIVATE ${TORCH_CXX_FLAGS})
  target_link_libraries(${target} PRIVATE ${TORCH_LIBRARIES})
endfunction()

# permafrost_precompile(TARGET HEADER...): precompiles the packages' headers that most files of a target include. A
# unity build reads them only a few times, and does without.
function(permafrost_precompile target)
  if(NOT PERMAFROST_UNITY)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# Maps rooms to their targets: data/store is pf_data_store.
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

# Makes a room's test program from every .cc in and below tests/NAME. Each test becomes a ctest test. With TORCH each
# suite becomes one, since loading libtorch takes a process a second, longer than most tests take.
# WHOLE_MACHINE: ctest runs nothing beside it, because the math library's threads need the cores to themselves.
function(permafrost_room_test name)
  cmake_parse_arguments(ROOM "TORCH;WHOLE_MACHINE" "" "DEPS;LIBS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  if(NOT sources)
    return()
  endif()
  add_executable(${name}_test ${sources})
  add_dependencies(room_tests ${name}_test)
  # Tests compile faster with -O1 than with -O2, and none measures the speed of its own code.
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
    # The longest test takes 55 s on two cores, and a machine may be many times slower.
    set(properties TIMEOUT 1200 PROCESSORS 2)
    if(ROOM_TORCH)
      # Spinning threads of OpenMP would take the core from threads that work. e2e has no torch of its own, and its
      # daemons spin as they do for users.
      list(APPEND properties ENVIRONMENT OMP_WAIT_POLICY=passive)
    endif()
  endif()
  if(ROOM_TORCH)
    permafrost_suites(${name} ${properties})
  else()
    gtest_discover_tests(${name}_test TEST_PREFIX ${name}. DISCOVERY_TIMEOUT 60 PROPERTIES ${properties})
  endif()
endfunction()

# permafrost_suites(NAME PROPERTY VALUE...): makes each suite of NAME_test a ctest test NAME.SUITE.
function(permafrost_suites name)
  set(list ${CMAKE_CURRENT_BINARY_DIR}/${name}_suites.cmake)
  list(JOIN ARGN " " properties)
  add_custom_command(TARGET ${name}_test POST_BUILD BYPRODUCTS ${list} VERBATIM COMMENT "" COMMAND ${CMAKE_COMMAND}
    -DPROGRAM=$<TARGET_FILE:${name}_test> -DPREFIX=${name} "-DPROPERTIES=${properties}" -DREPORTS=${CMAKE_BINARY_DIR}/suites
    -DOUT=${list} -P ${CMAKE_SOURCE_DIR}/cmake/AddSuites.cmake)
  # A program that is not built counts as a failed test, as with gtest_discover_tests.
  set(include ${CMAKE_CURRENT_BINARY_DIR}/${name}_include.cmake)
  file(WRITE ${include} "if(EXISTS \"${list}\")\n  include(\"${list}\")\nelse()\n  add_test(${name}_test_NOT_BUILT ${name}_test_NOT_BUILT)\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${include})
endfunction()
