// The slots of the class Tensor: operators, conversions to Python's numbers, indexing, text.
#pragma once

#include "tensord/client/python/tensord/_core/core.h"

namespace tensord::python {

PyType_Slot* TensorSlots();

}  // namespace tensord::python
