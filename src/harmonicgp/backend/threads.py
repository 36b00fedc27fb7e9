"""Parallel work in a thread pool, in which each piece uses one thread.

Many small factorisations gain nothing from threads inside each of them, but much from running in parallel.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from itertools import pairwise
from threading import Barrier, Event, Thread, local
from typing import TypeVar

import torch

Result = TypeVar("Result")

_local = local()  # .threads: the number of parallel threads for this thread, if it differs from PyTorch's

#: Pieces of work for each thread.
_SHARES = 4
#: Blocks with at least this many rows are processed one by one.
LARGE = 128


@lru_cache(maxsize=1)
def _pool(size: int) -> ThreadPoolExecutor:
    """A pool of threads in which PyTorch uses one thread each."""
    pool = ThreadPoolExecutor(max_workers=size, thread_name_prefix="harmonicgp")
    barrier = Barrier(size)

    def initialise() -> None:
        barrier.wait()  # so that every thread of the pool runs this once
        torch.get_num_threads()  # otherwise PyTorch would later set the number to that of other threads
        torch.set_num_threads(1)

    for future in [pool.submit(initialise) for _ in range(size)]:
        future.result()
    torch.set_num_threads(size)  # the calls above also changed the number for new threads
    return pool


@lru_cache(maxsize=1)
def stop_spinning() -> None:
    """Make PyTorch's idle threads wait without spinning, if PyTorch was loaded before it could be told so.

    Spinning threads hold the processors that other programs and our own threads wait for. The OpenMP runtime of GCC spins little
    once it manages more threads than there are processors. So a second team of threads is made here, and sleeps from then on.
    """
    if torch.get_num_threads() == 1 or {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
        return
    ready = Event()

    def team() -> None:
        torch.ones(1 << 20, device="cpu").exp_()  # large enough for all threads
        ready.set()
        Event().wait()

    torch.ones(1 << 20, device="cpu").exp_()
    Thread(target=team, name="harmonicgp-idle", daemon=True).start()
    ready.wait()


if hasattr(os, "register_at_fork"):
    for cached in (_pool, stop_spinning):
        os.register_at_fork(after_in_child=cached.cache_clear)  # threads do not survive a fork


@contextmanager
def no_threads_inside(shapes: Sequence[tuple[int, int]]) -> Iterator[None]:
    """A context without PyTorch's threads, if all stacks of (blocks, rows) divide evenly among the threads of the pool.

    After a parallel operation PyTorch's threads spin for milliseconds, on the processors that the pool needs.
    """
    threads = _n_threads()
    if torch.get_num_threads() == threads and all(count % threads == 0 and size >= LARGE for count, size in shapes):
        with alone(threads):
            yield
    else:
        yield


@contextmanager
def alone(beside: int | None = None) -> Iterator[None]:
    """A context without PyTorch's threads, in which the pool uses `beside` threads (default: as many as before)."""
    n_torch, n_pool = torch.get_num_threads(), getattr(_local, "threads", None)
    if n_torch > 1:
        _pool(n_torch)  # creates the threads while PyTorch's number is still right
        torch.set_num_threads(1)
    _local.threads = beside or n_pool or n_torch
    try:
        yield
    finally:
        _local.threads = n_pool
        if n_torch > 1:
            torch.set_num_threads(n_torch)


def _n_threads() -> int:
    """The number of parallel threads."""
    return getattr(_local, "threads", None) or torch.get_num_threads()


def side_by_side(pieces: Sequence[Callable[[], Result]]) -> list[Result]:
    """The results of pieces of work, computed in parallel by as many threads as PyTorch has.

    It returns, or raises, after all pieces have ended, so that memory they write to is still valid. An interrupt waits for that.

    Examples:
        >>> side_by_side([lambda: 1, lambda: 2])
        [1, 2]
    """
    threads = min(_n_threads(), len(pieces))
    if threads < 2:
        return [piece() for piece in pieces]
    pool, graph, inference = _pool(_n_threads()), torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    queue: deque[tuple[int, Callable[[], Result]]] = deque(enumerate(pieces))
    results: dict[int, Result] = {}

    def work() -> None:
        with torch.inference_mode(inference), torch.set_grad_enabled(graph):  # these settings belong to a thread
            while queue:
                try:
                    i, piece = queue.popleft()
                except IndexError:  # another thread took the last piece
                    return
                results[i] = piece()

    futures: list[Future[None]] = []
    try:
        for _ in range(1, threads):
            futures.append(pool.submit(work))
        with alone(1):  # this thread works too, which is faster than waiting
            work()
        for future in futures:
            future.result()
        return [results[i] for i in range(len(pieces))]
    except BaseException:
        queue.clear()
        while not all(future.cancel() or future.done() for future in futures):
            with suppress(KeyboardInterrupt):
                wait(futures)
        raise


def cuts(n: int, most: int | None = None) -> list[tuple[int, int]]:
    """The range 0 .. n as consecutive intervals (first, last), a few for each thread and at most `most`.

    Examples:
        >>> cuts(6, 2)[-1][1]
        6
    """
    threads = _n_threads()
    count = max(min(threads if threads == 1 else _SHARES * threads, n, n if most is None else most), 1)
    ends = [n * k // count for k in range(count + 1)]
    return list(pairwise(ends))


def in_blocks(work: Callable[[slice], None], count: int, size: int) -> None:
    """Call `work` with slices of `count` blocks of `size` rows, until all blocks are processed.

    Large blocks are processed one by one, so that each stays in the cache between operations, and in parallel. The remainder of
    the division by the number of threads uses PyTorch's threads. Small blocks are one slice.
    """
    threads = _n_threads()
    even = 0 if size < LARGE or threads < 2 else count - count % threads
    if even:
        side_by_side([partial(work, slice(b, b + 1)) for b in range(even)])
    if size >= LARGE:
        for b in range(even, count):
            work(slice(b, b + 1))
    elif count:
        work(slice(0, count))
