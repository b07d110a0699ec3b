"""The quickstart's data without the questions that are to be answered from memory.

Those take time at the end of a run and tell nothing about the methods.
"""

import datasets
from verl.utils.dataset.rl_dataset import RLHFDataset

SOURCE = "quickstart/search"


class SearchQuestions(RLHFDataset):
    """verl's dataset, of one data source."""

    def maybe_filter_out_long_prompts(self, dataframe: datasets.Dataset) -> datasets.Dataset:
        rows = [row for row, source in enumerate(dataframe["data_source"]) if source == SOURCE]
        return super().maybe_filter_out_long_prompts(dataframe.select(rows))
