// Converts attributes to messages of the protocol.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tensord/common/attributes.h"

namespace tensord {

// Sets a v1::AttrValue. It is a template, because this folder includes no generated code.
template <typename Message>
void SetAttrMessage(const AttrValue& value, Message* message) {
  struct Setter {
    Message* message;
    void operator()(bool value) const { message->set_b(value); }
    void operator()(int64_t value) const { message->set_i(value); }
    void operator()(double value) const { message->set_f(value); }
    void operator()(const std::string& value) const { message->set_s(value); }
    void operator()(const std::vector<int64_t>& values) const {
      message->mutable_ints()->mutable_values()->Assign(values.begin(), values.end());
    }
    void operator()(DType value) const {
      message->set_dtype(static_cast<decltype(message->dtype())>(value));
    }
    void operator()(const Bytes& value) const { message->set_data(value.data); }
  };
  std::visit(Setter{message}, value);
}

}  // namespace tensord
