// A shared library that is loaded when one of its functions is first called. So the program starts
// even if the library is missing.
#pragma once

#include <string>

namespace tensord::server::cuda {

// Thread-safe.
class LazyLibrary {
 public:
  // `name` is the file name with the library's major version, such as "libnvrtc.so.13". Tries the
  // loader's search path, then the folder of the CUDA toolkit. If the environment variable
  // TENSORD_CUDA_LIBRARY_FOLDER is set, tries only the folder that it names.
  explicit LazyLibrary(std::string name);
  LazyLibrary(const LazyLibrary&) = delete;
  LazyLibrary& operator=(const LazyLibrary&) = delete;

  // Returns the function, or null if the library can't be loaded or lacks the function.
  template <typename Function>
  Function* Find(const char* function) const {
    return reinterpret_cast<Function*>(FindAddress(function));
  }

  // Returns why the library can't be loaded. If the library is loaded, returns "".
  const std::string& error() const { return error_; }

 private:
  void* FindAddress(const char* function) const;

  void* handle_ = nullptr;  // never closed, because the library may have threads
  std::string error_;
};

}  // namespace tensord::server::cuda

// Defines `function`, which a header of the library declares. The definition calls the function of
// the same name in the library. If the library or the function is missing, it returns `missing`.
// `library` is a function that returns the LazyLibrary. The symbol is hidden: otherwise the library
// itself could call this definition instead of its own function.
#define TENSORD_LAZY_FUNCTION(library, result, function, parameters, arguments, missing) \
  extern "C" __attribute__((visibility("hidden"))) result function parameters {          \
    static auto* const tensord_found = library().Find<decltype(function)>(#function);    \
    return tensord_found != nullptr ? tensord_found arguments : missing;                 \
  }
