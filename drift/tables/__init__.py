"""Data files as tensors, a chunk at a time.

These modules and `drift.cli` do I/O; the rest of the library does none.

    layout.py   which columns make up which tensors, and which of them are watched
    reading.py  a path to a table, by what the file is             open_table, Table
    csv_file.py parquet_file.py npz_file.py                        one format each
"""
