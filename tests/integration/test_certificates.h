// Certificates made for a test.
#pragma once

#include <memory>
#include <string>
#include <vector>

struct x509_st;      // OpenSSL's
struct evp_pkey_st;  // likewise

namespace tensord::integration {

// In PEM.
struct CertificatePair {
  std::string cert;
  std::string key;
};

struct CertificateRequest {
  std::string common_name = "tensord";
  std::vector<std::string> alternatives = {};  // as OpenSSL writes them: "DNS:localhost"
  bool for_server = false;                     // else for a client
  int from_seconds = -3600;                    // from now
  int to_seconds = 3600;
};

CertificateRequest ServerRequest();
CertificateRequest ClientRequest(const std::string& name);

// Signs certificates.
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

// A folder of a test's own, which goes with this.
class TestFolder {
 public:
  TestFolder();
  ~TestFolder();
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  // Puts a file in its place whole; its path.
  std::string Write(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
};

}  // namespace tensord::integration
