"""Tests the daemon from Python, through stubs generated from the proto files.

usage: stub_test.py --daemon PATH --proto FOLDER

If grpcio or grpcio-tools is missing, prints the reason and exits with 77 (skipped).
"""

import argparse
import array
import os
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any

SKIPPED = 77

try:
    import grpc
    from grpc_tools import protoc
except ImportError as error:
    print(f"skipped: {error}; pip install grpcio grpcio-tools")
    sys.exit(SKIPPED)

try:
    import numpy
except ImportError:
    numpy = None

OPTIONS: Any
PATIENCE_SECONDS = 60


def generate_stubs(proto, out):
    """Makes tensord.v1's Python modules in `out` and returns (messages, types, stubs)."""
    names = ["tensord/v1/types.proto", "tensord/v1/tensord.proto"]
    code = protoc.main(["protoc", f"-I{proto}", f"--python_out={out}", f"--grpc_python_out={out}"] + names)
    if code != 0:
        raise RuntimeError(f"protoc exited with {code}")
    # If the interpreter also has the package tensord, its folder would hide that of the stubs.
    open(os.path.join(out, "tensord", "__init__.py"), "w", encoding="utf-8").close()
    sys.path.insert(0, out)
    from tensord.v1 import tensord_pb2, tensord_pb2_grpc, types_pb2

    return tensord_pb2, types_pb2, tensord_pb2_grpc


def start_daemon(path, folder, *flags):
    """Starts the daemon on a free port. Returns the process and its address once it serves."""
    port_file = os.path.join(folder, "port")
    daemon = subprocess.Popen([path, "--listen=127.0.0.1:0", f"--port-file={port_file}", *flags])
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not os.path.exists(port_file):
        if time.monotonic() > deadline or daemon.poll() is not None:
            daemon.kill()
            raise RuntimeError("the daemon doesn't serve")
        time.sleep(0.01)
    with open(port_file, encoding="utf-8") as file:
        return daemon, file.read().split()[0]


