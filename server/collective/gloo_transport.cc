#include "tensord/server/collective/gloo_transport.h"

#include <gloo/common/error.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include <utility>
#include <vector>

namespace tensord::server {
namespace {

// Memory from which the mesh sends, and into which it receives.
class MeshBuffer final : public gloo::transport::UnboundBuffer {
 public:
  MeshBuffer(PeerMesh* mesh, void* data, size_t bytes)
      : gloo::transport::UnboundBuffer(data, bytes), mesh_(mesh) {}

  // The mesh's own timeout applies. The rank of the peer is not reported, because no algorithm that
  // is used asks for it.
  bool waitRecv(int* rank, std::chrono::milliseconds) override { return Wait(rank, &received_); }
  bool waitSend(int* rank, std::chrono::milliseconds) override { return Wait(rank, &sent_); }
  void abortWaitRecv() override {}
  void abortWaitSend() override {}

  void send(int peer, uint64_t slot, size_t offset, size_t bytes) override {
    const size_t count = Check(offset, bytes);
    mesh_->Send(peer, slot, static_cast<const char*>(ptr) + offset, count, &sent_);
  }
  void recv(int peer, uint64_t slot, size_t offset, size_t bytes) override {
    const size_t count = Check(offset, bytes);
    mesh_->Receive(peer, slot, static_cast<char*>(ptr) + offset, count, &received_);
  }
  void recv(std::vector<int> peers, uint64_t slot, size_t offset, size_t bytes) override {
    if (peers.size() != 1) GLOO_THROW_INVALID_OPERATION_EXCEPTION("receives are from one peer");
    recv(peers[0], slot, offset, bytes);
  }

 private:
  bool Wait(int* rank, int* count) {
    if (rank != nullptr)
      GLOO_THROW_INVALID_OPERATION_EXCEPTION("the rank of the peer isn't reported");
    absl::Status status = mesh_->Await(count);
    if (!status.ok()) throw GlooError(std::move(status));
    --*count;
    return true;
  }
  size_t Check(size_t offset, size_t bytes) const {
    if (bytes == kUnspecifiedByteCount) bytes = offset > size ? bytes : size - offset;
    if (offset > size || bytes > size - offset) {
      GLOO_THROW_INVALID_OPERATION_EXCEPTION("beyond the end of a buffer");
    }
    return bytes;
  }

  PeerMesh* const mesh_;
  int sent_ = 0;
  int received_ = 0;
};

// Gloo's algorithms check that a pair exists, but transfer by buffers only.
class MeshPair final : public gloo::transport::Pair {
 public:
  const gloo::transport::Address& address() const override { Refuse(); }
  void connect(const std::vector<char>&) override { Refuse(); }
  void close() override {}
  bool isConnected() { return true; }  // for newer versions of Gloo
  void setSync(bool, bool) override { Refuse(); }
  std::unique_ptr<gloo::transport::Buffer> createSendBuffer(int, void*, size_t) override {
    Refuse();
  }
  std::unique_ptr<gloo::transport::Buffer> createRecvBuffer(int, void*, size_t) override {
    Refuse();
  }
  void send(gloo::transport::UnboundBuffer*, uint64_t, size_t, size_t) override { Refuse(); }
  void recv(gloo::transport::UnboundBuffer*, uint64_t, size_t, size_t) override { Refuse(); }

 private:
  [[noreturn]] static void Refuse() {
    GLOO_THROW_INVALID_OPERATION_EXCEPTION("a pair transfers by buffers only");
  }
};

class MeshTransport final : public gloo::transport::Context {
 public:
  explicit MeshTransport(PeerMesh* mesh)
      : gloo::transport::Context(mesh->rank(), mesh->size()), mesh_(mesh) {
    for (int peer = 0; peer < mesh->size(); ++peer) {
      if (peer != mesh->rank()) createPair(peer);
    }
  }

  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override {
    pairs_[peer] = std::make_unique<MeshPair>();
    return pairs_[peer];
  }
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* data,
                                                                      size_t bytes) override {
    return std::make_unique<MeshBuffer>(mesh_, data, bytes);
  }

 private:
  PeerMesh* const mesh_;
};

class MeshContext final : public gloo::Context {
 public:
  explicit MeshContext(PeerMesh* mesh) : gloo::Context(mesh->rank(), mesh->size()) {
    transportContext_ = std::make_shared<MeshTransport>(mesh);
  }
};

}  // namespace

std::shared_ptr<gloo::Context> MakeGlooContext(PeerMesh* mesh) {
  return std::make_shared<MeshContext>(mesh);
}

}  // namespace tensord::server
