"""Configurations refuse, in one sentence, what could not be judged at the end."""

import dataclasses

import pytest

from specjax import lab
from specjax.lab.flags import flags, override


class Config(lab.Config):
    """One field of each kind."""

    ds: tuple[int, ...] = lab.config.sizes(8, 16, 32, least=2, points=2, help="sizes")
    d1: int = lab.config.integer(6, least=2, most=10, help="hidden units")
    rate: float = lab.config.number(0.1, above=0, help="step size")
    alphas: tuple[float, ...] = lab.config.numbers(1.25, 2, above=1, help="exponents")
    kappas: tuple[float, ...] = lab.config.ascending(
        1, 10.5, least=1, points=2, help="condition numbers"
    )
    factors: tuple[float, ...] = lab.config.ascending(0, 0.5, least=0, first=0, help="factors")
    betas: tuple[float, ...] = lab.config.numbers(0.5, 0.9, count=2, help="two of them")
    batches: tuple[int, ...] = lab.config.sizes(8, 16, count=2, help="two sizes")
    rates: tuple[float, ...] = lab.config.grid(0.1, 1, 10, help="to be tuned on")
    three: tuple[float, ...] = lab.config.grid(0.1, 1, 10, count=3, help="the middle one is judged")
    ratio: float = lab.config.number(2.0, least=1, below=10, help="one of them")
    draws: int = lab.config.seeds(100)
    target: str = lab.config.text("", help="a file")
    exact: bool = lab.config.switch(True, help="exact in x")
    width: int = lab.config.integer(8, help="rows")
    steps: int = lab.config.integer(8, most=lab.config.MOST_COUNT, help="steps")


