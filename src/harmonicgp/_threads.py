"""Work shared out between threads of our own, each of which computes alone.

Many small factorisations gain nothing from the threads inside one of them, and everything from being done side by side.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import pairwise
from threading import Barrier, local
from typing import TypeVar

import torch

Result = TypeVar("Result")

_local = local()  # .threads: of this thread, how many work side by side where that differs from PyTorch's number

#: Rows of a block from which on it is worth being taken by itself.
LARGE = 128


@lru_cache(maxsize=1)
def _pool(size: int) -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(max_workers=size, thread_name_prefix="harmonicgp")
    together = Barrier(size)

    def alone() -> None:
        together.wait()  # so that every thread of the pool gets one of these
        torch.get_num_threads()  # without which PyTorch would set it to the number of the others later on
        torch.set_num_threads(1)

    for done in [pool.submit(alone) for _ in range(size)]:
        done.result()
    torch.set_num_threads(size)  # what the threads said of themselves is also what later ones would start with
    return pool


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork


@contextmanager
def no_threads_inside(shapes: Sequence[tuple[int, int]]) -> Iterator[None]:
    """PyTorch's own threads at rest, if blocks (blocks, rows) can all be done side by side; as many as before work side by side.

    PyTorch's threads wait for more to do at full speed for milliseconds, on the processors that ours need.
    """
    before = torch.get_num_threads()
    if before < 2 or _ours() != before or not all(count % before == 0 and size >= LARGE for count, size in shapes):
        yield
        return
    _pool(before)  # which sets the number of threads
    _local.threads = before
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        del _local.threads


def _ours() -> int:
    """How many threads work side by side."""
    return getattr(_local, "threads", None) or torch.get_num_threads()


def side_by_side(pieces: Sequence[Callable[[], Result]]) -> list[Result]:
    """The results of some pieces of work, done at the same time by as many threads as PyTorch has.

    Returns, or raises, when all of them have ended: what they write to is not let go of before. An interrupt waits for that.
    """
    threads = _ours()
    if len(pieces) < 2 or threads < 2:
        return [piece() for piece in pieces]
    pool, graph, inference = _pool(threads), torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    def run(piece: Callable[[], Result]) -> Result:
        with torch.inference_mode(inference), torch.set_grad_enabled(graph):  # each thread has its own say in this
            return piece()

    futures: list[Future[Result]] = []
    try:
        for piece in pieces:
            futures.append(pool.submit(run, piece))
        return [future.result() for future in futures]
    except BaseException:
        while not all(future.cancel() or future.done() for future in futures):
            with suppress(KeyboardInterrupt):
                wait(futures)
        raise


def cuts(n: int, most: int | None = None) -> list[tuple[int, int]]:
    """0 .. n cut into as many stretches as there are threads, at most `most`."""
    count = max(min(_ours(), n, n if most is None else most), 1)
    ends = [n * k // count for k in range(count + 1)]
    return list(pairwise(ends))


def in_blocks(work: Callable[[slice], None], count: int, size: int) -> None:
    """Work on all of `count` blocks of `size` rows, given as slices of them.

    Large blocks are taken one by one, so that each stays in the cache from one operation to the next, and side by side; those
    left over have all threads inside. Small blocks go together.
    """
    threads = _ours()
    even = 0 if size < LARGE or threads < 2 else count - count % threads
    if even:
        side_by_side([partial(_one_by_one, work, i, j) for i, j in cuts(even)])
    if size >= LARGE:
        _one_by_one(work, even, count)
    elif count:
        work(slice(0, count))


def _one_by_one(work: Callable[[slice], None], first: int, last: int) -> None:
    for b in range(first, last):
        work(slice(b, b + 1))
