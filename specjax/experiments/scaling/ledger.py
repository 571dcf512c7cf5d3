"""The ledger of widths and rates, which belongs to no single paper."""

from pathlib import Path

from specjax import lab

LEDGER = lab.read_ledger(Path(__file__).parent / "ledger.toml", "scaling")
