#!/usr/bin/env python3
"""Compares the results of a daemon's CPU device with PyTorch's, for client/TOLERANCES.md.

The script runs every op of ListOps over seeded inputs, in each floating dtype. It fails if the
daemon has an op that the script or the page lacks, or if a result is further from PyTorch's than
the page's rtol and atol permit. For each row of the page's table, it prints the largest difference.
With --write, it writes these differences into the page.

usage: compare_with_torch.py --daemon PATH --proto FOLDER --page FILE [--write] [--verbose]

If grpcio, grpcio-tools, numpy or torch is missing, prints the reason and exits with 77 (skipped).
"""

import argparse
import itertools
import os
import re
import sys
import tempfile

from stub_test import SKIPPED, generate_stubs, start_daemon  # exits if grpcio is missing

import grpc

# If torch_tensord is installed, torch would import the package tensord, whose name the stubs have.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
try:
    import numpy
    import torch
except ImportError as error:
    print(f"skipped: {error}; pip install numpy torch")
    sys.exit(SKIPPED)

from torch_cases import CASES, FLOATING, OTHERS, Inputs, to_bytes

TIMEOUT_SECONDS = 60
NOT_COMPARED = {
    "uniform",
    "normal",
    "randint",
    "dropout",  # PyTorch has other generators
    "floor_divide",
    "remainder",
}  # PyTorch divides first, and rounds or overflows there
INTEGER_ONLY = {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right"}
NAMES = {dtype: name for name, dtype in (FLOATING | OTHERS).items()}
# Bits of the significand, and the smallest exponent of a normal number as numpy.frexp returns it.
PRECISION = {torch.float16: (11, -13), torch.bfloat16: (8, -125), torch.float32: (24, -125), torch.float64: (53, -1021)}


# ---------------------------------------------------------------- the daemon


class Server:
    """Runs single ops on the daemon's CPU device."""

    def __init__(self, address, pb, types, stubs):
        self.pb, self.types = pb, types
        self.stub = stubs.TensorServiceStub(
            grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)])
        )
        self.session = self.stub.OpenSession(
            pb.OpenSessionRequest(client_name="compare_with_torch.py", lease_seconds=3600)
        ).session
        self.number_of = {
            getattr(torch, name[len("DTYPE_") :].lower(), None): number for name, number in types.DType.items()
        }
        self.dtype_of = {number: dtype for dtype, number in self.number_of.items()}

    def ops(self):
        return {op.name for op in self.stub.ListOps(self.pb.ListOpsRequest()).ops}

    def attribute(self, value):
        kinds = {bool: "b", int: "i", float: "f", str: "s", bytes: "data"}
        if isinstance(value, torch.dtype):
            return self.types.AttrValue(dtype=self.number_of[value])
        if isinstance(value, list):
            return self.types.AttrValue(ints=self.types.IntList(values=value))
        return self.types.AttrValue(**{kinds[type(value)]: value})

    def run(self, name, case, num_outputs):
        """Returns the outputs of the op."""
        handles = list(range(1, len(case.inputs) + 1))
        outputs = list(range(len(handles) + 1, len(handles) + num_outputs + 1))
        for handle, x in zip(handles, case.inputs):
            spec = self.types.TensorSpec(dtype=self.number_of[x.dtype], shape=x.shape)
            self.stub.CreateTensor(
                self.pb.CreateTensorRequest(
                    session=self.session, handle=handle, spec=spec, device="cpu:0", data=to_bytes(x)
                ),
                timeout=TIMEOUT_SECONDS,
            )
        op = self.types.Op(
            name=name,
            inputs=handles,
            output=outputs[0],
            num_outputs=num_outputs,
            device="" if case.inputs else "cpu:0",
            attrs={key: self.attribute(value) for key, value in case.attrs.items()},
        )
        self.stub.RunOps(self.pb.RunOpsRequest(session=self.session, ops=[op]), timeout=TIMEOUT_SECONDS)
        results = [self.read(output) for output in outputs]
        self.stub.DeleteTensors(self.pb.DeleteTensorsRequest(session=self.session, handles=handles + outputs))
        return results

    def read(self, handle):
        answer = self.stub.ReadTensor(
            self.pb.ReadTensorRequest(session=self.session, handle=handle), timeout=TIMEOUT_SECONDS
        )
        shape, dtype = list(answer.spec.shape), self.dtype_of[answer.spec.dtype]
        if not answer.data:
            return torch.empty(shape, dtype=dtype)
        flat = torch.frombuffer(bytearray(answer.data), dtype=torch.uint8)
        return flat.view(dtype).reshape(shape)


# ---------------------------------------------------------------- differences


class Difference:
    """The largest difference: in ulps, or the part that exceeds one ulp, in epsilons of S."""

    def __init__(self):
        self.compared, self.ulps, self.epsilons = False, 0.0, 0.0

    def include(self, other):
        self.compared |= other.compared
        self.ulps = max(self.ulps, other.ulps)
        self.epsilons = max(self.epsilons, other.epsilons)

    def __str__(self):
        if not self.compared:
            return "–"
        if self.epsilons > 0:
            return f"1 ulp + {self.epsilons:.2g} ε·S"
        return f"{self.ulps:.3g} ulp" if self.ulps > 0 else "0"


def finite(x):
    """Returns float64 elements, with the largest value of the dtype in place of infinity."""
    largest = torch.finfo(x.dtype).max
    return numpy.clip(x.double().numpy(), -largest, largest)


