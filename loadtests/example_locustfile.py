"""An example: `locust -f loadtests/example_locustfile.py --host http://localhost:8000`.

For the models of `tritonwatch demo`; replace them with your own.
"""

from __future__ import annotations

from locust import between, task

from loadtests.triton_user import TritonUser

EMPTY_IMAGE = [[0.0] * 64]


class DigitReader(TritonUser):
    """Sends three requests to the large model for each to the small one, with pauses."""

    wait_time = between(0.1, 0.5)

    @task(3)
    def read_digit(self) -> None:
        """Inputs drawn from the model's metadata."""
        self.client.infer("digits_fp32")

    @task
    def read_empty_image(self) -> None:
        """Inputs of one's own, in a row of their own in Locust's table."""
        self.client.infer("digits_int8", {"pixels": EMPTY_IMAGE}, name="empty image")
