"""Seconds for the expectation of a trace, by integration by parts on graphs and by enumeration of all pairings.

* specjax: `specjax.moments.expectation` of the word as it is written, with nothing remembered from another word;
* enumeration: every pairing of the Gaussian factors, each with its loops of indices counted: what one writes without a library.

Both give a polynomial in the sizes, and these must be the same before a time is printed. Words of more than `--most` pairings are left
out of the enumeration. `peak` is the memory that the engine's Python objects take at most, `terms` the length of the result.

    python scripts/benchmarks/moments.py [--smoke]
"""

import argparse
import math
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from time import perf_counter

from timing import machine, table

from specjax import moments
from specjax.moments.polynomial import Polynomial

Factor = tuple[str, str, str, bool]
"""A Gaussian matrix: its name, its rows and columns, and whether it stands transposed."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="short words only")
    parser.add_argument("--most", type=int, default=200_000, help="pairings to enumerate")
    options = parser.parse_args()
    if options.smoke:
        options.most = 1000
    return options


def network(depth: int, power: int) -> list[Factor]:
    """The factors of (P Pᵀ)^power for P = W_L ⋯ W_1."""
    layers = [(f"W{i}", f"d{i}", f"d{i - 1}") for i in range(depth, 0, -1)]
    once = [(*layer, False) for layer in layers] + [(*layer, True) for layer in reversed(layers)]
    return once * power


def pairings(items: list[int]) -> Iterator[list[tuple[int, int]]]:
    if not items:
        yield []
        return
    first, *rest = items
    for place, partner in enumerate(rest):
        for others in pairings(rest[:place] + rest[place + 1 :]):
            yield [(first, partner), *others]


def enumerated(word: list[Factor]) -> Polynomial:
    """E tr of the word: a pairing makes one index of the rows and one of the columns of two factors, and each index counts its size."""
    sizes = [columns if turned else rows for _, rows, columns, turned in word]
    ends = [(i, (i + 1) % len(word)) for i in range(len(word))]
    legs = [(b, a) if turned else (a, b) for (a, b), (*_, turned) in zip(ends, word, strict=True)]
    names = sorted({name for name, *_ in word})

    def extended(pairs: list[tuple[int, int]], rest: list[str]) -> Iterator[list[tuple[int, int]]]:
        if not rest:
            yield pairs
            return
        for more in pairings([n for n, factor in enumerate(word) if factor[0] == rest[0]]):
            yield from extended(pairs + more, rest[1:])

    total: Counter[tuple[str, ...]] = Counter()
    for pairs in extended([], names):
        root = list(range(len(word)))
        for a, b in pairs:
            for x, y in zip(legs[a], legs[b], strict=True):
                kept, gone = root[x], root[y]
                root = [kept if r == gone else r for r in root]
        total[tuple(sorted(sizes[r] for r in set(root)))] += 1
    return Polynomial({tuple(sorted(Counter(loops).items())): count for loops, count in total.items()})


def symbolic(word: list[Factor], run: str) -> moments.Expression:
    """The word with matrices of names that no other run has, so that the engine remembers nothing of them."""
    product = moments.identity(word[0][1])
    for name, rows, columns, turned in word:
        factor = moments.gaussian(f"{name}_{run}", rows, columns)
        product = product @ (factor.T if turned else factor)
    return moments.trace(product)


def main() -> None:
    options = arguments()
    print(machine("specjax", "jax"), end="\n\n")
    powers = {
        1: (2, 3, 4) if options.smoke else (3, 4, 5, 6, 7, 8, 9, 12),
        2: (2,) if options.smoke else (2, 3, 4),
        3: (2,),
    }
    rows = [["word", "factors", "pairings", "specjax, s", "enumeration, s", "ratio", "terms", "peak, MB"]]
    for depth, several in powers.items():
        for power in several:
            word = network(depth, power)
            count = math.prod(range(2 * power - 1, 0, -2)) ** depth
            run = len(rows)
            tracemalloc.start()
            found = moments.expectation(symbolic(word, f"first_{run}")).value
            peak = tracemalloc.get_traced_memory()[1] / 1e6
            tracemalloc.stop()
            start = perf_counter()
            moments.expectation(symbolic(word, f"second_{run}"))
            ours = perf_counter() - start
            theirs, ratio = "-", "-"
            if count <= options.most:
                start = perf_counter()
                wanted = enumerated(word)
                seconds = perf_counter() - start
                assert found == wanted, f"{depth} layers to the power {power}: {found} is not {wanted}"
                theirs, ratio = f"{seconds:.4f}", f"{seconds / ours:.1f}"
            label = f"tr(P Pᵀ)^{power}, {depth} layer{'s' * (depth > 1)}"
            rows.append(
                [label, str(len(word)), str(count), f"{ours:.4f}", theirs, ratio, str(len(found.terms)), f"{peak:.1f}"]
            )
    print(f"the two polynomials are the same wherever there are at most {options.most} pairings\n")
    print(table(rows))


if __name__ == "__main__":
    main()
