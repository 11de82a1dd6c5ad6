"""Results of worker threads that nobody waits for any more."""

from __future__ import annotations

import asyncio
import threading
import weakref

import numpy as np
from waiting import wait_until

from exporter.system.workers import Workers


async def test_a_result_nobody_waits_for_is_let_go():
    workers, release = Workers(1, "test"), threading.Event()
    run = workers.submit(release.wait, 20)
    run.cancel()
    release.set()
    assert await workers.submit(lambda: "next") == "next"
    workers.close()


def test_an_idle_thread_keeps_nothing_of_its_last_job():
    workers, done = Workers(1, "idle"), threading.Event()
    answer = np.zeros(1)
    kept = weakref.ref(answer)

    def job(answer=answer):
        assert answer is not None
        done.set()

    workers.run(job)
    del job, answer
    assert done.wait(20)
    wait_until(lambda: kept() is None)
    workers.close()


def test_a_result_after_the_loop_has_ended_is_let_go():
    release, done = threading.Event(), threading.Event()

    def job():
        release.wait(20)
        done.set()

    async def main():
        workers = Workers(1, "late")
        workers.submit(job)
        workers.close()

    asyncio.run(main())
    release.set()
    assert done.wait(20)
    for thread in threading.enumerate():
        if thread.name == "late-0":
            thread.join(20)
            assert not thread.is_alive()
