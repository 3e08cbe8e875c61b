// Neural network layers, named and composed as in PyTorch. Includes all headers of nn/.
#pragma once

#include "tensord/client/nn/activation.h"     // IWYU pragma: export
#include "tensord/client/nn/attention.h"      // IWYU pragma: export
#include "tensord/client/nn/conv.h"           // IWYU pragma: export
#include "tensord/client/nn/dropout.h"        // IWYU pragma: export
#include "tensord/client/nn/embedding.h"      // IWYU pragma: export
#include "tensord/client/nn/linear.h"         // IWYU pragma: export
#include "tensord/client/nn/module.h"         // IWYU pragma: export
#include "tensord/client/nn/normalization.h"  // IWYU pragma: export
#include "tensord/client/nn/pooling.h"        // IWYU pragma: export
#include "tensord/client/nn/recurrent.h"      // IWYU pragma: export
#include "tensord/client/nn/sequential.h"     // IWYU pragma: export
#include "tensord/client/nn/transformer.h"    // IWYU pragma: export
