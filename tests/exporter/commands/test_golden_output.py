"""Where `tritonwatch golden record` writes."""

from __future__ import annotations

from exporter.cli import main


def test_a_folder_that_is_not_there_is_named_before_anything_is_sent(
    tmp_path, capsys
) -> None:
    output = tmp_path / "nodir" / "deeper" / "golden.npz"
    given = ["golden", "record", "--model", "m", "--data", "held_out.npz"]
    # Nothing listens there: the file is refused first.
    status = main([*given, "--grpc", "127.0.0.1:9", "--output", str(output)])
    assert status == 2
    said = capsys.readouterr().err
    assert f"{str(output)!r}: no such folder: {output.parent}" in said
    assert not (tmp_path / "nodir").exists()
