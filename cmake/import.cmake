# Importers: use include/rlx alone (tests/tidy checks it); their objects become part of librlx.
file(GLOB_RECURSE RLX_IMPORT_SOURCES CONFIGURE_DEPENDS
  ${CMAKE_CURRENT_SOURCE_DIR}/src/import/*.cpp)
if(NOT RLX_IMPORT_SOURCES)
  return()
endif()
find_package(Protobuf REQUIRED)

# onnx/onnx-ml.pb.h, from the schema of the release that third_party/README.md names.
set(schema ${CMAKE_CURRENT_SOURCE_DIR}/third_party/onnx/onnx-ml.proto)
set(generated ${CMAKE_CURRENT_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${generated}/onnx)
add_custom_command(
  OUTPUT ${generated}/onnx/onnx-ml.pb.cc ${generated}/onnx/onnx-ml.pb.h
  COMMAND protobuf::protoc --cpp_out=${generated}
    --proto_path=${CMAKE_CURRENT_SOURCE_DIR}/third_party ${schema}
  DEPENDS ${schema}
  COMMENT "Generating onnx-ml.pb.h" VERBATIM)

add_library(rlx_import OBJECT ${RLX_IMPORT_SOURCES} ${generated}/onnx/onnx-ml.pb.cc)
target_include_directories(rlx_import PRIVATE
  ${CMAKE_CURRENT_SOURCE_DIR}/include ${CMAKE_CURRENT_SOURCE_DIR}/src)
target_include_directories(rlx_import SYSTEM PRIVATE ${generated} ${Protobuf_INCLUDE_DIRS})
target_link_libraries(rlx_import PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
rlx_warnings(rlx_import)
set_source_files_properties(${generated}/onnx/onnx-ml.pb.cc PROPERTIES COMPILE_OPTIONS -w)

target_sources(rlx PRIVATE $<BUILD_INTERFACE:$<TARGET_OBJECTS:rlx_import>>)
target_link_libraries(rlx PRIVATE protobuf::libprotobuf-lite)
set(RLX_NEEDS_PROTOBUF ON)
