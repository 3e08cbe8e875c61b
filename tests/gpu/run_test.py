"""Tests tests/gpu/pack and tests/gpu/run with emulated programs: the report, and that failures are reported.

usage: run_test.py --programs FOLDER --source FOLDER [--python PROGRAM]

--programs: the folder of gpu_bench_emulated and the other emulated programs. --source: the root of the source tree.
--python: a Python that has PyTorch and the packages tensord and torch_tensord. Without them, the tests of packs with
--torch are skipped.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any

OPTIONS: Any
PATIENCE_SECONDS = 900
PARTS = ["smoke", "torch", "compare", "device", "conformance", "bench", "memcheck", "racecheck"]


def bare_environment(**variables):
    """Returns an environment that inherits only PATH from this process's."""
    return {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **variables}


def run(command, folder, **environment):
    return subprocess.run(
        command,
        cwd=folder,
        env=bare_environment(**environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def write_program(path, text, interpreter="/bin/bash"):
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"#!{interpreter}\n{text}")
    os.chmod(path, 0o755)


# Replaces torch_peer.py. Its checksums are right for neg in float32, and wrong for all other ops.
PEER = """
import sys

def value_at(index, seed):
    x = (index + seed * 0x9E3779B9) & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return ((x ^ (x >> 16)) >> 8) * 2.0**-23 - 1

print("ready stub", flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "load":
        question = words[1:]
        answer = "0"
    elif words[0] == "run":
        answer = "0.001"
    elif words[0] in ("flags", "kernels"):
        answer = "unknown"
    elif question[0] == "neg" and question[1].startswith("float32:"):
        y = [-value_at(i, 1) for i in range(int(question[1].split(":")[1]))]
        weighted = sum(y[i] * value_at(i, 0xC0FFEE) for i in range(len(y)))
        answer = f"{weighted!r} {sum(v * v for v in y) ** 0.5!r}"
    else:
        answer = "1 1"
    print("ok", answer, flush=True)
"""


class PackTest(unittest.TestCase):
    """Makes a pack, and unpacks it in the folder `moved`."""

    folder: str
    pack_command: list[str]
    pack_options: list[str] = []

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="gpu_run_test")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.pack_command = [os.path.join(OPTIONS.source, "tests/gpu/pack"), "--programs", OPTIONS.programs]
        options = [*cls.pack_options, "--out", "pack.tar", "--max-mib", "1000"]
        made = run(cls.pack_command + options, cls.folder)
        if made.returncode != 0:
            raise RuntimeError(made.stdout)
        subprocess.run(["tar", "-xf", "pack.tar"], cwd=cls.folder, check=True)
        os.rename(os.path.join(cls.folder, "tensord-gpu"), os.path.join(cls.folder, "moved"))

    def run_pack(self, *arguments, **environment):
        command = ["moved/run", "--quick", "--out", "report", *arguments]
        result = run(command, self.folder, **environment)
        self.last_line = result.stdout.rstrip().rsplit("\n", 1)[-1]
        return result

    def report_lines(self, name):
        with open(os.path.join(self.folder, "report", name), encoding="utf-8") as file:
            return file.read().splitlines()

    def report_json(self, name):
        with open(os.path.join(self.folder, "report", name), encoding="utf-8") as file:
            return json.load(file)

    def change_manifest(self, name, value):
        """Replaces a line of the pack's MANIFEST until the test ends."""
        path = os.path.join(self.folder, "moved/MANIFEST")
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.addCleanup(pathlib.Path(path).write_text, text, encoding="utf-8")
        with open(path, "w", encoding="utf-8") as file:
            file.write(re.sub(rf"(?m)^{name}: .*$", f"{name}: {value}", text))

    def stub_programs(self, **stubs):
        """Returns a folder with the pack's programs, some of them replaced by scripts."""
        folder = tempfile.mkdtemp(dir=self.folder)
        for name in os.listdir(os.path.join(self.folder, "moved/bin")):
            program = name[: -len("_emulated")]
            if program in stubs:
                write_program(os.path.join(folder, name), stubs[program])
            else:
                os.symlink(os.path.join(self.folder, "moved/bin", name), os.path.join(folder, name))
        return folder


