"""Process control: is a number still what it was when all was well?

Pure statistics: no clock, no I/O, numpy alone. `charts` are the four charts, `arl` how
long each runs before it speaks, `baseline` what "well" is, `monitor` one signal's
charts with alarms that latch.
"""
