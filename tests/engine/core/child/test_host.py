"""The child's side of the socket: what it has sent it does not keep."""

import socket
from multiprocessing.connection import Connection

import pytest

from engine import Trace
from engine.bench.trace.synthetic import made_up_hour
from engine.core.child.host import Host
from engine.trace.records import encode


def test_records_cross_once_and_are_let_go() -> None:
    ours, theirs = socket.socketpair()
    host, parent, trace = Host(Connection(theirs.detach())), Connection(ours.detach()), Trace()
    records, told = list(made_up_hour(120, 4)), []
    host._traces[0] = trace
    for begin in range(0, len(records), 40):
        trace.extend(records[begin : begin + 40])
        host._drain()
        verb, session, batch = parent.recv()
        assert (verb, session) == ("records", 0)
        told += batch
        assert len(trace.records) == len(told)
        with pytest.raises(IndexError, match="let go"):
            _ = trace.records[-1]
    assert [encode(r) for r in told] == [encode(r) for r in records]
    host._connection.close()
    parent.close()
