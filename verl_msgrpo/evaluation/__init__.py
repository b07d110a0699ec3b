"""From samples and their scores to numbers: avg@k, pass@k, maj@k, intervals, comparisons."""