class StubTest(unittest.TestCase):
    folder: tempfile.TemporaryDirectory[str]
    daemon: subprocess.Popen[bytes]
    pb: Any
    types: Any
    grpc: Any
    channel: Any
    stub: Any

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.pb, cls.types, cls.grpc = generate_stubs(OPTIONS.proto, cls.folder.name)
        cls.daemon, address = start_daemon(OPTIONS.daemon, cls.folder.name, "--devices=cpu=1GiB,cpu=64MiB")
        cls.channel = grpc.insecure_channel(address)
        cls.stub = cls.grpc.TensorServiceStub(cls.channel)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.daemon.terminate()
        code = cls.daemon.wait(timeout=PATIENCE_SECONDS)
        cls.folder.cleanup()
        if code != 0:
            raise RuntimeError(f"the daemon exited with {code}")

    def setUp(self):
        self.session = self.stub.OpenSession(
            self.pb.OpenSessionRequest(client_name="stub_test.py"), timeout=PATIENCE_SECONDS
        ).session

    def tearDown(self):
        self.stub.CloseSession(self.pb.CloseSessionRequest(session=self.session))

    def create(self, handle, values, shape, device="cpu:0"):
        spec = self.types.TensorSpec(dtype=self.types.DTYPE_FLOAT32, shape=shape)
        return self.stub.CreateTensor(
            self.pb.CreateTensorRequest(
                session=self.session, handle=handle, spec=spec, device=device, data=array.array("f", values).tobytes()
            )
        )

    def read(self, handle):
        answer = self.stub.ReadTensor(self.pb.ReadTensorRequest(session=self.session, handle=handle))
        values = array.array("f")
        values.frombytes(answer.data)
        return list(answer.spec.shape), list(values)

    def run_op(self, name, inputs, output, device="", **attrs):
        op = self.types.Op(name=name, inputs=inputs, output=output, device=device, attrs=attrs)
        return self.stub.RunOp(self.pb.RunOpRequest(session=self.session, op=op))

    def assert_refused(self, code, words, call):
        with self.assertRaises(grpc.RpcError) as refused:
            call()
        self.assertEqual(refused.exception.code(), code)
        for word in words:
            self.assertIn(word, refused.exception.details())

    def test_devices(self):
        devices = self.stub.ListDevices(self.pb.ListDevicesRequest()).devices
        self.assertEqual([device.name for device in devices], ["cpu:0", "cpu:1"])
        self.assertEqual(devices[1].memory_limit_bytes, 64 << 20)

    def test_a_small_program(self):
        self.create(1, [1, 2, 3, 4, 5, 6], [2, 3])
        self.create(2, [10, 20, 30], [3])
        self.stub.Add(self.pb.AddRequest(session=self.session, a=1, b=2, output=3))
        self.assertEqual(self.read(3), ([2, 3], [11, 22, 33, 14, 25, 36]))
        self.stub.MatMul(self.pb.MatMulRequest(session=self.session, a=1, b=1, output=4, transpose_b=True))
        self.assertEqual(self.read(4), ([2, 2], [14, 32, 32, 77]))
        axes = self.types.AttrValue(ints=self.types.IntList(values=[0]))
        made = self.run_op("sum", [3], 5, axes=axes)
        self.assertEqual(made.device, "cpu:0")
        self.assertEqual(self.read(5), ([3], [25, 47, 69]))
        self.stub.LinearForward(
            self.pb.LinearForwardRequest(session=self.session, input=1, weight=1, output=6, activation="relu")
        )
        self.assertEqual(self.read(6), ([2, 2], [14, 32, 32, 77]))

    def test_new_dtypes(self):
        self.assertIn("dtypes-2", self.stub.GetServerInfo(self.pb.GetServerInfoRequest()).features)
        for dtype, code in [
            (self.types.DTYPE_INT16, "h"),
            (self.types.DTYPE_UINT16, "H"),
            (self.types.DTYPE_UINT32, "I"),
            (self.types.DTYPE_UINT64, "Q"),
        ]:
            data = array.array(code, [1, 2, 100]).tobytes()
            spec = self.types.TensorSpec(dtype=dtype, shape=[3])
            self.stub.CreateTensor(
                self.pb.CreateTensorRequest(
                    session=self.session, handle=10 * dtype, spec=spec, device="cpu:0", data=data
                )
            )
            self.run_op("add", [10 * dtype, 10 * dtype], 10 * dtype + 1)
            answer = self.stub.ReadTensor(self.pb.ReadTensorRequest(session=self.session, handle=10 * dtype + 1))
            self.assertEqual(answer.spec.dtype, dtype)
            self.assertEqual(array.array(code, answer.data).tolist(), [2, 4, 200])

    def test_complex_tensors_are_only_moved(self):
        data = array.array("f", [1, 2, 3, 4]).tobytes()
        spec = self.types.TensorSpec(dtype=self.types.DTYPE_COMPLEX64, shape=[1, 2])
        self.stub.CreateTensor(
            self.pb.CreateTensorRequest(session=self.session, handle=1, spec=spec, device="cpu:0", data=data)
        )
        axes = self.types.AttrValue(ints=self.types.IntList(values=[1, 0]))
        self.run_op("permute", [1], 2, axes=axes)
        answer = self.stub.ReadTensor(self.pb.ReadTensorRequest(session=self.session, handle=2))
        self.assertEqual(list(answer.spec.shape), [2, 1])
        self.assertEqual(answer.data, data)
        self.assert_refused(
            grpc.StatusCode.INVALID_ARGUMENT, ["add", "no complex arithmetic"], lambda: self.run_op("add", [1, 1], 3)
        )

    def test_copies(self):
        self.create(1, [1, 2], [2])
        copy = self.pb.CopyToDeviceRequest(session=self.session, input=1, output=2, device="cpu:0")
        self.assertEqual(self.stub.CopyToDevice(copy).handle, 1)
        copy.device = "cpu:1"
        self.assertEqual(self.stub.CopyToDevice(copy).handle, 2)
        self.assert_refused(
            grpc.StatusCode.INVALID_ARGUMENT,
            ["cpu:0", "cpu:1", "tensor 1", "tensor 2"],
            lambda: self.stub.Add(self.pb.AddRequest(session=self.session, a=1, b=2, output=3)),
        )

    def test_streams(self):
        count = 1_000_000
        data = array.array("f", range(count)).tobytes()
        spec = self.types.TensorSpec(dtype=self.types.DTYPE_FLOAT32, shape=[1000, 1000])

        def chunks():
            yield self.pb.WriteRequest(
                spec=self.pb.WriteSpec(session=self.session, handle=1, spec=spec, device="cpu:1")
            )
            for offset in range(0, len(data), 1 << 19):
                yield self.pb.WriteRequest(offset=offset, data=data[offset : offset + (1 << 19)])

        self.assertEqual(self.stub.Write(chunks()).size_bytes, len(data))
        answers = self.stub.Read(self.pb.ReadRequest(session=self.session, handle=1))
        self.assertEqual(b"".join(answer.data for answer in answers), data)

    def test_session_stream(self):
        shape = self.types.AttrValue(ints=self.types.IntList(values=[3]))
        ones = self.types.Op(name="ones", output=1, device="cpu:0", attrs={"shape": shape})
        twice = self.types.Op(name="add", inputs=[1, 1], output=2)
        request = self.pb.SessionStreamRequest(
            attach=self.pb.Attach(session=self.session),
            commands=[
                self.pb.Command(op=ones),
                self.pb.Command(op=twice),
                self.pb.Command(get_elements=self.pb.GetElements(handle=2, request_id=7)),
            ],
        )
        answers = [
            elements
            for response in self.stub.SessionStream(iter([request]), timeout=PATIENCE_SECONDS)
            for elements in response.elements
        ]
        self.assertEqual([elements.request_id for elements in answers], [7])
        self.assertEqual(array.array("f", answers[0].data).tolist(), [2, 2, 2])

    def test_errors(self):
        self.create(1, [1, 2], [2])
        self.assert_refused(grpc.StatusCode.NOT_FOUND, ["99"], lambda: self.read(99))
        self.assert_refused(grpc.StatusCode.ALREADY_EXISTS, ["1"], lambda: self.create(1, [1], [1]))
        self.assert_refused(grpc.StatusCode.INVALID_ARGUMENT, ["12", "8"], lambda: self.create(2, [1, 2], [3]))
        self.assert_refused(grpc.StatusCode.NOT_FOUND, ["sine"], lambda: self.run_op("sine", [1], 2))

    @unittest.skipIf(numpy is None, "numpy can't be imported")
    def test_against_numpy(self):
        generator = numpy.random.default_rng(1)
        a = generator.standard_normal((5, 7)).astype(numpy.float32)
        b = generator.standard_normal((7, 4)).astype(numpy.float32)
        self.create(1, a.ravel().tolist(), a.shape)
        self.create(2, b.ravel().tolist(), b.shape)
        self.stub.MatMul(self.pb.MatMulRequest(session=self.session, a=1, b=2, output=3))
        shape, values = self.read(3)
        numpy.testing.assert_allclose(numpy.array(values, numpy.float32).reshape(shape), a @ b, rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--daemon", required=True)
    parser.add_argument("--proto", required=True)
    OPTIONS = parser.parse_args()
    unittest.main(argv=sys.argv[:1], verbosity=2)
