"""Seconds for the expectation of a trace, by integration by parts on graphs, by enumeration of all
pairings and by expansion in entries.

* specjax: `specjax.moments.expectation` of the word as it is written, with nothing remembered from
  another word;
* enumeration: every pairing of the Gaussian factors, each with its loops of indices counted: what
  one writes without a library;
* expansion: the trace of 3×3 matrices as a polynomial in their entries, as a computer algebra
  system has it, with each power of an entry
  replaced by its moment: one number.

The first two give a polynomial in the sizes, and these must be the same, and have the third's
number at all sizes 3, before a time is printed. Words of more than `--most` pairings are left out
of the enumeration, and words that may have more than `--most` monomials in the entries out of the
expansion. `peak` is the memory that the engine's Python objects take at most, `terms` the length of
the result.

    python scripts/benchmarks/moments.py [--smoke]
"""

import argparse
import itertools
import math
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from time import perf_counter

from timing import machine, table

from specjax import moments
from specjax.moments import Polynomial

Factor = tuple[str, str, str, bool]
"""A Gaussian matrix: its name, its rows and columns, and whether it stands transposed."""


SIZE = 3
"""All sizes of the expansion."""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="short words only")
    parser.add_argument(
        "--most", type=int, default=200_000, help="pairings to enumerate, and monomials to expand"
    )
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
    """E tr of the word: a pairing makes one index of the rows and one of the columns of two
    factors, and each index counts its size.
    """
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
    return Polynomial(
        {tuple(sorted(Counter(loops).items())): count for loops, count in total.items()}
    )


def expanded(word: list[Factor], size: int) -> int:
    """E tr of the word where all sizes are this number: powers of the entries, sorted, with their
    coefficients.
    """
    Entries = Counter[tuple[tuple[str, int, int], ...]]
    row_of: list[list[Entries]] = [
        [Counter({(): 1}) if i == j else Counter() for j in range(size)] for i in range(size)
    ]
    for name, _, _, turned in word:
        for i, row in enumerate(row_of):
            product: list[Entries] = [Counter() for _ in range(size)]
            for j, k in itertools.product(range(size), repeat=2):
                entry = (name, k, j) if turned else (name, j, k)
                for monomial, number in row[j].items():
                    product[k][tuple(sorted((*monomial, entry)))] += number
            row_of[i] = product
    return sum(
        number * math.prod(math.prod(range(m - 1, 0, -2)) for m in Counter(monomial).values())
        for i in range(size)
        for monomial, number in row_of[i][i].items()
        if all(m % 2 == 0 for m in Counter(monomial).values())
    )


def monomials(word: list[Factor], size: int) -> int:
    """How many monomials the expansion has at most."""
    degrees = Counter(name for name, *_ in word).values()
    return math.prod(math.comb(degree + size**2 - 1, degree) for degree in degrees)


def symbolic(word: list[Factor], run: str) -> moments.Expression:
    """The word with matrices of names that no other run has, so that the engine remembers nothing
    of them.
    """
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
    rows = [
        [
            "word",
            "factors",
            "pairings",
            "specjax, s",
            "enumeration, s",
            "expansion, s",
            "terms",
            "peak, MB",
        ]
    ]
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
            label = f"tr(P Pᵀ)^{power}, {depth} layer{'s' * (depth > 1)}"
            others = ["-", "-"]
            if count <= options.most:
                start = perf_counter()
                wanted = enumerated(word)
                others[0] = f"{perf_counter() - start:.4f}"
                assert found == wanted, f"{label}: {found} is not {wanted}"
            if monomials(word, SIZE) <= options.most:
                start = perf_counter()
                number = expanded(word, SIZE)
                others[1] = f"{perf_counter() - start:.4f}"
                assert found.evaluate(dict.fromkeys(found.names, SIZE)) == number, (
                    f"{label}: {found} is not {number}"
                )
            rows.append(
                [
                    label,
                    str(len(word)),
                    str(count),
                    f"{ours:.4f}",
                    *others,
                    str(len(found.terms)),
                    f"{peak:.1f}",
                ]
            )
    print(f"all agree wherever there are at most {options.most} pairings, or monomials\n")
    print(table(rows))


if __name__ == "__main__":
    main()
