"""PyTorch's RPC, with a worker process on this machine. Protocol: peer.h."""

import ctypes
import os
import signal
import socket
import sys
import time

PR_SET_PDEATHSIG = 1


def run_worker(port):
    import torch.distributed.rpc as rpc

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # the worker ends with the client
    rpc.init_rpc("worker", rank=1, world_size=2, rpc_backend_options=options(rpc, port))
    rpc.shutdown()


def options(rpc, port):
    return rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{port}", rpc_timeout=60)


def receive(tensor):
    return tensor.numel()


def give(elements):
    import torch

    if GIVEN.get("n") != elements:
        GIVEN["n"] = elements
        GIVEN["tensor"] = torch.ones(elements)
    return GIVEN["tensor"]


GIVEN = {}


def main():
    try:
        import torch
        import torch.distributed.rpc as rpc
        import torch.multiprocessing as multiprocessing
    except ImportError as error:
        print(f"skip PyTorch isn't installed ({error})", flush=True)
        return
    if not rpc.is_available():
        print("skip this PyTorch was built without RPC", flush=True)
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("TP_SOCKET_IFNAME", "lo")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    worker = multiprocessing.get_context("spawn").Process(target=run_worker, args=(port,), daemon=True)
    worker.start()
    rpc.init_rpc("client", rank=0, world_size=2, rpc_backend_options=options(rpc, port))
    small, big = torch.zeros(64), {}

    def op(n):
        latencies = []
        for _ in range(n):
            start = time.perf_counter()
            rpc.rpc_sync("worker", torch.add, args=(small, small))
            latencies.append(1e6 * (time.perf_counter() - start))
        return latencies

    def chain(n):
        x = rpc.remote("worker", torch.add, args=(small, small))
        x.to_here()
        start = time.perf_counter()
        for _ in range(n):
            x = x.remote().add(1.0)
        x.to_here()
        return [n / (time.perf_counter() - start)]

    def upload(size):
        tensor = big.setdefault(size, torch.ones(size // 4))
        start = time.perf_counter()
        rpc.rpc_sync("worker", receive, args=(tensor,))
        return [size / 2**30 / (time.perf_counter() - start)]

    def download(size):
        start = time.perf_counter()
        rpc.rpc_sync("worker", give, args=(size // 4,))
        return [size / 2**30 / (time.perf_counter() - start)]

    known = {"op": op, "chain": chain, "upload": upload, "download": download}
    print("ready", flush=True)
    for line in sys.stdin:
        what, *figures = line.split()
        print("ok", *known[what](*map(int, figures)), flush=True)
    worker.kill()
    os._exit(0)


if __name__ == "__main__":
    main()
