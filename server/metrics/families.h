// The table of all families of metrics that the server reports. A test compares README.md with it.
//
// To add a family, add it here and to kFamilies, add its samples in rpc/collect_metrics.cc, and add
// its row to README.md.
#pragma once

#include <array>
#include <cstddef>

#include "absl/strings/string_view.h"

namespace tensord::server::metrics {

enum class Type { kCounter, kGauge, kHistogram };

// A family of metrics, as Prometheus defines it. Units are base units: seconds and bytes.
struct Family {
  static constexpr size_t kMaxLabels = 2;

  absl::string_view name;
  Type type;
  std::array<absl::string_view, kMaxLabels> labels;  // their names; empty after the last one
  absl::string_view help;                            // one line
};

inline constexpr Family kBuildInfo = {"tensord_build_info",
                                      Type::kGauge,
                                      {"version", "grpc_version"},
                                      "Always 1. The labels are the versions of the server."};
inline constexpr Family kStartTime = {"process_start_time_seconds",
                                      Type::kGauge,
                                      {},
                                      "When the server started, in seconds since 1970."};

inline constexpr Family kDeviceMemoryUsed = {
    "tensord_device_memory_used_bytes", Type::kGauge, {"device"}, "Memory of the device in use."};
inline constexpr Family kDeviceMemoryLimit = {"tensord_device_memory_limit_bytes",
                                              Type::kGauge,
                                              {"device"},
                                              "Memory of the device that may be in use."};
inline constexpr Family kDeviceMemoryPeak = {"tensord_device_memory_peak_bytes",
                                             Type::kGauge,
                                             {"device"},
                                             "The highest value so far of the memory in use."};
inline constexpr Family kDeviceBusy = {
    "tensord_device_busy_seconds_total",
    Type::kCounter,
    {"device"},
    "Time that the device's executor was busy with ops and other tasks. On a GPU this is the time "
    "of their launches."};
inline constexpr Family kDeviceQueuedTasks = {
    "tensord_device_queued_tasks",
    Type::kGauge,
    {"device"},
    "Tasks of the device's thread that wait or run. Each op is a task, also in a fused chain."};
inline constexpr Family kDeviceState = {"tensord_device_state",
                                        Type::kGauge,
                                        {"device", "state"},
                                        "1 for the current state of the device, otherwise 0."};
inline constexpr Family kDeviceFaults = {"tensord_device_faults_total",
                                         Type::kCounter,
                                         {"device"},
                                         "How often the device was lost because of a fault."};
inline constexpr Family kDeviceRestarts = {
    "tensord_device_restarts_total", Type::kCounter, {"device"}, "Restarts of the device."};
inline constexpr Family kKernelsToCompile = {
    "tensord_kernels_to_compile",
    Type::kGauge,
    {},
    "Kernels for fused chains that wait to be compiled or are being compiled. Meanwhile these "
    "chains run op by op."};

inline constexpr Family kPrincipalMemory = {
    "tensord_principal_memory_bytes",
    Type::kGauge,
    {"principal", "device"},
    "Memory of the device that is charged to the principal's sessions."};
inline constexpr Family kPrincipalDeviceTime = {
    "tensord_principal_device_seconds_total",
    Type::kCounter,
    {"principal", "device"},
    "Time that the device's executor was busy with the principal's ops and other tasks."};
inline constexpr Family kPrincipalReceived = {
    "tensord_principal_received_bytes_total",
    Type::kCounter,
    {"principal", "transfer"},
    "Bytes that the server received in the principal's calls and fetches."};
inline constexpr Family kPrincipalSent = {"tensord_principal_sent_bytes_total",
                                          Type::kCounter,
                                          {"principal", "transfer"},
                                          "Bytes that the server sent in the principal's calls."};
inline constexpr Family kPrincipalRefusals = {
    "tensord_principal_refusals_total",
    Type::kCounter,
    {"principal", "reason"},
    "Requests of the principal that the server refused because a limit was reached."};
inline constexpr Family kPrincipalSessions = {
    "tensord_principal_sessions", Type::kGauge, {"principal"}, "Open sessions of the principal."};
inline constexpr Family kPrincipalHandles = {"tensord_principal_handles",
                                             Type::kGauge,
                                             {"principal"},
                                             "Tensors that the principal's sessions hold."};

inline constexpr Family kPrincipalHostMemory = {
    "tensord_principal_host_memory_bytes",
    Type::kGauge,
    {"principal"},
    "Host memory that is charged to the principal for handles, programs and the like."};

inline constexpr Family kHostMemoryUsed = {
    "tensord_host_memory_used_bytes",
    Type::kGauge,
    {},
    "Host memory that is charged to callers for handles, programs and the like."};
inline constexpr Family kHostMemoryLimit = {"tensord_host_memory_limit_bytes",
                                            Type::kGauge,
                                            {},
                                            "Host memory that may be charged to callers."};

inline constexpr Family kCalls = {"tensord_calls_total",
                                  Type::kCounter,
                                  {"method", "code"},
                                  "Calls that have ended, by their status code."};
inline constexpr Family kCallDuration = {
    "tensord_call_duration_seconds",
    Type::kHistogram,
    {"method"},
    "Time from a call's arrival until the server ended it. For a stream, its lifetime."};

inline constexpr Family kConnections = {
    "tensord_connections", Type::kGauge, {"state"}, "Open TCP connections."};
inline constexpr Family kConnectionsAccepted = {"tensord_connections_accepted_total",
                                                Type::kCounter,
                                                {},
                                                "Connections that the server accepted."};
inline constexpr Family kConnectionsRefused = {
    "tensord_connections_refused_total",
    Type::kCounter,
    {"reason"},
    "Connections that the server closed instead of accepting them."};
inline constexpr Family kConnectionsClosed = {"tensord_connections_closed_total",
                                              Type::kCounter,
                                              {"reason"},
                                              "Accepted connections that the server closed to "
                                              "enforce a limit."};
inline constexpr Family kAuthenticationFailures = {
    "tensord_authentication_failures_total",
    Type::kCounter,
    {"reason"},
    "Calls that were refused because they had no valid credentials."};

inline constexpr Family kSessions = {"tensord_sessions", Type::kGauge, {}, "Open sessions."};
inline constexpr Family kSessionsOpened = {
    "tensord_sessions_opened_total", Type::kCounter, {}, "Sessions that were opened."};
inline constexpr Family kSessionsEnded = {
    "tensord_sessions_ended_total", Type::kCounter, {"reason"}, "Sessions that have ended."};

// All families, in the order in which they are reported.
inline constexpr const Family* kFamilies[] = {
    &kBuildInfo,
    &kStartTime,
    &kDeviceMemoryUsed,
    &kDeviceMemoryLimit,
    &kDeviceMemoryPeak,
    &kDeviceBusy,
    &kDeviceQueuedTasks,
    &kDeviceState,
    &kDeviceFaults,
    &kDeviceRestarts,
    &kKernelsToCompile,
    &kPrincipalMemory,
    &kPrincipalDeviceTime,
    &kPrincipalReceived,
    &kPrincipalSent,
    &kPrincipalRefusals,
    &kPrincipalSessions,
    &kPrincipalHandles,
    &kPrincipalHostMemory,
    &kHostMemoryUsed,
    &kHostMemoryLimit,
    &kCalls,
    &kCallDuration,
    &kConnections,
    &kConnectionsAccepted,
    &kConnectionsRefused,
    &kConnectionsClosed,
    &kAuthenticationFailures,
    &kSessions,
    &kSessionsOpened,
    &kSessionsEnded,
};

}  // namespace tensord::server::metrics
