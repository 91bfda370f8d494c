# find_package(cudalink_stubs): lazy-loading CUDA stubs. Found through -Dcudalink_stubs_DIR=$(cudalink stubs --cmake-dir).
#
#   cudalink::cuda, cudalink::cudart, cudalink::nvrtc
#       the prebuilt stubs, to be linked instead of CUDA::cuda_driver, CUDA::cudart and CUDA::nvrtc
#   cudalink_install_stubs(DESTINATION folder [LIBRARIES cuda cudart nvrtc])
#       puts prebuilt stubs into the wheel; what links them needs INSTALL_RPATH "$ORIGIN" or a path to that folder
#   cudalink_add_stubs(PREFIX name [LIBRARIES cuda cudart nvrtc] [SYMBOLS file] [HEADERS 11|12|13] [DESTINATION folder])
#       builds stubs with other functions or names: targets name::cuda and so on; DESTINATION installs them too

cmake_minimum_required(VERSION 3.20)

if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
  set(cudalink_stubs_FOUND FALSE)
  set(cudalink_stubs_NOT_FOUND_MESSAGE "CUDA stubs are written for Linux; link with CUDAToolkit's libraries here.")
  return()
endif()

get_filename_component(_cudalink_stubs_root "${CMAKE_CURRENT_LIST_DIR}" DIRECTORY)
set(cudalink_stubs_LIBRARY_DIR "${_cudalink_stubs_root}/lib")
set(cudalink_stubs_INCLUDE_DIR "${_cudalink_stubs_root}/include")

foreach(_cudalink_name IN ITEMS cuda cudart nvrtc)
  set(_cudalink_file "${cudalink_stubs_LIBRARY_DIR}/libstub_${_cudalink_name}.so")
  if(EXISTS "${_cudalink_file}" AND NOT TARGET cudalink::${_cudalink_name})
    add_library(cudalink::${_cudalink_name} SHARED IMPORTED)
    set_target_properties(cudalink::${_cudalink_name} PROPERTIES
      IMPORTED_LOCATION "${_cudalink_file}"
      IMPORTED_SONAME "libstub_${_cudalink_name}.so"
      INTERFACE_INCLUDE_DIRECTORIES "${cudalink_stubs_INCLUDE_DIR}")
  endif()
endforeach()
unset(_cudalink_file)
unset(_cudalink_name)

function(cudalink_install_stubs)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "DESTINATION" "LIBRARIES")
  if(NOT arg_DESTINATION)
    message(FATAL_ERROR "cudalink_install_stubs needs DESTINATION, the folder of the wheel that the stubs go to")
  endif()
  if(NOT arg_LIBRARIES)
    set(arg_LIBRARIES cuda cudart nvrtc)
  endif()
  foreach(name IN LISTS arg_LIBRARIES)
    install(PROGRAMS "${cudalink_stubs_LIBRARY_DIR}/libstub_${name}.so" DESTINATION "${arg_DESTINATION}")
  endforeach()
endfunction()

function(cudalink_add_stubs)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "PREFIX;SYMBOLS;HEADERS;DESTINATION" "LIBRARIES")
  if(NOT arg_PREFIX)
    message(FATAL_ERROR "cudalink_add_stubs needs PREFIX, the first part of the names of the libraries")
  endif()
  if(NOT arg_LIBRARIES)
    set(arg_LIBRARIES cuda cudart nvrtc)
  endif()
  if(NOT Python_EXECUTABLE)
    find_package(Python REQUIRED COMPONENTS Interpreter)
  endif()
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/${arg_PREFIX}_stubs")
  list(JOIN arg_LIBRARIES "," libraries)
  set(options --libs "${libraries}" --prefix "${arg_PREFIX}" -o "${folder}")
  set(depends "")
  if(arg_SYMBOLS)
    get_filename_component(symbols "${arg_SYMBOLS}" ABSOLUTE)
    list(APPEND options --symbols "${symbols}")
    list(APPEND depends "${symbols}")
  endif()
  if(arg_HEADERS)
    list(APPEND options --headers "${arg_HEADERS}")
  endif()
  set(environment "")
  if(CMAKE_C_COMPILER)
    set(environment ${CMAKE_COMMAND} -E env "CC=${CMAKE_C_COMPILER}")
  endif()
  set(files "")
  foreach(name IN LISTS arg_LIBRARIES)
    list(APPEND files "${folder}/lib${arg_PREFIX}_${name}.so")
  endforeach()
  add_custom_command(
    OUTPUT ${files}
    COMMAND ${environment} "${Python_EXECUTABLE}" -m pytest_cudalink.cli stubs build ${options}
    DEPENDS ${depends}
    COMMENT "CUDA stubs ${libraries}"
    VERBATIM)
  add_custom_target(${arg_PREFIX}_stubs ALL DEPENDS ${files})
  file(MAKE_DIRECTORY "${folder}")
  foreach(name IN LISTS arg_LIBRARIES)
    add_library(${arg_PREFIX}::${name} SHARED IMPORTED)
    set_target_properties(${arg_PREFIX}::${name} PROPERTIES
      IMPORTED_LOCATION "${folder}/lib${arg_PREFIX}_${name}.so"
      IMPORTED_SONAME "lib${arg_PREFIX}_${name}.so"
      INTERFACE_INCLUDE_DIRECTORIES "${folder}")
    add_dependencies(${arg_PREFIX}::${name} ${arg_PREFIX}_stubs)
    if(arg_DESTINATION)
      install(PROGRAMS "${folder}/lib${arg_PREFIX}_${name}.so" DESTINATION "${arg_DESTINATION}")
    endif()
  endforeach()
endfunction()
