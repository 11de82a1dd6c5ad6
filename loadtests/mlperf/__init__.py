"""The rules of MLPerf's LoadGen: when queries come, and whether a run is valid.

Written from LoadGen's published rules and checked against the real one; no code of it
is here. https://github.com/mlcommons/inference/tree/master/loadgen
"""
