// The structs of DLPack 1.1, which exchange arrays between libraries of one process. The layout is
// fixed by the standard (https://dmlc.github.io/dlpack/latest/c_api.html).
#pragma once

#include <cstdint>

namespace tensord::python::dlpack {

inline constexpr uint32_t kMajorVersion = 1;
inline constexpr uint32_t kMinorVersion = 1;

enum DeviceType : int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3 };
enum TypeCode : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBFloat = 4, kComplex = 5, kBool = 6 };
inline constexpr uint64_t kReadOnly = 1;  // flags of Versioned
inline constexpr uint64_t kIsCopied = 2;

struct Device {
  int32_t type;
  int32_t id;
};

struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct Array {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major
  uint64_t byte_offset;
};

// The content of a capsule "dltensor".
struct Managed {
  Array array;
  void* context;
  void (*deleter)(Managed*);
};

// The content of a capsule "dltensor_versioned".
struct Versioned {
  uint32_t major;
  uint32_t minor;
  void* context;
  void (*deleter)(Versioned*);
  uint64_t flags;
  Array array;
};

}  // namespace tensord::python::dlpack
