"""The generators of devices: torch.tensord.random. See torch.cuda.random for the names. They need no connection."""

from collections.abc import Iterable

import torch

from ._devices import Device, device_count, index_of

_ops = torch.ops.tensord
_MAX_DEVICES = 127


def manual_seed(seed: int) -> None:
    """Sets the seed of the current device's generator."""
    _ops._manual_seed(_ops._current_device(), _signed(seed))


def manual_seed_all(seed: int) -> None:
    """Sets the seeds of all devices. Doesn't connect."""
    for i in range(_ops._num_known_devices() or _MAX_DEVICES):
        _ops._manual_seed(i, _signed(seed))


def _signed(seed: int) -> int:
    seed = int(seed) & 0xFFFFFFFFFFFFFFFF
    return seed - (1 << 64) if seed >= 1 << 63 else seed


def initial_seed() -> int:
    return _ops._initial_seed(_ops._current_device())


def seed() -> None:
    """Sets a random seed for the current device."""
    manual_seed(torch.Generator().seed())


def seed_all() -> None:
    manual_seed_all(torch.Generator().seed())


def get_rng_state(device: Device = "tensord") -> torch.Tensor:
    return _ops._get_rng_state(index_of(device))


def set_rng_state(new_state: torch.Tensor, device: Device = "tensord") -> None:
    _ops._set_rng_state(index_of(device), new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(i) for i in range(device_count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for i, state in enumerate(new_states):
        set_rng_state(state, i)
