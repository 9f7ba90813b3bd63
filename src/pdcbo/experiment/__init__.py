"""Plants x optimizers x seeds -> tables and figures: comparisons, the paper's experiments, its rates, the suite.

jobs       what is run: a plant, an optimizer with its options, a seed, a number of steps
runner     runs jobs in parallel, keeps every finished one at once, continues where it was killed
tables     reads results back and sums them up
drawing    figures
episode    one plant, one optimizer, watched live
reproduce  the paper's two figures; rates, its Table I; suite, all plants at once
"""
