"""From samples and their scores to numbers: avg@k, pass@k, maj@k, intervals, comparisons.

Read in this order:

    dumps           samples from a validation dump of verl or any JSON lines, as numbers only
    prompt_rows     which row of the data file a prompt of a dump comes from
    at_k            pass@k and maj@k of one prompt
    quantities      all that is estimated, of each prompt and of each data_source
    intervals       how sure a mean is, over prompts and over seeds
    compare         two files, prompt by prompt
    table, plot     the results as text, CSV and picture
    command         `verl-msgrpo evaluate`

Needs numpy only; --data needs pyarrow, --plot needs matplotlib.
"""
