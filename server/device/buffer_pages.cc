#include "tensord/server/device/buffer_pages.h"

namespace tensord::server {

Budget& BufferPages() {
  static auto* const pages = new Budget;  // outlives every static
  return *pages;
}

}  // namespace tensord::server
