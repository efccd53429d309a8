"""Calls that Ctrl-C ends.

Python handles signals in its main thread, between two instructions: while that is inside a call of the
library, Ctrl-C would wait for its end. So calls of the main thread are made by another one, while the main
thread waits for a lock, which Ctrl-C does interrupt. Calls of other threads are made directly.
"""

from __future__ import annotations

import os
import threading

from ._library import Handle, check, library

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long to import as all of this
    from ctypes import c_void_p
    from typing import Any, Callable

# A call that was asked to stop does so within milliseconds, except in a few long steps (parsing a piece of a
# file, writing a document). The prompt does not wait longer than this for it.
PATIENCE_S = 0.05


class Cancel:
    """Ends calls that were given it, from any thread::

        cancel = perfmodel.Cancel()
        threading.Timer(5, cancel.request).start()
        perfmodel.whatif("gpt2.json", gpu="h100", cancel=cancel)     # raises CancelledError after 5 s
    """

    def __init__(self) -> None:
        self._handle = Handle(library().cancel_free)
        check(library().cancel_create, self._handle.value)

    def request(self) -> None:
        """Ends all calls that were given this, now and later."""
        library().cancel_request(self._handle.value)


class _Job:
    def __init__(self, work: Callable[[], Any], cancel: Cancel) -> None:
        self.work: Callable[[], Any] | None = work
        self.cancel = cancel  # lives as long as the call, however late that returns
        self.done = threading.Lock()
        self.done.acquire()
        self.value: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        work, self.work = self.work, None
        try:
            self.value = work() if work else None
        except BaseException as error:  # goes to who waits
            self.error = error
        finally:
            self.done.release()


class _Worker:
    """Makes the calls of the main thread, one at a time."""

    def __init__(self) -> None:
        from _queue import SimpleQueue  # C: a put wakes the other thread at once

        self._jobs: Any = SimpleQueue()
        threading.Thread(target=self._run, name="perfmodel", daemon=True).start()

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            job.run()
            del job

    def start(self, job: _Job) -> None:
        self._jobs.put(job)

    def dismiss(self) -> None:
        """Ends after the call at hand."""
        self._jobs.put(None)


_worker: _Worker | None = None


def _forget_worker() -> None:
    global _worker
    _worker = None  # threads stay in the parent


os.register_at_fork(after_in_child=_forget_worker)


def interruptible(work: Callable[[c_void_p | None], Any], cancel: Cancel | None = None) -> Any:
    """Returns the result of `work`, which gives its argument to the library as `cancel`. In the main thread Ctrl-C
    ends it."""
    global _worker
    if threading.current_thread() is not threading.main_thread():
        return work(None if cancel is None else cancel._handle.value)
    cancel = cancel or Cancel()
    given = cancel._handle.value
    worker = _worker or _Worker()
    _worker = None  # a signal handler may call, too: it gets one of its own
    job = _Job(lambda: work(given), cancel)
    try:
        worker.start(job)
        job.done.acquire()
    except BaseException:
        cancel.request()
        if job.done.acquire(timeout=PATIENCE_S):
            _worker = worker
        else:
            worker.dismiss()  # a late answer is thrown away
        raise
    _worker = worker
    if job.error is not None:
        try:
            raise job.error
        finally:
            job.error = None
    return job.value
