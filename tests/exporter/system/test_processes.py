"""Processes by the port that they listen on."""

from __future__ import annotations

import os
import socket

from exporter.system import processes

LINE = "{}: 0100007F:{:04X} 00000000:0000 {} 0:0 00:0 0 0 0 {}\n"
LISTENING, ESTABLISHED = "0A", "01"


def test_of_the_table_of_connections_only_the_listening_part_is_read(
    tmp_path, monkeypatch
):
    """A flood makes the rest long, and the kernel lists it last."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, inode = listener.getsockname()[1], os.fstat(listener.fileno()).st_ino
        table = [
            "heading\n",
            LINE.format(0, port, LISTENING, inode),
            LINE.format(1, port, ESTABLISHED, 1),
            "not read\n",
        ]
        (tmp_path / "net").mkdir()
        (tmp_path / "net" / "tcp").write_text("".join(table))
        (tmp_path / str(os.getpid())).symlink_to("/proc/self")
        assert os.getpid() in processes.listening_on(port)
        monkeypatch.setattr(processes, "_PROC", tmp_path)
        assert processes.listening_on(port) == {os.getpid()}
