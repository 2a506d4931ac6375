"""Tables in compressed files, through pandas and pyarrow. Usage: tables.py [ROWS]"""

import sys
import tempfile
from pathlib import Path

import numpy
import pandas
import pyarrow
import pyarrow.csv
import pyarrow.parquet

import libpz as pz


def table(rows: int) -> pandas.DataFrame:
    """Prices of some goods, minute by minute."""
    random = numpy.random.default_rng(0)
    return pandas.DataFrame(
        {
            "time": pandas.date_range("2026-01-01", periods=rows, freq="min"),
            "good": random.choice(["apples", "nuts", "pears", "plums"], rows),
            "price": (100 + random.normal(0, 0.05, rows).cumsum()).round(2),
        }
    )


def main(rows: int = 1_000_000) -> None:
    """Write and read a table as CSV and as Parquet."""
    frame = table(rows)
    with tempfile.TemporaryDirectory() as folder:
        csv = Path(folder, "prices.csv.pz")
        with pz.open(csv, "wt", encoding="utf-8", newline="") as file:
            frame.to_csv(file, index=False)
        with pz.open(csv) as file:
            restored = pandas.read_csv(file, parse_dates=["time"])
        assert (restored["price"] == frame["price"]).all() and (restored["time"] == frame["time"]).all()
        with pz.open(csv) as file:
            assert pyarrow.csv.read_csv(file).num_rows == rows
        print(f"CSV: {csv.stat().st_size:,} bytes of {pz.list(csv)[0].content_size:,}")

        # Turn off Parquet's own compression, so that pz sees the plain pages of the columns.
        parquet = Path(folder, "prices.parquet.pz")
        with pz.open(parquet, "wb", filter="auto") as file:
            pyarrow.parquet.write_table(pyarrow.Table.from_pandas(frame), file, compression="none")
        with pz.open(parquet) as file:
            prices = pyarrow.parquet.read_table(file, columns=["price"])
        assert prices["price"].to_numpy().tolist() == frame["price"].tolist()
        print(f"Parquet: {parquet.stat().st_size:,} bytes of {pz.list(parquet)[0].content_size:,}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
