#include "tensord/tests/integration/test_certificates.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_join.h"

namespace tensord::integration {
namespace {

using KeyRef = std::shared_ptr<EVP_PKEY>;
using CertificateRef = std::shared_ptr<X509>;

KeyRef NewKey() { return KeyRef(EVP_EC_gen("P-256"), EVP_PKEY_free); }

template <typename Write>
std::string ToPem(const Write& write) {
  const std::unique_ptr<BIO, int (*)(BIO*)> bio(BIO_new(BIO_s_mem()), BIO_free);
  write(bio.get());
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, size);
}

std::string ToPem(const CertificateRef& certificate) {
  return ToPem([&](BIO* bio) { PEM_write_bio_X509(bio, certificate.get()); });
}

void AddExtension(X509* certificate, int nid, const std::string& value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value.c_str());
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

CertificateRef NewCertificate(const std::string& name, const KeyRef& key, int from_seconds,
                              int to_seconds) {
  CertificateRef certificate(X509_new(), X509_free);
  X509_set_version(certificate.get(), 2);
  uint64_t serial = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial));
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), serial >> 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), from_seconds);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), to_seconds);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_pubkey(certificate.get(), key.get());
  return certificate;
}

}  // namespace

CertificateRequest ServerRequest() {
  return {.alternatives = {"DNS:localhost", "IP:127.0.0.1"}, .for_server = true};
}

CertificateRequest ClientRequest(const std::string& name) { return {.common_name = name}; }

Authority::Authority() : key_(NewKey()) {
  certificate_ = NewCertificate("an authority for tests", key_, -86400, 86400);
  X509_set_issuer_name(certificate_.get(), X509_get_subject_name(certificate_.get()));
  AddExtension(certificate_.get(), NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(certificate_.get(), NID_key_usage, "critical,keyCertSign");
  X509_sign(certificate_.get(), key_.get(), EVP_sha256());
  pem_ = ToPem(certificate_);
}

CertificatePair Authority::Issue(const CertificateRequest& request) const {
  const KeyRef key = NewKey();
  const CertificateRef certificate =
      NewCertificate(request.common_name, key, request.from_seconds, request.to_seconds);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate_.get()));
  AddExtension(certificate.get(), NID_ext_key_usage,
               request.for_server ? "serverAuth" : "clientAuth");
  if (!request.alternatives.empty()) {
    AddExtension(certificate.get(), NID_subject_alt_name, absl::StrJoin(request.alternatives, ","));
  }
  X509_sign(certificate.get(), key_.get(), EVP_sha256());
  const auto write_key = [&](BIO* bio) {
    PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  };
  return {.cert = ToPem(certificate), .key = ToPem(write_key)};
}

TestFolder::TestFolder() : path_(std::filesystem::temp_directory_path() / "tensord_id.XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) path_.clear();
}

TestFolder::~TestFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

std::string TestFolder::Write(const std::string& name, const std::string& text) const {
  const std::string path = File(name);
  {
    std::ofstream out(path + ".new");
    out << text;
  }
  std::filesystem::permissions(path + ".new", std::filesystem::perms(0600));
  std::rename((path + ".new").c_str(), path.c_str());
  return path;
}

}  // namespace tensord::integration
