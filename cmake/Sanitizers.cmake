# Applies PERMAFROST_SANITIZE and PERMAFROST_FUZZ to everything that is added after this.
if(PERMAFROST_SANITIZE STREQUAL "address")
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
elseif(PERMAFROST_SANITIZE STREQUAL "thread")
  set(sanitize -fsanitize=thread -fno-omit-frame-pointer)
elseif(NOT PERMAFROST_SANITIZE STREQUAL "")
  message(FATAL_ERROR "PERMAFROST_SANITIZE=${PERMAFROST_SANITIZE}: use empty, `address` or `thread`")
endif()
if(PERMAFROST_FUZZ)
  set(sanitize -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
endif()
add_compile_options(${sanitize})
add_link_options(${sanitize})
if(NOT PERMAFROST_SANITIZE STREQUAL "")
  # -O1 compiles in two thirds of the time of -O2, and tests take little longer.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
endif()

# ThreadSanitizer sees only the locks of code that was compiled with it, so every use of a packaged absl::Mutex would
# look like a race. Abseil is therefore compiled here too, from the sources of the installed package, which the other
# packages were built with.
if(PERMAFROST_SANITIZE STREQUAL "thread")
  set(PERMAFROST_ABSEIL_SOURCE "" CACHE PATH "Abseil's sources, of the installed version")
  if(NOT EXISTS ${PERMAFROST_ABSEIL_SOURCE}/absl/base/options.h)
    message(FATAL_ERROR "PERMAFROST_ABSEIL_SOURCE=${PERMAFROST_ABSEIL_SOURCE}: holds no absl/base/options.h; "
                        "deploy/install-deps --tests unpacks Abseil's sources into .deps/abseil")
  endif()
  set(ABSL_PROPAGATE_CXX_STD ON)
  set(unity ${CMAKE_UNITY_BUILD})
  set(CMAKE_UNITY_BUILD OFF)
  add_subdirectory(${PERMAFROST_ABSEIL_SOURCE} abseil EXCLUDE_FROM_ALL)
  set(CMAKE_UNITY_BUILD ${unity})
  # Our warnings do not apply to Abseil's headers.
  include_directories(SYSTEM ${PERMAFROST_ABSEIL_SOURCE})
endif()
