#include "tensord/common/util/boot_id.h"

#include <fstream>

namespace tensord {

std::string BootId() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(in, id);
  return id;
}

}  // namespace tensord
