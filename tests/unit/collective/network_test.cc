// The network that --collectives names, and the addresses that belong to it.
#include "tensord/server/communicator/network.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tensord::server {
namespace {

Endpoint Ipv4(const std::string& address) {
  Endpoint endpoint;
  inet_pton(AF_INET, address.c_str(), endpoint.address.data());
  return endpoint;
}

TEST(CollectiveNetworkTest, AddressSelectsTheNetworkOfItsInterface) {
  const auto network = CollectiveNetwork::Find("127.0.0.1");
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_EQ(network->ToString(), "127.0.0.1/8");
  EXPECT_EQ(network->interface(), "lo");
  EXPECT_TRUE(network->Contains(Ipv4("127.9.8.7")));
  EXPECT_FALSE(network->Contains(Ipv4("128.0.0.1")));
}

TEST(CollectiveNetworkTest, InterfaceSelectsItsAddress) {
  const auto network = CollectiveNetwork::Find("lo");
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_EQ(network->ToString(), "127.0.0.1/8");
}

TEST(CollectiveNetworkTest, PrefixLengthNarrowsOrWidensTheNetwork) {
  const auto narrow = CollectiveNetwork::Find("127.0.0.1/30");
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  EXPECT_TRUE(narrow->Contains(Ipv4("127.0.0.3")));
  EXPECT_FALSE(narrow->Contains(Ipv4("127.0.0.4")));
  const auto wide = CollectiveNetwork::Find("127.0.0.1/0");
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_TRUE(wide->Contains(Ipv4("192.0.2.1")));
}

TEST(CollectiveNetworkTest, EveryLoopbackAddressIsThisMachines) {
  const auto network = CollectiveNetwork::Find("127.0.0.3");
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_EQ(network->ToString(), "127.0.0.3/8");
}

TEST(CollectiveNetworkTest, RejectsInvalidNetworks) {
  for (const char* wanted : {"", "192.0.2.1", "0.0.0.0", "nosuch0", "127.0.0.1/33", "127.0.0.1/-1",
                             "127.0.0.1/", "127.0.0.1/x", "/8"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CollectiveNetwork::Find(wanted).status())) << wanted;
  }
}

TEST(EndpointTest, SurvivesARoundTrip) {
  Endpoint endpoint = Ipv4("10.1.2.3");
  endpoint.port = 4711;
  sockaddr_storage storage;
  EXPECT_EQ(endpoint.ToSockaddr(&storage), sizeof(sockaddr_in));
  const auto back = Endpoint::From(reinterpret_cast<const sockaddr*>(&storage));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->ToString(), "10.1.2.3:4711");
  endpoint.family = AF_INET6;
  inet_pton(AF_INET6, "fd00::5", endpoint.address.data());
  endpoint.ToSockaddr(&storage);
  EXPECT_EQ(Endpoint::From(reinterpret_cast<const sockaddr*>(&storage))->ToString(),
            "[fd00::5]:4711");
}

}  // namespace
}  // namespace tensord::server
