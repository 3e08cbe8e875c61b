"""Waits of an asyncio program. A wait runs in a thread, and the event loop goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from numpy.typing import NDArray


async def numpy(x: _core.Tensor) -> NDArray[Any]:
    """Waits for the elements, and returns them as a NumPy array."""
    return await asyncio.to_thread(x.numpy)


async def wait(x: _core.Tensor) -> None:
    """Waits until the device has computed the tensor."""
    await asyncio.to_thread(x.wait)


async def synchronize() -> None:
    """Waits until everything sent so far over the current connection has run."""
    await asyncio.to_thread(_core.synchronize)
