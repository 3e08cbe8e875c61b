// Makes arbitrary ops, inputs and attributes. Most of them have the right types.
#pragma once

#include <string>
#include <vector>

#include "tensord/common/ops/op_schema.h"
#include "tensord/tests/fuzz/fuzz_input.h"

namespace tensord::fuzz {

inline std::vector<int64_t> AnyInts(FuzzInput& in) {
  std::vector<int64_t> values(in.Range(0, 5));
  for (int64_t& value : values) value = in.Number();
  return values;
}

// May return an invalid dtype.
inline DType AnyDType(FuzzInput& in) { return static_cast<DType>(in.Range(0, 16)); }

inline const OpSchema& AnySchema(FuzzInput& in) {
  const auto ops = AllOps();
  return *ops[in.Range(0, static_cast<int>(ops.size()) - 1)];
}

inline AttrValue AnyValue(FuzzInput& in, AttrType wanted) {
  static constexpr const char* kWords[] = {"none",    "tanh", "relu", "gelu", "silu",
                                           "sigmoid", "add",  "mul",  "max",  "min"};
  const AttrType type = in.OneIn(16) ? static_cast<AttrType>(in.Range(0, 7)) : wanted;
  switch (type) {
    case AttrType::kBool:
      return in.Bool();
    case AttrType::kInt:
      return in.Number();
    case AttrType::kFloat:
      return in.Bool() ? in.Raw<double>() : static_cast<double>(in.Range(-4, 4)) / 2;
    case AttrType::kScalar:
      if (in.Bool()) return in.Number();
      return in.Raw<double>();
    case AttrType::kString:
      return in.OneIn(4) ? in.Bytes(12) : std::string(in.Pick(kWords));
    case AttrType::kInts:
      return AnyInts(in);
    case AttrType::kDType:
      return AnyDType(in);
    case AttrType::kBytes:
      return Bytes{in.Bytes(in.Range(0, 64))};
  }
  return false;
}

inline Attributes AnyAttributes(FuzzInput& in, const OpSchema& schema) {
  Attributes attrs;
  for (const AttrDef& def : schema.attrs) {
    if (!in.OneIn(4)) attrs.Set(def.name, AnyValue(in, def.type));
  }
  if (in.OneIn(32)) attrs.Set(in.Bytes(8), in.Number());
  return attrs;
}

}  // namespace tensord::fuzz
