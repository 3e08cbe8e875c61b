// Macros that return from the calling function if a Status isn't OK.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// TENSORD_RETURN_IF_ERROR(DoX());
#define TENSORD_RETURN_IF_ERROR(expr)       \
  do {                                      \
    absl::Status tensord_status_ = (expr);  \
    if (!tensord_status_.ok()) [[unlikely]] \
      return tensord_status_;               \
  } while (false)

#define TENSORD_CONCAT_INNER_(a, b) a##b
#define TENSORD_CONCAT_(a, b) TENSORD_CONCAT_INNER_(a, b)

// TENSORD_ASSIGN_OR_RETURN(auto x, MakeX());
#define TENSORD_ASSIGN_OR_RETURN(lhs, expr) \
  TENSORD_ASSIGN_OR_RETURN_IMPL_(TENSORD_CONCAT_(tensord_statusor_, __LINE__), lhs, expr)
#define TENSORD_ASSIGN_OR_RETURN_IMPL_(statusor, lhs, expr) \
  auto statusor = (expr);                                   \
  if (!statusor.ok()) [[unlikely]]                          \
    return std::move(statusor).status();                    \
  lhs = *std::move(statusor)
