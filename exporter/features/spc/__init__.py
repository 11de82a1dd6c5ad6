"""Statistical process control: detects changes of a signal from its baseline.

Pure: `control_charts` are the four charts, `signal_baseline` the normal state of a
signal, `signal_monitor` its charts with alarms that latch.
"""
