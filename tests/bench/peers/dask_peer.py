"""Dask with one worker process on this machine. Protocol: peer.h."""

import logging
import sys
import tempfile
import time


def add(a, b):
    return a + b


def main():
    try:
        import numpy
        from distributed import Client, LocalCluster
    except ImportError as error:
        print(f"skip Dask isn't installed ({error})", flush=True)
        return
    logging.getLogger("distributed").setLevel(logging.ERROR)
    folder = tempfile.TemporaryDirectory()
    cluster = LocalCluster(
        local_directory=folder.name,
        n_workers=1,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        host="127.0.0.1",
        silence_logs=logging.ERROR,
        memory_limit=0,
    )
    client = Client(cluster)
    small, big = numpy.zeros(64, dtype=numpy.float32), {}

    def array(size):
        return big.setdefault(size, numpy.ones(size // 4, dtype=numpy.float32))

    def op(n):
        a = client.scatter(small)
        latencies = []
        for _ in range(n):
            start = time.perf_counter()
            client.submit(add, a, a, pure=False).result()
            latencies.append(1e6 * (time.perf_counter() - start))
        return latencies

    def chain(n):
        steps = [client.scatter(small)]  # holds all futures: Dask may cancel one that is released
        start = time.perf_counter()
        for _ in range(n):
            steps.append(client.submit(add, steps[-1], 1.0, pure=False))
        steps[-1].result()
        return [n / (time.perf_counter() - start)]

    def upload(size):
        data = array(size)
        start = time.perf_counter()
        client.scatter(data, direct=True, hash=False)
        return [size / 2**30 / (time.perf_counter() - start)]

    def download(size):
        there = client.scatter(array(size), direct=True, hash=False)
        start = time.perf_counter()
        client.gather(there, direct=True)
        return [size / 2**30 / (time.perf_counter() - start)]

    known = {"op": op, "chain": chain, "upload": upload, "download": download}
    print("ready", flush=True)
    for line in sys.stdin:
        what, *figures = line.split()
        print("ok", *known[what](*map(int, figures)), flush=True)
    sys.stdout.flush()
    client.close()
    cluster.close()
    folder.cleanup()


if __name__ == "__main__":
    main()
