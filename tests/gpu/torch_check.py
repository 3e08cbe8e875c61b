"""Checks that this Python can run torch_rows.py with the packages of a pack.

usage: torch_check.py [TAG [VERSION]]     TAG, VERSION: the lines "python" and "torch" of the pack's MANIFEST

If it can, prints the versions and exits with 0. Otherwise prints the reason and exits with 1.
"""

import importlib
import platform
import sys


def serves(tag):
    """Returns whether a package with this tag serves this Python: "cp312-abi3" serves 3.12 and newer ones."""
    version, _, abi = tag.removeprefix("cp").partition("-")
    wanted = (int(version[0]), int(version[1:]))
    return sys.version_info[:2] >= wanted if abi == "abi3" else sys.version_info[:2] == wanted


def check(tag="", version=""):
    """Returns the versions. If something is missing, raises ImportError."""
    if tag and not serves(tag):
        raise ImportError(f"the pack's Python packages ({tag}) don't serve Python {platform.python_version()}")
    import torch

    if version and torch.__version__.split(".")[:2] != version.split("."):
        raise ImportError(f"the pack is made for PyTorch {version}, this Python has {torch.__version__}")
    importlib.import_module("torch_tensord")

    cudnn = torch.backends.cudnn.version() if torch.cuda.is_available() else "not in use"
    return f"{torch.__version__}, CUDA {torch.version.cuda}, cuDNN {cudnn}, Python {platform.python_version()}"


if __name__ == "__main__":
    try:
        print(check(*sys.argv[1:]))
    except ImportError as error:
        print(error)
        sys.exit(1)
