"""Devices: where tensors live, how they move, and what runs where.

usage: use_gpu.py [ADDRESS…]        default: tensord.connect() chooses
"""

import sys
import time

import tensord
from tensord import nn


def main() -> None:
    with tensord.connect(sys.argv[1:] or None) as connection:
        print("devices:", ", ".join(f"{device} ({device.model})" for device in connection.devices))
        first, last = connection.devices[0], connection.devices[-1]
        print("the default device is", tensord.default_device())

        # A tensor is made on the default device, or on the one that the call names.
        x = tensord.ones(2, 3)
        y = tensord.rand(2, 3, device=last)
        print("x is on", x.device, "and y is on", y.device)

        # An op runs where its inputs are. It never copies an input to another device by itself.
        x, z = x.to(first), y.to(first)
        print("x + z is on", (x + z).device)
        if first != last:
            try:
                x + y
            except ValueError as error:
                print("x + y:", error)
        print("y.to(y.device) is y:", y.to(y.device) is y)

        # A network computes on the device of its parameters.
        net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)).to(last)
        print("the network's output is on", net(y).device)

        # Ops return at once. Reading waits for the device.
        a = tensord.uniform(1000, 1000, device=first)
        start = time.perf_counter()
        for _ in range(10):
            a = a @ a / 500
        called = time.perf_counter()
        total = a.sum().item()
        done = time.perf_counter()
        print(
            f"ten products: the calls took {(called - start) * 1e3:.2f} ms, the result {(done - start) * 1e3:.0f} ms more"
        )
        print("the sum is", total)


if __name__ == "__main__":
    main()
