# cmake -DPROGRAM=... -DPREFIX=... -DPROPERTIES="NAME VALUE..." -DREPORTS=... -DOUT=... -P AddSuites.cmake
# Writes OUT, which adds a ctest test PREFIX.SUITE for each suite of a GoogleTest program. Each test writes
# REPORTS/PREFIX.SUITE.xml, from which tests/run counts the suite's tests.
execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listed RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} --gtest_list_tests: ended with ${status}")
endif()
string(REGEX MATCHALL "[^\n]+" lines "${listed}")
set(text "")
foreach(line IN LISTS lines)
  # A suite begins with a line `Suite.`, followed by a comment if it has a type. The lines of its tests are indented.
  if(line MATCHES "^([A-Za-z0-9_/]+)\\.( *#.*)?$")
    set(suite ${CMAKE_MATCH_1})
    string(REPLACE "/" "_" file ${suite})
    set(name "${PREFIX}.${suite}")
    string(APPEND text "add_test(\"${name}\" \"${PROGRAM}\" \"--gtest_filter=${suite}.*\" "
                       "\"--gtest_output=xml:${REPORTS}/${PREFIX}.${file}.xml\")\n"
                       "set_tests_properties(\"${name}\" PROPERTIES ${PROPERTIES})\n")
  endif()
endforeach()
if(text STREQUAL "")
  message(FATAL_ERROR "${PROGRAM} --gtest_list_tests: no suites")
endif()
file(WRITE ${OUT} "${text}")