def measure(got, want, scale, row, found):
    """Adds the difference of two tensors to `found`. Returns what exceeds the page's tolerance."""
    found.compared = True
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"is {got.dtype} {list(got.shape)}, not {want.dtype} {list(want.shape)}"
    if want.numel() == 0:
        return None
    if want.dtype not in PRECISION:
        wrong = (got != want).sum().item()
        return f"{wrong} of {want.numel()} elements differ" if wrong else None
    got, want = torch.atleast_1d(got), torch.atleast_1d(want)
    bits, low = PRECISION[want.dtype]
    a, b = finite(got), finite(want)
    ulp = numpy.ldexp(1.0, numpy.maximum(numpy.frexp(b)[1], low) - bits)
    error = numpy.abs(a - b) + ulp * (got.isinf() != want.isinf()).numpy()
    error[(got.isnan() & want.isnan()).numpy()] = 0  # one NaN: the error is NaN
    terms = numpy.zeros(b.shape)
    if scale is None:
        found.ulps = max(found.ulps, (error / ulp).max())
    else:
        terms = torch.finfo(want.dtype).eps * numpy.nan_to_num(finite(scale.reshape(b.shape)))
        beyond = numpy.maximum(error - ulp, 0) / numpy.maximum(terms, ulp * 2.0**-bits)
        found.ulps = max(found.ulps, numpy.minimum(error / ulp, 1).max())
        found.epsilons = max(found.epsilons, beyond.max())
    allowed = row.rtol * numpy.abs(numpy.nan_to_num(b)) + row.atol + row.atol_epsilons * terms
    wrong = ~(error <= allowed)
    if not wrong.any():
        return None
    worst = numpy.unravel_index(numpy.nan_to_num(error - allowed, nan=numpy.inf).argmax(), b.shape)
    return (
        f"{wrong.sum()} of {wrong.size} elements exceed the page's tolerance, most at "
        f"{list(map(int, worst))}: {got[worst].item()!r} and not {want[worst].item()!r}, "
        f"{error[worst] / ulp[worst]:.3g} ulp"
    )


# ---------------------------------------------------------------- the page


class Row:
    """A row of the page: | ops | dtypes | largest difference | bound | rtol | atol |.

    `atol` is a number, or a number of epsilons of the case's scale, such as "4 ε·S".
    """

    def __init__(self, cells):
        self.ops = re.findall(r"`(\w+)`", cells[0])
        self.dtypes = [name for name in FLOATING if name in re.findall(r"\w+", cells[1])]
        self.rtol = float(cells[4])
        atol = re.fullmatch(r"(\S+) ε·S", cells[5])
        self.atol = 0.0 if atol else float(cells[5])
        self.atol_epsilons = float(atol[1]) if atol else 0.0
        self.cells, self.found = cells, Difference()

    def __str__(self):
        return "| " + " | ".join(self.cells[:2] + [str(self.found)] + self.cells[3:]) + " |"


def read_page(path):
    """Returns the page's lines. Rows of the table are objects of type Row."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    header = [line.startswith("| ops | dtype | largest") for line in lines].index(True)
    begin = header + 2
    end = next(i for i in range(begin, len(lines)) if not lines[i].startswith("|"))
    rows = [Row([cell.strip() for cell in line.strip("| ").split(" | ")]) for line in lines[begin:end]]
    return lines[:begin] + rows + lines[end:]


def compare(server, name, dtype, row):
    """Runs the cases of an op. Returns their largest difference, and a list of failures."""
    found, failures = Difference(), []
    for case in CASES[name](Inputs(FLOATING[dtype])):
        try:
            want = case.want()
        except RuntimeError as error:
            if "not implemented for" in str(error):
                continue  # this PyTorch lacks the op in this dtype
            raise
        wants = want if isinstance(want, tuple) else (want,)
        scales = case.scale if isinstance(case.scale, tuple) else (case.scale,)
        for got, want, scale in zip(server.run(name, case, len(wants)), wants, scales, strict=True):
            if wrong := measure(got, want, scale, row, found):
                attrs = {key: value for key, value in case.attrs.items() if key != "data"}
                failures.append(f"{name} {dtype} {attrs}: {wrong}")
    return found, failures


def compare_all(server, rows, verbose):
    failures = []
    row_of = {(op, dtype): row for row in rows for op in row.ops for dtype in row.dtypes}
    for name, dtype in itertools.product(sorted(server.ops() - INTEGER_ONLY), FLOATING):
        row = row_of.get((name, dtype))
        if row is None:
            failures.append(f"the page has no row for {name} {dtype}")
        elif name not in CASES.keys() | NOT_COMPARED:
            failures.append(f"this script has no case for {name}")
        elif name not in NOT_COMPARED:
            found, wrong = compare(server, name, dtype, row)
            failures += wrong
            row.found.include(found)
            if verbose:
                print(f"{name:12} {dtype:9} {found}")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--daemon", required=True, help="path of tensord")
    parser.add_argument("--proto", required=True, help="the folder proto/")
    parser.add_argument("--page", required=True, help="path of client/TOLERANCES.md")
    parser.add_argument("--write", action="store_true", help="write the differences into the page")
    parser.add_argument("--verbose", action="store_true", help="print the difference of each op")
    options = parser.parse_args()
    torch.set_num_threads(1)
    numpy.seterr(invalid="ignore")  # some inputs are NaNs
    lines = read_page(options.page)
    rows = [line for line in lines if isinstance(line, Row)]
    with tempfile.TemporaryDirectory() as folder:
        modules = generate_stubs(options.proto, folder)
        daemon, address = start_daemon(options.daemon, folder, "--devices=cpu")
        try:
            failures = compare_all(Server(address, *modules), rows, options.verbose)
        finally:
            daemon.terminate()
            daemon.wait()
    print(f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}")
    print(*rows, *failures, sep="\n")
    if options.write:
        with open(options.page, "w", encoding="utf-8") as file:
            file.write("\n".join(map(str, lines)) + "\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