class GpuRunTest(PackTest):
    def test_runs_every_part_and_reports(self):
        result = self.run_pack("--limit", str(PATIENCE_SECONDS), TENSORD_GPU_PYTHON="/nonexistent")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertRegex(self.last_line, r"^\d+ passed, 0 failed, 5 skipped$")
        for part in PARTS:
            self.assertRegex(result.stdout, rf"\n{part} +\d+ +0 +\d+ +\d+\n")
        self.assertIn("Emulated GPU, compute capability 9.0", result.stdout)
        with open(os.path.join(self.folder, "report/report.txt"), encoding="utf-8") as file:
            self.assertIn(file.read(), result.stdout)
        self.assertEqual(self.report_lines("repeat.txt"), [])
        rows = self.report_json("bench.json")["rows"]
        names = " ".join(row["name"] for row in rows)
        for word in (
            "float32",
            "tf32",
            "float16",
            "bfloat16",
            "gelu",
            "a row",
            "where",
            "sum of",
            "softmax",
            "transpose",
            "conv float16",
            "upload",
            "download",
            "one add",
            "program",
        ):
            self.assertIn(word, names)
        for row in rows:
            if row["name"].startswith("conv"):  # only PyTorch is its reference
                self.assertIsNone(row["ratio"], row)
            else:
                self.assertGreater(row["ratio"], 0, row)

    def test_programs_take_their_libraries_from_the_pack(self):
        libraries = os.path.realpath(os.path.join(self.folder, "moved/lib"))
        of_the_system = r"^lib(c|m|mvec|dl|pthread|rt|resolv)\.so"
        programs = os.path.join(self.folder, "moved/bin")
        for name in os.listdir(programs):
            lines = run(["ldd", os.path.join(programs, name)], self.folder).stdout.splitlines()
            found = [line.split()[2] for line in lines if "=>" in line]
            self.assertTrue(found, name)
            for path in found:
                if os.path.realpath(os.path.dirname(path)) != libraries:
                    self.assertRegex(os.path.basename(path), of_the_system, name)

    def test_skips_everything_without_a_gpu(self):
        result = self.run_pack(TENSORD_EMULATED_DEVICES="0")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.last_line, "0 passed, 0 failed, 8 skipped")
        self.assertIn("  8 x no GPU: no CUDA-capable device is detected", result.stdout)

    def test_shows_a_failed_test_with_its_output(self):
        # Too little memory to create a device.
        result = self.run_pack("device", GTEST_FILTER="CudaTest.SumsAndMeans", TENSORD_EMULATED_MEMORY_MIB="8")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertEqual(self.last_line, "0 passed, 1 failed")
        self.assertIn("cuda_device_test: CudaTest.SumsAndMeans", result.stdout)
        self.assertIn("RESOURCE_EXHAUSTED: cudaMalloc failed", result.stdout)

    def test_counts_a_crash_as_a_failure_of_the_case_that_ran(self):
        crash = (
            "echo '[ RUN      ] A.Passes'\necho '[       OK ] A.Passes (0 ms)'\n"
            "echo '[ RUN      ] A.Crashes'\necho last words\nkill -SEGV $$\n"
        )
        passes = "echo '[ RUN      ] B.Passes'\necho '[       OK ] B.Passes (0 ms)'\n"
        programs = self.stub_programs(
            cuda_device_test=crash, cuda_fault_test=passes, cuda_backend_test="echo started\nexit 3\n"
        )
        result = self.run_pack("--emulated", "--programs", programs, "device")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.last_line, "2 passed, 2 failed")
        self.assertIn("cuda_device_test: A.Crashes: the program ended with 139\n    last words", result.stdout)
        self.assertIn("cuda_backend_test: the program ended with 3\n    started", result.stdout)

    def test_ends_a_part_that_takes_too_long(self):
        hang = "echo '[ RUN      ] A.Hangs'\nexec sleep 100\n"
        good = "echo '[ RUN      ] A.B'\necho '[       OK ] A.B (0 ms)'\n"
        programs = self.stub_programs(cuda_device_test=good, cuda_backend_test=good, cuda_fault_test=hang)
        result = self.run_pack("--emulated", "--programs", programs, "--limit", "10", "device")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.last_line, "2 passed, 1 failed")
        self.assertIn("A.Hangs: was running when the part's 10 s were over", result.stdout)

    def sanitize(self, text):
        tool = os.path.join(self.folder, "sanitizer_stub")
        write_program(tool, text)
        return self.run_pack("memcheck", TENSORD_COMPUTE_SANITIZER=tool)

    def test_passes_if_the_sanitizer_finds_nothing_and_the_tests_pass(self):
        ok = 'echo "$@" >"${0%/*}/arguments"\n"${@: -1}" && echo "========= ERROR SUMMARY: 0 errors"\n'
        result = self.sanitize(ok)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(self.last_line, "1 passed, 0 failed")
        with open(os.path.join(self.folder, "arguments"), encoding="utf-8") as file:
            self.assertIn("--tool memcheck --error-exitcode 99", file.read())

    def test_fails_if_the_sanitizer_reports_an_error(self):
        found = (
            '"${@: -1}"\necho "========= Invalid __global__ read of size 4 bytes"\n'
            'echo "=========     at Sum()"\necho "========= ERROR SUMMARY: 1 error"\nexit 99\n'
        )
        result = self.sanitize(found)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.last_line, "0 passed, 1 failed")
        self.assertIn("Invalid __global__ read of size 4 bytes", result.stdout)
        self.assertIn("at Sum()", result.stdout)

    def test_fails_if_racecheck_reports_a_warning(self):
        result = self.sanitize(
            '"${@: -1}"\necho "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)"\n'
        )
        self.assertEqual(result.returncode, 1)

    def test_fails_if_the_sanitizer_ran_no_test(self):
        result = self.sanitize('echo "========= ERROR SUMMARY: 0 errors"\n')
        self.assertEqual(result.returncode, 1)

    def test_compares_results_with_pytorch(self):
        python = os.path.join(self.folder, "python_stub")
        write_program(python, PEER, sys.executable)
        result = self.run_pack("compare", TENSORD_GPU_PYTHON=python)
        self.assertEqual(result.returncode, 1)
        rows = {row["name"]: row for row in self.report_json("compare.json")["rows"]}
        self.assertGreater(rows["neg float32 4096"]["ratio"], 0)
        self.assertGreater(rows["upload 4 KiB"]["ratio"], 0)
        self.assertIn("the result differs", rows["exp float32 4096"]["failure"])
        self.assertRegex(result.stdout, r"exp float32 4096\n +DATA_LOSS: the result differs")
        self.assertIn("compare exp float32 4096", self.report_lines("repeat.txt"))

    def test_says_which_engine_of_cudnn_a_convolution_has(self):
        self.run_pack("bench")
        row = next(row for row in self.report_json("bench.json")["rows"] if row["name"].startswith("conv tf32"))
        (problem,) = row["engines"]
        self.assertEqual(problem["problem"], "forward in float32, tf32 allowed, bias, ReLU")
        self.assertEqual(problem["chosen"]["notes"], ["tensor cores"])
        self.assertIn("nondeterministic", problem["rejected"][0]["reason"])
        report = "\n".join(self.report_lines("report.txt"))
        self.assertIn("ours: forward in float32, tf32 allowed, bias, ReLU: engine", report)
        self.assertRegex(report, r"rejected: engine \d+ \(.*\): an engine needs too much workspace")
        self.assertIn(", cuDNN 9.19.0\n", report)

    def test_lists_what_to_repeat_and_repeats_it(self):
        fails = "echo '[ RUN      ] A.Fails'\necho '[  FAILED  ] A.Fails (0 ms)'\nexit 1\n"
        passes = "echo '[ RUN      ] B.Passes'\necho '[       OK ] B.Passes (0 ms)'\n"
        programs = self.stub_programs(cuda_device_test=fails, cuda_fault_test=passes, cuda_backend_test=passes)
        self.run_pack("--emulated", "--programs", programs, "device")
        self.assertEqual(self.report_lines("repeat.txt"), ["device cuda_device_test A.Fails"])
        again = os.path.join(self.folder, "report/repeat.txt")  # in the folder that the next run writes to
        with open(again, "a", encoding="utf-8") as file:
            file.write("bench neg float32 4096\nbench exp float32 4096\n")
        repeats = f'echo "[ RUN      ] $GTEST_FILTER"\n{passes}'
        programs = self.stub_programs(cuda_device_test=repeats)
        result = self.run_pack("--emulated", "--programs", programs, "--repeat", again)
        self.assertEqual(self.last_line, "3 passed, 1 failed")
        self.assertIn("cuda_device_test: A.Fails: the program ended with 0", result.stdout)
        names = [row["name"] for row in self.report_json("bench.json")["rows"]]
        self.assertEqual(sorted(names), ["exp float32 4096", "neg float32 4096"])

    def test_keeps_the_report_of_an_earlier_run(self):
        folder = pathlib.Path(self.folder, "kept")
        for _ in range(2):
            run(["moved/run", "--plan", "1s", "--out", "kept/"], self.folder)
            (folder / "torch.json").write_text("measured")
        run(["moved/run", "--plan", "1s", "--out", "kept"], self.folder)
        self.assertFalse((folder / "torch.json").exists())
        for earlier in ("kept.1", "kept.2"):
            self.assertEqual((folder.parent / earlier / "torch.json").read_text(), "measured")
            self.assertTrue((folder.parent / earlier / "report.txt").exists())

    def test_rejects_a_list_that_names_no_part(self):
        path = os.path.join(self.folder, "wrong")
        for text, reason in (("devices x\n", "there is no part devices"), ("\n", "the file is empty")):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            result = self.run_pack("--repeat", path)
            self.assertEqual(result.returncode, 2)
            self.assertIn(reason, result.stdout)

    def test_keeps_what_it_has_when_a_signal_ends_it(self):
        real = os.path.join(self.folder, "moved/bin/gpu_bench_emulated")
        passes = "echo '[ RUN      ] B.Passes'\necho '[       OK ] B.Passes (0 ms)'\n"
        # Measures two rows, then hangs in a third.
        bench = (
            f'if [[ $* != *--json* ]]; then exec "{real}" "$@"; fi\n'
            f'"{real}" "$@" --filter \'^(neg|exp) float32\'\n'
            "echo '[ RUN      ] the last row'\nexec sleep 100\n"
        )
        programs = self.stub_programs(
            cuda_device_test=passes, cuda_backend_test=passes, cuda_fault_test=passes, gpu_bench=bench
        )
        command = ["moved/run", "--quick", "--out", "report", "--emulated", "--programs", programs]
        process = subprocess.Popen(
            [*command, "device", "bench", "memcheck"],
            cwd=self.folder,
            env=bare_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + PATIENCE_SECONDS
        rows = []
        while len(rows) < 2:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)
            try:
                rows = self.report_json("bench.json")["rows"]
            except FileNotFoundError:
                pass
        # What a run leaves that is killed now.
        self.assertIn("Parts that have not run: bench memcheck", self.report_lines("report.txt"))
        self.assertEqual(self.report_lines("report.txt")[-1], "3 passed, 0 failed")
        self.assertEqual(self.report_lines("repeat.txt"), ["bench", "memcheck"])
        process.send_signal(signal.SIGTERM)
        output = process.communicate(timeout=PATIENCE_SECONDS)[0]
        self.assertEqual(process.returncode, 1, output)
        self.assertIn("The run was ended by SIGTERM.", output)
        self.assertRegex(output, r"\nneg float32 4096 +[\d.]+ ")
        self.assertIn("Parts that have not run: memcheck", output)
        self.assertIn("memcheck", self.report_lines("repeat.txt"))
        self.assertEqual(len(self.report_json("bench.json")["rows"]), 2)

    def test_fits_the_parts_into_a_plan(self):
        result = self.run_pack("--plan", "1s")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(self.last_line, "0 passed, 0 failed, 8 skipped")
        self.assertIn("  8 x the plan's time was over", result.stdout)
        self.assertEqual(self.report_lines("repeat.txt"), PARTS)
        result = self.run_pack("--plan", "20m", "smoke", "memcheck")
        self.assertIn("tests/gpu/run: smoke, at most 60 s", result.stdout)
        for wrong in ("0m", "m", "5m3s", "1h", "1.5m"):
            self.assertIn("--plan takes a time", self.run_pack("--plan", wrong).stdout)

    def test_finds_libraries_of_a_toolkit_of_python_packages_and_of_the_loader_path(self):
        toolkit = os.path.join(self.folder, "toolkit")
        site = os.path.join(self.folder, "site")
        listed = os.path.join(self.folder, "listed")
        for path in (
            os.path.join(toolkit, "lib64/libtensordone.so.9"),
            os.path.join(site, "nvidia/cu9/lib/libtensordtwo.so.9"),
            os.path.join(listed, "libtensordthree.so.9"),
        ):
            os.makedirs(os.path.dirname(path))
            write_program(path, "")
        programs = tempfile.mkdtemp(dir=self.folder)
        write_program(
            os.path.join(programs, "gpu_bench"),
            "if [[ $1 == --libraries ]]; then\n"
            "printf 'libtensord%s.so.9\\n' one two three four; exit\nfi\n"
            'echo "path $LD_LIBRARY_PATH"\nexit 3\n',
        )
        result = self.run_pack(
            "--programs", programs, "device", CUDA_HOME=toolkit, PYTHONPATH=site, LD_LIBRARY_PATH=listed
        )
        self.assertIn(f"path {listed}:{toolkit}/lib64:{site}/nvidia/cu9/lib\n", result.stdout)
        self.assertIn(f"libtensordone.so.9: {toolkit}/lib64\n", result.stdout)
        self.assertIn(f"libtensordthree.so.9: {listed}, which is in LD_LIBRARY_PATH\n", result.stdout)
        self.assertIn("libtensordfour.so.9: not found", result.stdout)

    def test_rejects_a_system_whose_c_library_is_too_old(self):
        self.change_manifest("glibc", "9.99")
        result = self.run_pack("device")
        self.assertEqual(result.returncode, 2)
        self.assertIn("need glibc 9.99 or newer, this system has 2.", result.stdout)

    def test_rejects_a_gpu_for_which_the_pack_has_no_code(self):
        for architectures in ("80-real", "80-real;100", "100-real;120-real"):
            self.change_manifest("architectures", architectures)
            result = self.run_pack("bench")
            self.assertEqual(result.returncode, 2)
            self.assertIn(f"the pack's architectures are {architectures}, and the GPU is Emulated", result.stdout)
        for architectures in ("90-real", "80", "100-real;80-virtual"):
            self.change_manifest("architectures", architectures)
            result = self.run_pack("bench", "--plan", "1s")
            self.assertIn("the plan's time was over", result.stdout)

    def test_rejects_an_unknown_part(self):
        result = self.run_pack("devices")
        self.assertEqual(result.returncode, 2)
        self.assertIn("parts are smoke torch compare", result.stdout)

    def test_rejects_an_option_without_a_value(self):
        for option in ("--out", "--limit", "--programs", "--plan", "--repeat"):
            result = self.run_pack("device", option)
            self.assertEqual(result.returncode, 2)
            self.assertIn(f"{option} needs a value", result.stdout)

    def test_does_not_write_a_pack_that_is_too_large(self):
        result = run(self.pack_command + ["--out", "large.tar", "--max-mib", "1"], self.folder)
        self.assertEqual(result.returncode, 1)
        self.assertIn("and may have 1", result.stdout)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("large")], [])


