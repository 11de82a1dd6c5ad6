"""Which reply of a script counts: in order, lasting, for one port, for a block."""

from __future__ import annotations

import grpc
import pytest
from fault_clients import grpc_failure, grpc_infer, http_infer
from triton_clients import message, stub

from exporter.testing import (
    INTERNAL,
    UNAVAILABLE,
    Filled,
    Frozen,
    Hung,
    NotReady,
    Zeroed,
)


class TestScript:
    def test_limited_replies_are_used_up_in_order_and_then_it_behaves_again(self, fake):
        fake.on("infer").reply(UNAVAILABLE, times=2)
        fake.on("infer").reply(INTERNAL, times=1)
        codes = [grpc_failure(fake)[0].name for _ in range(3)]
        assert codes == ["UNAVAILABLE", "UNAVAILABLE", "INTERNAL"]
        assert grpc_infer(fake).outputs

    def test_limited_replies_come_before_lasting_ones(self, fake):
        fake.on("infer").reply(INTERNAL, times=1)
        fake.on("infer").reply(UNAVAILABLE)
        codes = [grpc_failure(fake)[0].name for _ in range(3)]
        assert codes == ["INTERNAL", "UNAVAILABLE", "UNAVAILABLE"]

    def test_the_latest_lasting_reply_wins(self, fake):
        fake.on("any").reply(UNAVAILABLE)
        fake.on("infer", model="m").reply(INTERNAL)
        assert grpc_failure(fake, "m")[0] is grpc.StatusCode.INTERNAL
        assert grpc_failure(fake, "n")[0] is grpc.StatusCode.UNAVAILABLE
        fake.on("infer", model="m").reply()
        assert grpc_infer(fake, "m").outputs

    def test_a_reply_can_be_for_one_port(self, fake):
        fake.on("infer", protocol="http").reply(INTERNAL)
        assert http_infer(fake)[0] == 500
        assert grpc_infer(fake).outputs

    def test_a_reply_can_last_for_a_block_and_tells_how_often_it_was_used(self, fake):
        with fake.on("infer").reply(INTERNAL) as rule:
            grpc_failure(fake)
            grpc_failure(fake)
        assert rule.used == 2
        assert grpc_infer(fake).outputs
        rule.remove()

    def test_the_script_changes_while_calls_are_in_progress(self, fake):
        fake.on("infer").reply(Hung())
        with stub(fake) as service:
            hung = service.ModelInfer.future(message(), timeout=30)
            fake.wait_for("infer")
            fake.behave()
            assert service.ModelInfer(message(), timeout=10).outputs
            assert not hung.done()
            hung.cancel()

    @pytest.mark.parametrize(
        ("operation", "behaviour", "words"),
        [
            ("statistics", Filled(0.0), "Filled cannot be shown by 'statistics'"),
            ("infer", Frozen(), "only by metrics, statistics"),
            ("any", Zeroed(), "Zeroed cannot be shown by 'any'"),
            ("infer", NotReady(), "only by model_ready, server_live, server_ready"),
        ],
    )
    def test_a_behaviour_the_operation_cannot_show_is_refused_at_once(
        self, fake, operation, behaviour, words
    ):
        with pytest.raises(ValueError, match=words):
            fake.on(operation).reply(behaviour)
