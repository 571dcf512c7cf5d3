"""`specjax run` and `specjax scaling`."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specjax.cli._errors import (
    UserError,
    memory_errors_in_one_sentence,
    one_line,
    unknown,
    value_errors_in_one_sentence,
)
from specjax.cli._output import print_checks, print_files
from specjax.cli._parser import (
    DEFAULT_SCALE,
    add_out,
    add_scale,
    make_parser,
    parse_out,
    parse_scale,
    pre_parser,
)

if TYPE_CHECKING:
    from specjax.lab import Config, Experiment


def run_experiment(arguments: list[str]) -> int:
    """Run the experiment that the first argument names."""
    if not arguments or arguments[0].startswith("-"):
        parser = make_parser(
            "specjax run",
            "Run one experiment and store its data, figure, checks and report.",
            usage="specjax run NAME [--scale SCALE] [--out DIR] [--FIELD VALUE ...]",
            epilog=(
                "`specjax run NAME --help` shows the experiment's own flags; `specjax list` shows"
                " the names."
            ),
        )
        add_scale(parser)
        add_out(parser)
        if {"-h", "--help"} & set(arguments):
            parser.parse_args(["--help"])
        raise UserError(
            "The experiment's name comes first, as in `specjax run NAME`; `specjax list` shows the"
            " names."
        )
    from specjax import experiments

    name, *rest = arguments
    if (Path(name) / "claim.toml").is_file():
        with value_errors_in_one_sentence():
            experiment = experiments.load_folder(Path(name))
        return _run_with_flags(f"specjax run {name}", experiment, rest)
    if name not in experiments.names():
        raise UserError(unknown("experiment", name, experiments.names(), "specjax list"))
    return _run_with_flags(f"specjax run {name}", experiments.load(name), rest)


def run_scaling(arguments: list[str]) -> int:
    """Run the scaling experiment of a model and an optimizer."""
    from specjax.experiments.scaling import builtin_models, scaling_cli

    # These two are parsed first: they choose the experiment, whose fields are the other flags.
    choices = {"model": list(builtin_models.MODELS), "optimizer": list(builtin_models.OPTIMIZERS)}
    first = pre_parser("specjax scaling")
    for flag, known in choices.items():
        first.add_argument(f"--{flag}", default=known[0])
    given, rest = first.parse_known_args(arguments)
    for flag, known in choices.items():
        if (name := getattr(given, flag)) not in known:
            raise UserError(unknown(flag, name, known))
    epilog = "\n".join(
        f"--{flag} is one of {', '.join(known)} (default: {known[0]})"
        for flag, known in choices.items()
    )
    prog = f"specjax scaling --model {given.model} --optimizer {given.optimizer}"
    return _run_with_flags(prog, scaling_cli.experiment(given.model, given.optimizer), rest, epilog)


def _run_with_flags(
    prog: str, experiment: "Experiment[Any]", rest: list[str], epilog: str = ""
) -> int:
    """Run an experiment at the configuration that the flags give."""
    from specjax.lab.flags import flags, override

    # Fields may be typed as config.json spells them, with underscores.
    rest = [_with_dashes(word) if word.startswith("--") else word for word in rest]
    # The scale is parsed first: the defaults of the other flags, which --help shows, depend on it.
    first = pre_parser(prog)
    first.add_argument("--scale", default=DEFAULT_SCALE)
    scale = parse_scale(first.parse_known_args(rest)[0].scale)
    options = flags(experiment.at(scale))

    parser = make_parser(
        prog, f"{experiment.title}\n\n{textwrap.fill(experiment.summary, 100)}", epilog=epilog
    )
    add_scale(parser)
    add_out(parser)
    parser.add_argument(
        "--explain", action="store_true", help="print how each sweep was planned, and what it took"
    )
    fields = parser.add_argument_group("configuration", f"defaults are those of --scale {scale}")
    for flag in options:
        text = f"{flag.help} (default: {flag.default})".strip().replace("%", "%%")
        fields.add_argument(
            flag.option, dest=f"field {flag.field}", metavar=flag.metavar, help=text
        )
    given = vars(parser.parse(rest))
    texts = {flag.field: given[f"field {flag.field}"] for flag in options}
    texts = {field: text for field, text in texts.items() if text is not None}
    with value_errors_in_one_sentence():
        config = override(experiment.at(scale), texts)
    return _run_and_print(experiment, scale, config, parse_out(given["out"]), given["explain"])


def _run_and_print(
    experiment: "Experiment[Any]", scale: str, config: "Config", out: Path, explain: bool
) -> int:
    from specjax import report
    from specjax.resume import StoreError

    with value_errors_in_one_sentence():
        report.require_room(out, [experiment.name])
    try:
        with memory_errors_in_one_sentence():
            result = report.produce(experiment, scale, config, out)
    except (report.Refused, StoreError) as error:
        raise UserError(one_line(error)) from error
    report.discard(result, out)
    # The checks are printed even if another result in the folder prevents a report.
    print_checks([result])
    with value_errors_in_one_sentence():
        report.refresh(out)
    if explain:
        _print_plans(out / experiment.name)
    print_files([result], out)
    return 0


def _print_plans(folder: Path) -> None:
    import xarray as xr

    from specjax import report, sweep

    stored = report.load_data(folder)
    named = {folder.name: stored} if isinstance(stored, xr.Dataset) else stored
    for name, data in named.items():
        # Data that are not from a sweep have no plan.
        if sweep.is_explained(data):
            print(f"{name}: {sweep.explain(data)}\n")


def _with_dashes(word: str) -> str:
    flag, equals, value = word.partition("=")
    return flag.replace("_", "-") + equals + value
