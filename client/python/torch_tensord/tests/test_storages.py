"""Storages and files behave as on the CPU. If a storage is resized to 0, the server frees its memory."""

import copy
import io
import pickle
import warnings

import pytest
import torch

DEVICE = "tensord"
DTYPES = [torch.float32, torch.bool, torch.int64, torch.bfloat16, torch.float64, torch.int8]


def numbers(device, dtype=torch.float32):
    return torch.arange(6).to(dtype).to(device)


def plain(x):
    if isinstance(x, torch.Tensor):
        return x.dtype, tuple(x.shape), x.cpu().tolist()
    if isinstance(x, torch.UntypedStorage):
        return list(x)
    return [plain(each) for each in x] if isinstance(x, (list, tuple)) else x


def check(f):
    """Asserts that f(device) is the same on the device and on the CPU, or raises the same kind of exception."""
    results = []
    for device in ("cpu", DEVICE):
        try:
            results.append(plain(f(device)))
        except Exception as e:
            results.append(type(e))
    assert results[0] == results[1]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_slice_of_a_storage_shares_its_memory(dtype):
    def write_to_slice(device):
        x = numbers(device, dtype)
        part = x.untyped_storage()[1:5]
        part[0] = 1
        inner = part[1:3]
        inner.fill_(1)
        return part, inner, x.untyped_storage(), x

    def write_to_base(device):
        x = numbers(device, dtype)
        part = x.untyped_storage()[2:6]
        x.fill_(1)
        return part, x.untyped_storage()[4:2], x.untyped_storage()[3:3]

    check(write_to_slice)
    check(write_to_base)
    check(lambda device: [numbers(device, dtype).untyped_storage()[i] for i in (0, 4, 5, -1)])


def test_a_tensor_on_a_slice_shares_the_memory():
    def f(device):
        x = numbers(device)
        part = torch.empty(0, device=device).set_(x.untyped_storage()[4:16])
        part += 10
        x[2] *= 2
        part[1:].mul_(-1)
        torch.add(part[:2], 1, out=part[:2])
        view = part.view(3, 1)
        view.copy_(view.flip(0))
        return x, part

    check(f)
    check(lambda device: torch.empty(0, device=device).set_(numbers(device).untyped_storage()[4:8]).resize_(9))
    check(lambda device: numbers(device).untyped_storage()[4:8].resize_(9))


@pytest.mark.parametrize(
    "f",
    [
        lambda s: s.clone(),
        lambda s: s.cpu(),
        lambda s: s.tolist(),
        lambda s: copy.deepcopy(s),
        lambda s: s.byte().tolist(),
        lambda s: s.byteswap(torch.float32) or s,
        lambda s: s.fill_(7),
        lambda s: s.copy_(torch.ones(6).untyped_storage()),
        lambda s: torch.ones(6).untyped_storage().copy_(s),
        lambda s: torch.UntypedStorage([1, 2, 3], device=s.device),
        lambda s: torch.storage.TypedStorage(wrap_storage=s, dtype=torch.float32, _internal=True)[1:3].tolist(),
        lambda s: s.resize_(0).nbytes(),
        lambda s: s.resize_(10),
        lambda s: list(s.resize_(30))[:24],
        lambda s: s.resize_(8).resize_(24)[:8],
    ],
)
@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_functions_of_storages_give_what_they_give_on_the_cpu(f):
    check(lambda device: f(numbers(device).untyped_storage()))


def test_storages_move_by_the_name_of_the_device():
    x = numbers("cpu").untyped_storage()
    assert x.tensord(1).device == torch.device("tensord:1") and plain(x.tensord(1)) == plain(x)
    assert x.tensord().is_tensord and not x.is_tensord
    for device in ("tensord", "tensord:1"):
        made = [torch.UntypedStorage(size, device=device).device for size in (0, 9)]
        assert made == [torch.device("tensord", torch.device(device).index or 0)] * 2


def used_bytes():
    torch.tensord.synchronize(1)
    return torch.tensord.memory_allocated(1)


@pytest.mark.parametrize("resize", ["storage", "inductor"])
def test_a_storage_of_size_0_has_no_memory_on_the_server(resize):
    def set_size(x, size):
        if resize == "storage":
            x.untyped_storage().resize_(size)
        else:
            torch.ops.inductor.resize_storage_bytes_(x, size)

    torch._inductor  # defines the op
    size = 4 << 20
    x = torch.ones(1 << 20, device="tensord:1")
    view = x[::2]
    assert view[:2].tolist() == [1, 1]
    full = used_bytes()
    set_size(x, 0)
    assert x.untyped_storage().nbytes() == 0 and used_bytes() <= full - size
    set_size(x, size)
    x.copy_(torch.arange(1 << 20))
    assert x[-3:].tolist() == [1048573, 1048574, 1048575] and view[:3].tolist() == [0, 2, 4]


def test_a_parameter_that_is_freed_between_uses_keeps_its_graph():
    """FSDP frees the memory of parameters after the forward pass, and fills it again before the backward pass."""
    weight = torch.nn.Parameter(torch.full((3, 3), 2.0, device=DEVICE))
    x = torch.ones(1, 3, device=DEVICE, requires_grad=True)
    made = (x @ weight).sum()
    weight.untyped_storage().resize_(0)
    weight.untyped_storage().resize_(36)
    with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(weight):
        weight.fill_(2.0)
    made.backward()
    assert x.grad.tolist() == [[6, 6, 6]] and weight.grad.tolist() == [[1, 1, 1]] * 3


# ---- files


def save(obj, is_zip=True, on_disk=None):
    if on_disk is not None:
        torch.save(obj, on_disk, _use_new_zipfile_serialization=is_zip)
        return on_disk
    file = io.BytesIO()
    torch.save(obj, file, _use_new_zipfile_serialization=is_zip)
    file.seek(0)
    return file


