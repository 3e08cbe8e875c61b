// An owner of a descriptor of cuDNN.
#pragma once

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tensord/server/device/cuda/cudnn_library.h"

namespace tensord::server::cuda {

// The functions that set an attribute return the object. They keep the first error, and do nothing
// after one. Finalize() returns it.
class CudnnDescriptor {
 public:
  CudnnDescriptor(const CudnnLibrary& library, cudnn::DescriptorType type) : cudnn_(&library) {
    Keep(library.CreateDescriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
  }
  CudnnDescriptor(CudnnDescriptor&& other) noexcept
      : cudnn_(other.cudnn_),
        descriptor_(std::exchange(other.descriptor_, nullptr)),
        status_(std::move(other.status_)) {}
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;
  ~CudnnDescriptor() {
    if (descriptor_ != nullptr) cudnn_->DestroyDescriptor(descriptor_);
  }

  cudnn::Descriptor get() const { return descriptor_; }
  // Returns the first error so far.
  const absl::Status& status() const { return status_; }

  CudnnDescriptor& Set(cudnn::Attribute attribute, cudnn::AttributeType type, int64_t count,
                       const void* values) {
    if (status_.ok()) {
      Keep(cudnn_->SetAttribute(descriptor_, attribute, type, count, values),
           "cudnnBackendSetAttribute");
    }
    return *this;
  }
  CudnnDescriptor& Set(cudnn::Attribute attribute, absl::Span<const int64_t> values) {
    return Set(attribute, cudnn::AttributeType::kInt64, static_cast<int64_t>(values.size()),
               values.data());
  }
  CudnnDescriptor& Set(cudnn::Attribute attribute, const CudnnDescriptor& value) {
    return Set(attribute, cudnn::AttributeType::kBackendDescriptor, 1, &value.descriptor_);
  }
  CudnnDescriptor& Set(cudnn::Attribute attribute, cudnn::Handle value) {
    return Set(attribute, cudnn::AttributeType::kHandle, 1, &value);
  }
  CudnnDescriptor& Set(cudnn::Attribute attribute, int64_t value) {
    return Set(attribute, absl::MakeConstSpan(&value, 1));
  }
  CudnnDescriptor& Set(cudnn::Attribute attribute, bool value) {
    return Set(attribute, cudnn::AttributeType::kBoolean, 1, &value);
  }
  CudnnDescriptor& Set(cudnn::Attribute attribute, cudnn::DataType value) {
    return Set(attribute, cudnn::AttributeType::kDataType, 1, &value);
  }
  CudnnDescriptor& Set(cudnn::Attribute attribute, cudnn::ConvolutionMode value) {
    return Set(attribute, cudnn::AttributeType::kConvolutionMode, 1, &value);
  }
  CudnnDescriptor& Set(cudnn::Attribute attribute, cudnn::PointwiseMode value) {
    return Set(attribute, cudnn::AttributeType::kPointwiseMode, 1, &value);
  }
  CudnnDescriptor& Set(cudnn::Attribute attribute, cudnn::NanPropagation value) {
    return Set(attribute, cudnn::AttributeType::kNanPropagation, 1, &value);
  }
  CudnnDescriptor& Set(cudnn::Attribute attribute, cudnn::HeurMode value) {
    return Set(attribute, cudnn::AttributeType::kHeurMode, 1, &value);
  }

  // Makes the attributes final. No attribute may be set after it.
  absl::Status Finalize() {
    if (status_.ok()) Keep(cudnn_->Finalize(descriptor_), "cudnnBackendFinalize");
    return status_;
  }

  // Writes up to `capacity` values of an attribute to `values`, and their number to `count`. If
  // `capacity` is 0, writes how many there are. If the attribute's values are descriptors, `values`
  // must have descriptors that the caller created, which cuDNN fills.
  absl::Status Get(cudnn::Attribute attribute, cudnn::AttributeType type, int64_t capacity,
                   int64_t* count, void* values) const {
    if (!status_.ok()) return status_;
    return cudnn_->ToStatus(
        cudnn_->GetAttribute(descriptor_, attribute, type, capacity, count, values),
        "cudnnBackendGetAttribute");
  }

 private:
  void Keep(cudnn::Status result, absl::string_view call) {
    if (result != cudnn::Status::kSuccess) status_ = cudnn_->ToStatus(result, call);
  }

  const CudnnLibrary* const cudnn_;
  cudnn::Descriptor descriptor_ = nullptr;
  absl::Status status_;
};

}  // namespace tensord::server::cuda