class GpuTorchTest(PackTest):
    """A pack with the daemon and the Python packages."""

    torch: str  # the version of PyTorch

    @classmethod
    def setUpClass(cls):
        check = "import tensord, torch, torch_tensord; print('PyTorch', '.'.join(torch.__version__.split('.')[:2]))"
        if not os.access(OPTIONS.python, os.X_OK):
            cls.skip(f"there is no {OPTIONS.python}")
        found = run([OPTIONS.python, "-c", check], "/").stdout
        if not found.startswith("PyTorch "):
            cls.skip(found.strip().rsplit("\n", 1)[-1])
        cls.torch = found.split()[1]
        cls.pack_options = [f"--torch={cls.torch}", "--packages", OPTIONS.python]
        super().setUpClass()

    @staticmethod
    def skip(reason):
        print(f"tests of packs with --torch are skipped: {reason}", flush=True)
        raise unittest.SkipTest(reason)

    def run_torch(self, *arguments, **environment):
        environment["TENSORD_GPU_PYTHON"] = OPTIONS.python
        environment["OMP_NUM_THREADS"] = "1"  # PyTorch's threads would wait for each other on a busy machine
        return self.run_pack("--limit", str(PATIENCE_SECONDS), *arguments, **environment)

    def test_compares_pytorch_through_the_daemon(self):
        result = self.run_torch("smoke", "torch")
        self.assertEqual(result.returncode, 0, result.stdout)
        document = self.report_json("torch.json")
        self.assertEqual(list(document["versions"]), ["tensord", "cpu"])
        rows = document["rows"]
        self.assertIn("train_gpt2_bfloat16", [row["row"] for row in rows])
        for row in rows:
            self.assertLessEqual(row["difference"], row["permitted"], row)
            self.assertEqual(*row["flags"].values())
        lines = self.report_lines("report.txt")
        self.assertTrue([line for line in lines if line.startswith(f"PyTorch:   {self.torch}.")], lines)
        self.assertTrue([line for line in lines if line.startswith("tensord: torch ")], lines)
        slower = [f"torch {row['row']}" for row in rows if row["ratio"] < 1]
        self.assertEqual(self.report_lines("repeat.txt"), slower)
        files = os.listdir(os.path.join(self.folder, "report"))
        self.assertEqual(sorted(files), ["log.txt", "repeat.txt", "report.txt", "torch.json"])

    def test_repeats_rows_and_goes_on_after_one_that_fails(self):
        work = os.path.join(self.folder, "moved/torch_work.py")
        shutil.copy(work, work + ".kept")
        self.addCleanup(os.replace, work + ".kept", work)
        with open(work, "a", encoding="utf-8") as file:
            file.write("import os\nROWS['add_and_item'] = lambda device, tiny: os._exit(9)\n")
        path = os.path.join(self.folder, "list")
        with open(path, "w", encoding="utf-8") as file:
            file.write("torch small_adds\ntorch add_and_item\n")
        result = self.run_torch("--repeat", path)
        self.assertEqual(self.last_line, "1 passed, 1 failed", result.stdout)
        self.assertIn("failed: the process ended with 9", result.stdout)
        self.assertEqual(self.report_lines("repeat.txt")[0], "torch add_and_item")

    def test_skips_rows_for_which_the_packages_are_not_made(self):
        for line, value, reason in (
            ("torch", "1.13", r"the pack is made for PyTorch 1\.13, this Python has "),
            ("python", "cp399-abi3", r"the pack's Python packages \(cp399-abi3\) don't serve Python 3\."),
        ):
            self.change_manifest(line, value)
            result = self.run_torch("torch")
            self.assertEqual(self.last_line, "0 passed, 0 failed, 1 skipped")
            self.assertRegex(result.stdout, reason)

    def test_does_not_pack_packages_for_another_pytorch(self):
        options = ["--torch=1.13", "--packages", OPTIONS.python, "--out", "other.tar"]
        result = run(self.pack_command + options, self.folder)
        self.assertEqual(result.returncode, 1)
        self.assertIn("isn't for PyTorch 1.13: it has _binding.", result.stdout)


