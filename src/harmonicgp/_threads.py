"""Work shared out between threads of our own, each of which computes alone.

Many small factorisations gain nothing from the threads inside one of them, and everything from being done side by side.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from threading import Barrier
from typing import TypeVar

import torch

Result = TypeVar("Result")


@lru_cache(maxsize=1)
def _pool(size: int) -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(max_workers=size, thread_name_prefix="harmonicgp")
    together = Barrier(size)

    def alone() -> None:
        together.wait()  # so that every thread of the pool gets one of these
        torch.set_num_threads(1)

    for done in [pool.submit(alone) for _ in range(size)]:
        done.result()
    torch.set_num_threads(size)  # what the threads said of themselves is also what later ones would start with
    return pool


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork


def side_by_side(pieces: Sequence[Callable[[], Result]]) -> list[Result]:
    """The results of some pieces of work, done at the same time by as many threads as PyTorch has.

    Returns, or raises, when all of them have ended: what they write to is not let go of before. An interrupt waits for that.
    """
    threads = torch.get_num_threads()
    if len(pieces) < 2 or threads < 2:
        return [piece() for piece in pieces]
    pool = _pool(threads)
    futures: list[Future[Result]] = []
    try:
        for piece in pieces:
            futures.append(pool.submit(piece))
        return [future.result() for future in futures]
    except BaseException:
        while not all(future.cancel() or future.done() for future in futures):
            with suppress(KeyboardInterrupt):
                wait(futures)
        raise


def cuts(n: int, most: int | None = None) -> list[tuple[int, int]]:
    """0 .. n cut into as many stretches as there are threads, at most `most`."""
    count = max(min(torch.get_num_threads(), n, n if most is None else most), 1)
    ends = [n * k // count for k in range(count + 1)]
    return list(pairwise(ends))
