// The tensord client library: tensors on the devices of another machine.
//
//   auto client = tensord::Client::Connect("gpu-box:50051");
//   if (!client.ok()) …
//   tensord::Device device = client->TryDevice();  // cuda:0, or cpu:0 if there is no GPU
//   tensord::Tensor x = tensord::Normal(device, {64, 64}, /*seed=*/1);
//   tensord::Tensor y = tensord::Matmul(x, x) + 1.0;  // returns at once
//   std::cout << y << "\n";                           // waits, and prints the values or the error
#pragma once

#include "tensord/client/activations.h"       // IWYU pragma: export
#include "tensord/client/client.h"            // IWYU pragma: export
#include "tensord/client/cluster.h"           // IWYU pragma: export
#include "tensord/client/copy_report.h"       // IWYU pragma: export
#include "tensord/client/creation.h"          // IWYU pragma: export
#include "tensord/client/device.h"            // IWYU pragma: export
#include "tensord/client/element.h"           // IWYU pragma: export
#include "tensord/client/elementwise.h"       // IWYU pragma: export
#include "tensord/client/functional.h"        // IWYU pragma: export
#include "tensord/client/group.h"             // IWYU pragma: export
#include "tensord/client/indexing.h"          // IWYU pragma: export
#include "tensord/client/losses.h"            // IWYU pragma: export
#include "tensord/client/movement.h"          // IWYU pragma: export
#include "tensord/client/nn.h"                // IWYU pragma: export
#include "tensord/client/ops.h"               // IWYU pragma: export
#include "tensord/client/parallel.h"          // IWYU pragma: export
#include "tensord/client/print.h"             // IWYU pragma: export
#include "tensord/client/program.h"           // IWYU pragma: export
#include "tensord/client/random.h"            // IWYU pragma: export
#include "tensord/client/safetensors.h"       // IWYU pragma: export
#include "tensord/client/scalar.h"            // IWYU pragma: export
#include "tensord/client/selection.h"         // IWYU pragma: export
#include "tensord/client/sorting.h"           // IWYU pragma: export
#include "tensord/client/status_or_vector.h"  // IWYU pragma: export
#include "tensord/client/tensor.h"            // IWYU pragma: export
#include "tensord/common/status_details.h"    // IWYU pragma: export
