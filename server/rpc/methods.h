// The table of all methods that the server serves.
#pragma once

#include "tensord/server/rpc/call_dispatcher.h"
#include "tensord/server/rpc/service_context.h"

namespace tensord::server {

class HealthService;
class UnaryMethods;
struct BulkContext;

// The objects that the handlers of all methods use. They outlive the calls.
struct Handlers {
  ServiceContext* context;
  UnaryMethods* unary;
  BulkContext* bulk;
  HealthService* health;
};

// Adds every method that the server serves to `dispatcher`. A new unary method needs its messages
// in the proto, a function of UnaryMethods, and a line in methods.cc.
void AddMethods(const Handlers& handlers, CallDispatcher* dispatcher);

}  // namespace tensord::server
