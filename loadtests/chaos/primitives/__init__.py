"""The parts of faults: processes, control groups, clocks, backends, models."""
