"""Chaos experiments: inject faults under load and measure their effect on users.

An experiment has Chaos Toolkit's keys (steady-state hypothesis, method, rollbacks)
and an extension block that defines the load. Its faults are always undone:
by the runner, by a watchdog when the runner dies, and by `tritonwatch chaos undo`.
"""
