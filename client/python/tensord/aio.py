"""Waits of an asyncio program. A wait runs in a thread, and the event loop goes on. If the task is cancelled, the wait
ends: Ctrl-C cancels the main task."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from numpy.typing import NDArray

    T = TypeVar("T")


async def _run(wait: Callable[[], T]) -> T:
    """Returns wait(), which a thread calls."""
    interruption = _core._Interruption()
    try:
        result: T = await asyncio.to_thread(interruption.run, wait)
        return result
    except asyncio.CancelledError:
        interruption.interrupt()
        raise


async def numpy(x: _core.Tensor) -> NDArray[Any]:
    """Waits for the elements, and returns them as a NumPy array."""
    return await _run(x.numpy)


async def wait(x: _core.Tensor) -> None:
    """Waits until the device has computed the tensor."""
    await _run(x.wait)


async def synchronize() -> None:
    """Waits until everything sent so far over the current connection has run."""
    await _run(_core.synchronize)
