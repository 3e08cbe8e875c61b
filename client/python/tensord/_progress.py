"""A progress bar for transfers."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def bar() -> Callable[[int, int], None]:
    """Returns a function that shows the progress by tqdm, and does nothing where tqdm isn't installed."""
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return lambda done, total: None
    shown = None

    def report(done: int, total: int) -> None:
        nonlocal shown
        if shown is None:
            shown = tqdm(total=total, unit="B", unit_scale=True)
        shown.update(done - shown.n)
        if done >= total:
            shown.close()

    return report
