"""Alarms whose false-alarm rate holds for any number and time of evaluations.

The guarantee: with data that follow the reference's law, at most the wanted number of
false alarms per period for the whole model, all features and kinds of change together.

How. For every remembered start k the rows since k are compared with all that came
before, the reference included, by a likelihood ratio LR_k(t) whose null lets the common
law be unknown (`likelihood_ratios.py`). Given the past it has mean 1, so the weighted sum

    R_t = sum_k sum_features sum_channels weight * LR_k(t)

grows by at most 1 a window while nothing changes, and the first time R_t >= A comes, on
average, no sooner than after A windows: an e-detector (Shiryaev-Roberts form). The
reference's finite size is part of the null, because it is the first thing that came
before; and clean traffic sharpens it for ever after.

Reference: Shin, Ramdas, Rinaldo (2023), "E-detectors: a nonparametric framework for
sequential change detection"; Pollak (1985) for the Shiryaev-Roberts sum.
"""