class CudaSkipsTest(unittest.TestCase):
    """Tests which skips tests/run --cuda permits."""

    def sort(self, cases):
        return subprocess.run(
            ["awk", "-f", os.path.join(OPTIONS.source, "tests/cuda_skips.awk")],
            input=cases,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def test_permits_a_missing_second_gpu(self):
        result = self.sort("passed\tA.B\t\nskipped\tCudaTest.CopiesBetweenGpus\tthere is one GPU\n")
        self.assertEqual(result.returncode, 0)
        self.assertIn("CudaTest.CopiesBetweenGpus: there is no second GPU", result.stdout)

    def test_permits_no_other_reason(self):
        result = self.sort("skipped\tA.B\tthere is one GPU\nskipped\tFusedCudaTest.A\tNVRTC can't be loaded\n")
        self.assertEqual(result.returncode, 1)
        self.assertIn("doesn't permit:\n  FusedCudaTest.A: NVRTC can't be loaded", result.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--python", default=sys.executable)
    OPTIONS, rest = parser.parse_known_args()
    OPTIONS.programs = os.path.abspath(OPTIONS.programs)
    OPTIONS.source = os.path.abspath(OPTIONS.source)
    OPTIONS.python = os.path.abspath(OPTIONS.python)
    unittest.main(argv=[sys.argv[0], *rest])
