"""Records of stored results, `records/NAME.json`: verdicts and numbers, no data.

specjax run relu-off-diagonal --scale paper
python scripts/maintain/records.py results relu-off-diagonal
python scripts/maintain/records.py results    # of every result in the folder that allows one
python scripts/maintain/paper_pages.py        # then the tables of the papers' pages
python scripts/maintain/standing_page.py      # and that of the field
"""

import argparse
import sys
from pathlib import Path

from specjax.report import load, load_all, records


def main() -> int:
    """Exit code 1 if a result that was named has no record made."""
    parser = argparse.ArgumentParser(description="Make records of stored results.")
    parser.add_argument(
        "results", type=Path, metavar="DIR", help="results of `specjax run` or `reproduce`"
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="experiments (default: all in DIR)"
    )
    parser.add_argument("--replace", action="store_true", help="also a record of a larger scale")
    given = parser.parse_args()
    refused = 0
    try:
        found = (
            [load(given.results / name) for name in given.names]
            if given.names
            else load_all(given.results)
        )
    except ValueError as error:
        raise SystemExit(f"records.py: {error}") from error
    for result in found:
        try:
            path = records.save(result, records.home(), replace=given.replace)
        except ValueError as error:
            refused += 1
            print(f"records.py: {error}", file=sys.stderr)
        else:
            print(
                f"{path.name}: {result.record.scale}, {len(result.checks)} verdicts,"
                f" {path.stat().st_size} bytes"
            )
    return 1 if refused and given.names else 0


if __name__ == "__main__":
    sys.exit(main())
