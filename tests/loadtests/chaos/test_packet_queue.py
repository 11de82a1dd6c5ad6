"""When a packet arrives that waits in a queue, and in which order; needs no root."""

from __future__ import annotations

import random
import socket
import struct

import pytest

from loadtests.chaos.network import nfnetlink
from loadtests.chaos.network.effect import Effect
from loadtests.chaos.network.packet_queue import QUEUE_SECONDS, Road, flow_of

ONE, OTHER = b"one", b"other"


def road(**effect: float | bool) -> Road:
    return Road(Effect(**effect), "requests", random.Random(3))  # noqa: S311


def test_a_delay_is_from_when_a_packet_was_sent():
    way = road(delay_seconds=0.02)
    assert way.arrival(100, ONE, 1.0) == pytest.approx(1.02)
    assert way.arrival(100, OTHER, 5.0) == pytest.approx(5.02)


def test_jitter_is_uniform_and_never_before_a_packet_was_sent():
    way = road(delay_seconds=0.01, jitter_seconds=0.02)
    late = [way.arrival(1, str(n).encode(), 0.0) for n in range(4000)]
    # A quarter of -10..30 ms lies below 0.
    assert sum(each == 0.0 for each in late) == pytest.approx(1000, abs=120)
    assert max(late) <= 0.03
    assert sum(each > 0.02 for each in late) == pytest.approx(1000, abs=120)


def test_packets_of_a_connection_stay_in_order_and_others_overtake():
    way = road(delay_seconds=0.02, jitter_seconds=0.02)
    times = [way.arrival(1, ONE, 0.0) for _ in range(50)]
    assert times == sorted(times)
    assert min(way.arrival(1, OTHER + bytes([n]), 0.0) for n in range(50)) < times[-1]


def test_a_connection_is_forgotten_when_nothing_of_it_is_on_its_way():
    way = road(delay_seconds=0.02, jitter_seconds=0.02)
    late = [way.arrival(1, ONE, 0.0) for _ in range(50)]
    for _ in late:
        way.arrived(ONE)
    with pytest.raises(KeyError):
        way.arrived(ONE)


def test_loss_is_a_share_of_packets_and_a_partition_all_of_them():
    way = road(loss_ratio=0.1)
    lost = sum(way.arrival(1, ONE, float(n)) is None for n in range(10_000))
    assert lost == pytest.approx(1000, abs=150)
    assert road(partitioned=True).arrival(1, ONE, 0.0) is None


def test_a_narrow_link_carries_one_after_another_and_loses_what_waits_too_long():
    way = road(bytes_per_second=1e6)
    arrivals = [way.arrival(1000, ONE, 0.0) for _ in range(1000)]
    carried = [each for each in arrivals if each is not None]
    assert carried == pytest.approx([0.001 * (n + 1) for n in range(len(carried))])
    assert carried[-1] == pytest.approx(QUEUE_SECONDS, abs=0.0015)
    # As soon as there is room again.
    assert way.arrival(1000, ONE, 0.1) == pytest.approx(carried[-1] + 0.001)


def test_the_largest_packet_gets_through_the_narrowest_link():
    assert road(bytes_per_second=1000.0).arrival(65_535, ONE, 0.0) == pytest.approx(
        65.535
    )


def test_another_direction_is_left_alone():
    effect = Effect(delay_seconds=1.0, directions="answers")
    way = Road(effect, "requests", random.Random(3))  # noqa: S311
    assert way.arrival(1, ONE, 0.0) == 0.0


@pytest.mark.parametrize(("words", "size"), [(5, 20), (6, 24), (15, 60)])
def test_a_connection_is_its_addresses_and_ports(words: int, size: int):
    addresses = socket.inet_aton("127.0.0.1") + socket.inet_aton("127.0.0.2")
    ports = struct.pack("!HH", 40_000, 8001)
    head = bytes([0x40 | words]) + bytes(11) + addresses
    packet = head.ljust(size, b"\1") + ports + b"the rest"
    assert flow_of(memoryview(packet)) == addresses + ports


def test_a_connection_of_ipv6_too():
    addresses = socket.inet_pton(socket.AF_INET6, "::1") * 2
    ports = struct.pack("!HH", 40_000, 8001)
    packet = bytes([0x60]) + bytes(7) + addresses + ports + b"the rest"
    assert flow_of(memoryview(packet)) == addresses + ports


def test_messages_are_read_as_they_are_written():
    body = nfnetlink.attribute(3, b"abcde") + nfnetlink.nested(
        4, nfnetlink.attribute(1, b"x")
    )
    first = nfnetlink.Message(3 << 8 | 1, body, resource=513).pack()
    second = nfnetlink.Message(7).pack()
    assert len(first) % 4 == 0
    (one, read), (other, _) = nfnetlink.messages(memoryview(first + second))
    assert (one, other) == (3 << 8 | 1, 7)
    assert nfnetlink.resource(read) == 513
    found = nfnetlink.attributes(read)
    assert bytes(found[3]) == b"abcde"
    assert bytes(found[4]) == nfnetlink.attribute(1, b"x")


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_a_message_cut_short_ends_the_reading(cut: int):
    body = nfnetlink.attribute(3, b"abcde") + nfnetlink.attribute(4, bytes(20))
    data = memoryview(nfnetlink.Message(1, body).pack())[:cut]
    for _, message in nfnetlink.messages(data):
        assert nfnetlink.attributes(message).keys() <= {3, 4}