def test_defaults_are_a_configuration_whose_fields_are_flags():
    config = Config()
    assert dataclasses.asdict(config) == {
        "seed": 0,
        "ds": (8, 16, 32),
        "d1": 6,
        "rate": 0.1,
        "alphas": (1.25, 2.0),
        "kappas": (1.0, 10.5),
        "factors": (0.0, 0.5),
        "betas": (0.5, 0.9),
        "batches": (8, 16),
        "rates": (0.1, 1.0, 10.0),
        "three": (0.1, 1.0, 10.0),
        "ratio": 2.0,
        "draws": 100,
        "target": "",
        "exact": True,
        "width": 8,
        "steps": 8,
    }
    assert {flag.option for flag in flags(config)} >= {"--seed", "--ds", "--d1", "--rate"}
    assert override(config, {"ds": "4,8", "exact": "false"}) == Config(ds=(4, 8), exact=False)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.d1 = 3


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"ds": (8,)}, "ds needs 2 or more different sizes in ascending order, each at least 2"),
        ({"ds": (16, 8)}, "ascending order"),
        ({"ds": (8, 8)}, "ascending order"),
        ({"ds": (1, 8)}, "at least 2, got"),
        ({"d1": 1}, "d1 must be at least 2 and at most 10, got 1"),
        ({"d1": 11}, "d1 must be at least 2 and at most 10, got 11"),
        ({"rate": 0.0}, "rate must be a finite number between 0 and inf"),
        ({"rate": float("nan")}, "rate must be a finite number"),
        ({"alphas": ()}, "alphas needs one or more"),
        ({"alphas": (2.0, 2.0)}, "different finite numbers"),
        ({"alphas": (1.0,)}, "between 1 and inf"),
        (
            {"kappas": (0.5, 2.0)},
            "kappas needs 2 or more different numbers in ascending order, each at least 1, got",
        ),
        ({"kappas": (2.0, 1.0)}, "ascending order"),
        ({"factors": (0.5, 1.0)}, "factors needs 0 as its first number, got"),
        ({"kappas": (1.0, float("inf"))}, "ascending order"),
        ({"kappas": (float("nan"), 2.0)}, "ascending order"),
        ({"kappas": (2.0,)}, "2 or more"),
        ({"betas": (0.5, 0.6, 0.7)}, "betas needs 2 numbers, got"),
        ({"betas": (0.5, 0.5)}, "different finite numbers"),
        (
            {"batches": (8, 16, 32)},
            "batches needs 2 different sizes in ascending order, each at least 1, got",
        ),
        ({"batches": (16, 8)}, "batches needs 2 different sizes in ascending order"),
        (
            {"rates": (0.1, 1.0)},
            "rates needs 3 or more positive numbers in ascending order, so that one lies inside",
        ),
        ({"rates": (0.0, 1.0, 2.0)}, "rates needs 3 or more positive"),
        ({"rates": (0.1, 2.0, 1.0)}, "rates needs 3 or more positive"),
        ({"rates": (0.1, 1.0, float("inf"))}, "rates needs 3 or more positive"),
        ({"rates": (0.1, 1.0, float("nan"))}, "rates needs 3 or more positive"),
        ({"three": (0.1, 1.0, 2.0, 3.0)}, "three needs 3 positive numbers in ascending order"),
        (
            {"ratio": 0.5},
            (
                "ratio must be a finite number of at least 1 between -inf and 10, ends excluded,"
                " got 0.5"
            ),
        ),
        ({"ratio": 10.0}, "ratio must be a finite number"),
        ({"draws": 1}, "draws must be at least 2, got 1"),
        ({"d1": 2.5}, r"^d1 must be an integer, got 2.5\.$"),
        ({"d1": True}, r"^d1 must be an integer, got True\.$"),
        ({"d1": None}, r"^d1 must be an integer, got None\.$"),
        ({"width": 2**20 + 1}, r"^width must be at least 1 and at most 1048576, got 1048577\.$"),
        ({"steps": 2**31}, r"^steps must be at least 1 and at most 2147483647, got 2147483648\.$"),
        (
            {"ds": (8, 99999999999999999999)},
            r"^ds needs sizes of at most 1048576, got \(8, 99999999999999999999\)\.$",
        ),
        ({"ds": (8, 16.5)}, "different sizes in ascending order"),
        ({"ds": 8}, "different sizes in ascending order, each at least 2, got 8"),
        (
            {"rate": "0.1"},
            r"^rate must be a finite number between 0 and inf, ends excluded, got '0.1'\.$",
        ),
        ({"rate": 1e300}, "got 1e[+]300, beyond 3.4e38, the largest of float32"),
        ({"rate": 10**400}, "rate must be a finite number"),
        ({"alphas": (2.0, 1e39)}, "different finite numbers"),
        ({"alphas": 2.0}, "different finite numbers"),
        ({"kappas": (1.0, 1e39)}, "ascending order"),
        ({"rates": (0.1, 1.0, 1e39)}, "rates needs 3 or more positive"),
        ({"rates": 0.1}, "rates needs 3 or more positive"),
        ({"draws": 2**31}, "draws must be at least 2 and at most 2147483647, got 2147483648"),
        ({"target": 3}, r"^target must be text, got 3\.$"),
        ({"exact": "yes"}, r"^exact must be True or False, got 'yes'\.$"),
        ({"seed": 0.5}, "seed must be from 0"),
        ({"seed": "x"}, "seed must be from 0"),
        ({"seed": -1}, "seed must be from 0"),
        ({"seed": 2**32}, "seed must be from 0"),
    ],
)
def test_a_field_refuses_what_cannot_be_judged(fields, match):
    with pytest.raises(ValueError, match=match):
        Config(**fields)


@pytest.mark.parametrize(
    "field",
    [
        lambda: lab.config.integer("x", help="h"),
        lambda: lab.config.integer(None, help="h"),
        lambda: lab.config.integer(3, most=2, help="h"),
        lambda: lab.config.integer(3, help=None),
        lambda: lab.config.number(float("nan"), help="h"),
        lambda: lab.config.number("x", help="h"),
        lambda: lab.config.number(1.0, below=1, help="h"),
        lambda: lab.config.numbers(1, "x", help="h"),
        lambda: lab.config.sizes(8, 4, help="h"),
        lambda: lab.config.sizes(None, help="h"),
        lambda: lab.config.ascending(1, float("nan"), least=0, help="h"),
        lambda: lab.config.grid(1, 2, help="h"),
        lambda: lab.config.seeds(1),
        lambda: lab.config.root_seed(-1, help="h"),
        lambda: lab.config.text(None, help="h"),
        lambda: lab.config.switch("true", help="h"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_default_passes_the_check_of_its_field(field):
    with pytest.raises(ValueError, match=r"^(The default of a field|\w+ needs) [^\n]+\.$"):
        field()
