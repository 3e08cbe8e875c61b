// Makes certificates and temporary files for tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

struct x509_st;      // OpenSSL's X509
struct evp_pkey_st;  // OpenSSL's EVP_PKEY

namespace tensord::integration {

// A certificate and its private key, in PEM.
struct CertificatePair {
  std::string cert;
  std::string key;
};

struct CertificateRequest {
  std::string common_name = "tensord";
  std::vector<std::string> alternatives = {};  // in OpenSSL's notation: "DNS:localhost"
  bool for_server = false;                     // false: for a client
  int from_seconds = -3600;                    // validity, relative to the current time
  int to_seconds = 3600;
};

CertificateRequest ServerRequest();
CertificateRequest ClientRequest(const std::string& name);

// A certificate authority.
class Authority {
 public:
  Authority();
  CertificatePair Issue(const CertificateRequest& request) const;
  const std::string& pem() const { return pem_; }

 private:
  std::shared_ptr<evp_pkey_st> key_;
  std::shared_ptr<x509_st> certificate_;
  std::string pem_;
};

// A temporary folder. The destructor deletes it.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  // Writes a file atomically. Returns its path.
  std::string Write(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
};

}  // namespace tensord::integration
