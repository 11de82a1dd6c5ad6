"""Process control: is a number still what it was when all was well?

Pure: `control_charts` are the four charts, `signal_baseline` the normal state of a
signal, `signal_monitor` its charts with alarms that latch.
"""
