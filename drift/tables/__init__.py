"""Readers of data files: each returns tensors, chunk by chunk.

These modules and `drift.cli` do I/O; the rest of the library does none. pyarrow, the extra
`tables`, reads all but NPZ.

    layout.py         which columns make up which tensors, and which of them are watched
    reading.py        a path to a table, by what the file is
    arrow_file.py     Parquet, alone or a folder of it, and Feather; columns of Arrow as numpy arrays
    csv_source.py     CSV as Arrow columns, its delimiter and decimal mark detected
    npz_file.py       NPZ
"""
