# Finds libtorch, and sets TORCH_INCLUDE_DIRS, TORCH_LIBRARIES and TORCH_CXX_FLAGS.
# The CMake files of a CUDA build, as pip installs it on Linux, need the CUDA toolkit. If the toolkit is missing or
# incomplete, only the CPU half is linked.
set(cpu_half FALSE)
get_filename_component(torch_root ${Torch_DIR}/../../.. ABSOLUTE)
if(Torch_DIR AND EXISTS ${Torch_DIR}/../../../lib/libtorch_cuda.so)
  find_package(CUDAToolkit QUIET)
  if(NOT (TARGET CUDA::cudart AND TARGET CUDA::cublas AND TARGET CUDA::nvrtc))
    set(cpu_half TRUE)
  endif()
endif()

if(cpu_half)
  include(${Torch_DIR}/TorchConfigVersion.cmake)
  set(Torch_VERSION ${PACKAGE_VERSION})
  set(TORCH_INCLUDE_DIRS ${torch_root}/include ${torch_root}/include/torch/csrc/api/include)
  set(TORCH_LIBRARIES torch_cpu c10)
  set(TORCH_CXX_FLAGS "")
  foreach(library ${TORCH_LIBRARIES})
    add_library(${library} SHARED IMPORTED)
    set_target_properties(${library} PROPERTIES IMPORTED_LOCATION ${torch_root}/lib/lib${library}.so)
  endforeach()
  message(STATUS "Found Torch: ${torch_root} (a CUDA build without the CUDA toolkit: CPU only)")
else()
  find_package(Torch CONFIG REQUIRED)
  if(NOT APPLE)
    # libtorch.so holds no code, but in a CUDA build it loads the CUDA half, with which the daemon does not start
    # (server/device/cuda/cuda_libraries.h). Without libtorch.so, a program runs on both builds of one version.
    set(TORCH_LIBRARIES torch_cpu_library c10)
  endif()
endif()

# The CUDA module (server/device/cuda/module) needs libtorch's CUDA half, and headers of the CUDA runtime, which the
# wheels nvidia-cuda-runtime and nvidia-cuda-crt install beside torch. It has no kernels, so it needs no nvcc.
find_library(PERMAFROST_TORCH_CUDA torch_cuda HINTS ${torch_root}/lib NO_DEFAULT_PATH)
find_library(PERMAFROST_C10_CUDA c10_cuda HINTS ${torch_root}/lib NO_DEFAULT_PATH)
find_path(PERMAFROST_CUDA_INCLUDE crt/host_config.h
          HINTS ${torch_root}/../nvidia/cu13/include /usr/local/cuda/include NO_DEFAULT_PATH)

if(NOT Torch_VERSION MATCHES "^2\\.(11|13)\\.")
  message(FATAL_ERROR "libtorch ${Torch_VERSION} at ${Torch_DIR} was not tested with Permafrost; use 2.13.x or 2.11.x "
                      "(deploy/install-deps installs it into .deps/venv)")
endif()
