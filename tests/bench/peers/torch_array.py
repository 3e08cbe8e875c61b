"""PyTorch 2 from Python, for single ops. Protocol: peer.h.

A question is "COUNT; SETUP; STATEMENT". The peer runs SETUP once for successive questions with the same
SETUP, and STATEMENT COUNT times. The answer is the time of one run in milliseconds.
"""

import os
import sys
import time


def main():
    try:
        import torch
    except ImportError as error:
        print(f"skip PyTorch isn't installed ({error})", flush=True)
        return
    if int(torch.__version__.split(".")[0]) < 2:
        print(f"skip PyTorch {torch.__version__} is older than 2", flush=True)
        return
    torch.set_num_threads(os.cpu_count())
    last_setup, names = None, {}
    print("ready", flush=True)
    with torch.inference_mode():
        for line in sys.stdin:
            count, setup, statement = (part.strip() for part in line.split(";", 2))
            try:
                if setup != last_setup:
                    names = {"torch": torch}
                    exec("\n".join(part.strip() for part in setup.split("|")), names)
                    last_setup = setup
                code = compile(statement, "statement", "exec")
                start = time.perf_counter()
                for _ in range(int(count)):
                    exec(code, names)
                print("ok", 1e3 * (time.perf_counter() - start) / int(count), flush=True)
            except (NameError, RuntimeError, SyntaxError, TypeError, ValueError) as error:
                print("error", str(error).replace("\n", " "), flush=True)


main()
