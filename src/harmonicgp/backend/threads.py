"""Work shared out between threads of our own, each of which computes alone.

Many small factorisations gain nothing from the threads inside one of them, and everything from being done side by side.
"""

from __future__ import annotations

import os
from collections import deque
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

#: Stretches into which work is cut for each thread.
_SHARES = 4
#: Rows of a block from which on it is worth being taken by itself.
LARGE = 128


@lru_cache(maxsize=1)
def _pool(size: int) -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(max_workers=size, thread_name_prefix="harmonicgp")
    together = Barrier(size)

    def settled() -> None:
        together.wait()  # so that every thread of the pool gets one of these
        torch.get_num_threads()  # without which PyTorch would set it to the number of the others later on
        torch.set_num_threads(1)

    for done in [pool.submit(settled) for _ in range(size)]:
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
    threads = _ours()
    if torch.get_num_threads() == threads and all(count % threads == 0 and size >= LARGE for count, size in shapes):
        with alone(threads):
            yield
    else:
        yield


@contextmanager
def alone(beside: int | None = None) -> Iterator[None]:
    """PyTorch's own threads at rest; in this thread's work, `beside` of ours (as many as before) work side by side."""
    inside, ours = torch.get_num_threads(), getattr(_local, "threads", None)
    if inside > 1:
        _pool(inside)  # which sets the number of threads
        torch.set_num_threads(1)
    _local.threads = beside or ours or inside
    try:
        yield
    finally:
        _local.threads = ours
        if inside > 1:
            torch.set_num_threads(inside)


def _ours() -> int:
    """How many threads work side by side."""
    return getattr(_local, "threads", None) or torch.get_num_threads()


def side_by_side(pieces: Sequence[Callable[[], Result]]) -> list[Result]:
    """The results of some pieces of work, done at the same time by as many threads as PyTorch has.

    Returns, or raises, when all of them have ended: what they write to is not let go of before. An interrupt waits for that.
    """
    threads = min(_ours(), len(pieces))
    if threads < 2:
        return [piece() for piece in pieces]
    pool, graph, inference = _pool(_ours()), torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    todo: deque[tuple[int, Callable[[], Result]]] = deque(enumerate(pieces))
    results: dict[int, Result] = {}

    def work() -> None:  # piece after piece, whoever is free
        with torch.inference_mode(inference), torch.set_grad_enabled(graph):  # each thread has its own say in this
            while todo:
                try:
                    i, piece = todo.popleft()
                except IndexError:  # another thread was faster
                    return
                results[i] = piece()

    futures: list[Future[None]] = []
    try:
        for _ in range(1, threads):
            futures.append(pool.submit(work))
        with alone(1):  # this thread takes part: to wait and be woken takes time
            work()
        for future in futures:
            future.result()
        return [results[i] for i in range(len(pieces))]
    except BaseException:
        todo.clear()
        while not all(future.cancel() or future.done() for future in futures):
            with suppress(KeyboardInterrupt):
                wait(futures)
        raise


def cuts(n: int, most: int | None = None) -> list[tuple[int, int]]:
    """0 .. n cut into a few stretches for each thread, so that one that is slower does fewer; at most `most`."""
    threads = _ours()
    count = max(min(threads if threads == 1 else _SHARES * threads, n, n if most is None else most), 1)
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
        side_by_side([partial(work, slice(b, b + 1)) for b in range(even)])
    if size >= LARGE:
        for b in range(even, count):
            work(slice(b, b + 1))
    elif count:
        work(slice(0, count))
