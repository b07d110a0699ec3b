"""Streams the rows of a parquet file in batches of bounded size, however long its rows are."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow.parquet as pq

_BATCH_ROWS = 256
_BATCH_BYTES = 32 << 20


def stream(
    path: Path, columns: Sequence[str], advance: Callable[[int], object] = lambda _: None
) -> Iterator[dict[str, object]]:
    """The rows with these columns; `advance` is called with the number of rows just given.

    Raises:
        OSError, pyarrow.ArrowException: the file cannot be read.
    """
    with pq.ParquetFile(path) as file:
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            row_bytes = max(1, group.total_byte_size // max(1, group.num_rows))
            size = max(1, min(_BATCH_ROWS, _BATCH_BYTES // row_bytes))
            for batch in file.iter_batches(size, row_groups=[number], columns=list(columns)):
                yield from batch.to_pylist()
                advance(batch.num_rows)