def to_nothing(storage, location):
    return None


def to_second(storage, location):
    return storage.tensord(1)


def to_same(storage, location):
    return storage


MAPS = [
    None,
    "cpu",
    "tensord",
    "tensord:1",
    torch.device("tensord:1"),
    {"cpu": "tensord:1", "tensord:0": "tensord:1"},
    {"tensord:0": "cpu"},
    to_nothing,
    to_second,
    to_same,
]


@pytest.mark.parametrize("map_location", MAPS, ids=lambda value: getattr(value, "__name__", repr(value)))
@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("source", ["cpu", "tensord:0"])
def test_files_restore_values_and_devices(map_location, is_zip, source, tmp_path):
    x = torch.arange(6.0).to(source)
    saved = {
        "x": x,
        "view": x[1:4].view(3, 1),
        "transposed": x.view(2, 3).t(),
        "parameter": torch.nn.Parameter(x[:2].clone()),
        "empty": torch.empty(0, device=source),
        "empty3": torch.empty(2, 0, 3, dtype=torch.int32, device=source),
        "half": x.to(torch.bfloat16),
        "flags": x > 2,
    }
    expected = {
        None: source,
        "cpu": "cpu",
        "tensord": "tensord:0",
        "tensord:1": "tensord:1",
        torch.device("tensord:1"): "tensord:1",
    }
    for on_disk in (None, tmp_path / "file"):
        loaded = torch.load(save(saved, is_zip, on_disk), map_location=map_location)
        if isinstance(map_location, dict):
            device = map_location.get(source, source)
        elif callable(map_location):
            device = [source, "tensord:1", "cpu"][MAPS[-3:].index(map_location)]
        else:
            device = expected[map_location]
        assert {str(each.device) for each in loaded.values()} == {device}
        for name, value in saved.items():
            assert loaded[name].dtype == value.dtype and torch.equal(loaded[name].cpu(), value.cpu()), name
        assert loaded["transposed"].stride() == (1, 3) and isinstance(loaded["parameter"], torch.nn.Parameter)
        loaded["x"][1] = 50  # the tensors share their storage
        assert loaded["view"][0].item() == 50


@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_files_restore_storages():
    def load(device, is_zip, *storages):
        loaded = torch.load(save(storages, is_zip), weights_only=False)
        assert all(each.device.type == device for each in loaded)
        return [each.tolist() for each in loaded]

    check(lambda device: load(device, True, numbers(device).untyped_storage(), numbers(device).untyped_storage()[4:12]))
    check(lambda device: load(device, False, numbers(device).storage(), numbers(device).storage()[1:3]))
    x = numbers(DEVICE)
    typed = pickle.loads(pickle.dumps(x.storage()))
    assert typed.device.type == "tensord" and typed.dtype == x.dtype and typed.tolist() == x.tolist()
    assert torch.equal(pickle.loads(pickle.dumps(x[2:4])), x[2:4])
    assert pickle.loads(pickle.dumps(torch.empty(0, 3, device="tensord:1"))).device == torch.device("tensord:1")


def test_a_tensor_whose_elements_share_places_is_filled():
    def filled(device, strides):
        x = torch.zeros(60, device=device)
        x.as_strided((4, 3, 2), strides, 1).fill_(1.0)
        return x.tolist()

    for strides in ((10, 1, 2), (10, 1, 1), (10, 3, 3), (3, 2, 1)):
        assert filled(DEVICE, strides) == filled("cpu", strides)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.uint8, torch.int64])
def test_new_memory_is_filled_if_the_program_asks_for_it(dtype):
    def made(device):
        torch.use_deterministic_algorithms(True)
        try:
            tensors = [
                torch.empty(2, dtype=dtype, device=device),
                torch.empty_strided((2, 2), (1, 3), dtype=dtype, device=device),
                torch.zeros(2, dtype=dtype, device=device).resize_(4),
                torch.empty(2, 3, out=torch.zeros(1, dtype=dtype, device=device)),
            ]
        finally:
            torch.use_deterministic_algorithms(False)
        return [str(x.tolist()) for x in tensors]

    assert torch.utils.deterministic.fill_uninitialized_memory
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert made(DEVICE) == made("cpu")


EXPANDED = {
    "index_put_": lambda x, i, mask: x.index_put_((i, i), torch.tensor([1.0, 2.0, 3.0], device=x.device)),
    "index_put_ with accumulate": lambda x, i, mask: x.index_put_((i,), torch.tensor(1.0).to(x.device), True),
    "index_fill_": lambda x, i, mask: x.index_fill_(1, i[:1], 4.0),
    "index_fill_ from the end": lambda x, i, mask: x.index_fill_(1, i[:1] - 1, 4.0),
    "index_put_ of another dtype": lambda x, i, mask: x.index_put_((mask,), torch.tensor(6).to(x.device)),
    "masked_fill_": lambda x, i, mask: x.masked_fill_(mask, 5.0),
    "masked_fill_ with a tensor": lambda x, i, mask: x.masked_fill_(mask, torch.tensor(5.0, device=x.device)),
}


@pytest.mark.parametrize("name", EXPANDED)
def test_an_expanded_tensor_is_written_with_a_warning(name):
    def written(device):
        x = torch.zeros(1, 3, device=device)
        i = torch.tensor([0, 2, 1], device=device)
        mask = torch.tensor([[True, False, False], [False, False, True], [False] * 3], device=device)
        with pytest.warns(UserWarning, match="expanded tensors"):
            EXPANDED[name](x.expand(3, 3), i, mask)
        return x.tolist()

    assert written(DEVICE) == written("cpu")
