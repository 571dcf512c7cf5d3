"""`specjax list` and `specjax ledger`."""

from specjax.cli.errors import UserError, unknown, value_errors_in_one_sentence
from specjax.cli.parser import add_out, make_parser, parse_out


def list_experiments(arguments: list[str]) -> int:
    """Print name, paper and title of every experiment."""
    make_parser("specjax list", "List the experiments: name, paper and title.").parse(arguments)
    from specjax import experiments
    from specjax.report import formatting

    rows = [(each.name, each.paper, each.title) for each in experiments.load_all().values()]
    print(formatting.align([("name", "paper", "title"), *rows]))
    return 0


def show_ledger(arguments: list[str]) -> int:
    """Print the rows of one ledger, or of all, with their statuses."""
    parser = make_parser(
        "specjax ledger",
        "Every numbered statement, figure and table of the papers, and what has become of it.",
    )
    parser.add_argument(
        "paper", metavar="PAPER", nargs="?", help="one of the papers (default: all)"
    )
    add_out(parser, "results that decide, before the records of runs made earlier")
    given = parser.parse(arguments)
    from specjax.report import formatting, ledger_status

    papers = list(ledger_status.known())
    if given.paper is not None and given.paper not in papers:
        raise UserError(unknown("paper", given.paper, papers))
    header = ("row", "where", "status", "decided by", "says or why not")
    with value_errors_in_one_sentence():
        results = ledger_status.deciding(parse_out(given.out))
        for paper in papers if given.paper is None else [given.paper]:
            rows = ledger_status.rows(paper, results)
            print(f"{paper}: {ledger_status.counts(rows)}")
            print(formatting.align([header, *map(ledger_status.cells, rows)]) + "\n")
    return 0
