"""Statistics of change between a reference and new data: numpy and scipy, no I/O, no clock.

    features.py    which columns of which tensors are watched          Schema, Feature
    cell_choice.py which cells, from the reference's sample            build_numeric_grid
    grid.py        rows into these cells                               NumericGrid
    window.py      rows -> counts in bounded memory, exact merge       Accumulator, Counts
    joint.py       correlations between columns, in batches of rows    JointModel
    joint_counting.py  batches by cell, and the pairs that changed     JointCounter
    reference.py   what the model was trained on                       ProfileBuilder, Profile
    limits.py      caveats of the guarantee, and blind spots              Profile.caveats
    statistics.py  distances between two sets of counts                STATISTICS
    alarms/        evidence with a guaranteed false-alarm rate         Monitor, AlarmSettings
    embeddings.py  norms and projections of vectors                    VectorSketch
    forecast.py    when accuracy will cross a floor, if that can be estimated

Importing this package costs nothing: import the modules you need. scipy is imported by
the first call that needs it, never while a module is imported.
"""
