"""`specjax list`."""

import json

from specjax.cli._parser import make_parser


def list_experiments(arguments: list[str]) -> int:
    """Print name, paper and title of every experiment."""
    parser = make_parser("specjax list", "List the experiments: name, paper and title.")
    parser.add_argument("--json", action="store_true", help="print as JSON")
    given = parser.parse(arguments)
    from specjax import experiments
    from specjax.report import formatting

    rows = [(each.name, each.paper, each.title) for each in experiments.load_all().values()]
    header = ("name", "paper", "title")
    if given.json:
        print(json.dumps([dict(zip(header, row, strict=True)) for row in rows], indent=1))
    else:
        print(formatting.align([header, *rows]))
    return 0
