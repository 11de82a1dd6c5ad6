"""`locust -f loadtests/locustfile.py --model M --host grpc://localhost:8001`.

With `--load-profile poisson --rate 200 --duration 60` an open loop: the schedule is
shared out over the workers exactly, and Locust's users are only shown. Without one a
closed loop: each of Locust's users is a request in flight. The web UI, `--headless`,
`--master`, `--worker` and `--processes` work as usual. For tasks of your own, see triton_user.py.
"""

from __future__ import annotations

from locust import User, task

from loadtests.distributed import locust_hooks

locust_hooks.install()


class ScheduledUser(User):
    """Represents a request in flight of a closed loop, or a worker of an open one."""

    def on_start(self) -> None:
        """Start the user."""
        locust_hooks.user_came()

    def on_stop(self) -> None:
        """End."""
        locust_hooks.user_left()

    @task
    def wait_for_the_sender(self) -> None:
        """The sender of this worker does the work."""
        locust_hooks.wait()
