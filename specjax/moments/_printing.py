"""Text and LaTeX of expressions: traces and products of matrices, or sums over indices."""

from collections.abc import Mapping, Sequence

from specjax.moments._graph import Component, Graph, Node, Size
from specjax.moments._polynomial import Polynomial, joined, monomial_text, name_text

_AXES = "ijklmnpqrstuvwxyz"
_BOUND = "abcefgh"


def expression_text(
    shape: Sequence[Size], terms: Mapping[Graph, Polynomial], latex: bool = False
) -> str:
    """Write the sum term by term; without indices if all terms are products of matrices."""
    matrices = len(shape) == 2 and all(_is_matrix(graph) for graph in terms)
    if len(terms) == 1 and not matrices and not shape:
        ((graph, coefficient),) = terms.items()
        return _term(coefficient, _graph_text(graph, matrices, latex), latex)
    written = [
        _term(coefficient, _graph_text(graph, matrices, latex), latex)
        for graph, coefficient in sorted(terms.items(), key=lambda item: (len(item[0]), item[0]))
    ]
    return " + ".join(written).replace("+ -", "- ") or "0"


def _term(coefficient: Polynomial, factor: str, latex: bool) -> str:
    if not factor:
        return coefficient.text(latex)
    if len(coefficient.terms) > 1:
        return f"({coefficient.text(latex)}) {factor}"
    ((monomial, number),) = coefficient.terms.items()
    return joined(
        [(number, " ".join(part for part in (monomial_text(monomial, latex), factor) if part))],
        latex,
    )


def _is_matrix(graph: Graph) -> bool:
    """Whether the two axes are the ends of one product of matrices and the rest are traces."""
    open_ones = [
        component for component in graph if any(vertex.slots for vertex in component.vertices)
    ]
    return (
        len(open_ones) == 1
        and _word(open_ones[0], False) is not None
        and _ends(open_ones[0]) is not None
    )


def _graph_text(graph: Graph, matrices: bool, latex: bool) -> str:
    """Write the components, equal ones as a power, scalars before those with axes."""
    scalars = [
        component for component in graph if not any(vertex.slots for vertex in component.vertices)
    ]
    opened = [component for component in graph if component not in scalars]
    factors = []
    for component in dict.fromkeys(scalars):
        power, text = scalars.count(component), _component_text(component, latex)
        factors.append(text if power == 1 else f"{text}^{power}")
    factors += [
        (_word(c, latex) if matrices else None) or _component_text(c, latex) for c in opened
    ]
    return " ".join(factor for factor in factors if factor)


def _component_text(component: Component, latex: bool) -> str:
    word, ends = _word(component, latex), _ends(component)
    if word is None:
        return _indexed(component, latex)
    if ends is None:
        return f"\\mathrm{{tr}}({word})" if latex else f"tr({word})"
    places = (
        "".join(_AXES[slot] for slot in ends) if latex else ",".join(_AXES[slot] for slot in ends)
    )
    if not component.nodes:
        return f"\\delta_{{{places}}}" if latex else f"I[{places}]"
    several = len(component.nodes) > 1
    return (f"({word})" if several else word) + (f"_{{{places}}}" if latex else f"[{places}]")


def _ends(component: Component) -> tuple[int, int] | None:
    """The two axes of a product of matrices, or None for a trace."""
    slots = sorted(slot for vertex in component.vertices for slot in vertex.slots)
    return (slots[0], slots[1]) if len(slots) == 2 else None


def _word(component: Component, latex: bool) -> str | None:
    """The product of matrices along a ring or path, from the first axis; None for others."""
    at: dict[int, list[int]] = {v: [] for v in range(len(component.vertices))}
    for n, (_, legs) in enumerate(component.nodes):
        if len(legs) != 2:
            return None
        for leg in legs:
            at[leg].append(n)
    for v, vertex in enumerate(component.vertices):
        if len(at[v]) + len(vertex.slots) != 2 or vertex.pin >= 0:
            return None
    slots = sorted(
        (slot, v) for v, vertex in enumerate(component.vertices) for slot in vertex.slots
    )
    if len(slots) not in (0, 2):
        return None
    if not component.nodes:
        return "I"
    start = slots[0][1] if slots else component.nodes[0][1][0]
    node = at[start][0] if slots else 0
    factors, here = [], start
    for _ in component.nodes:
        symbol, (row, column) = component.nodes[node]
        name = name_text(symbol.name, latex)
        turned = here != row and not symbol.symmetric
        factors.append(name if not turned else f"{name}^{{\\top}}" if latex else f"{name}ᵀ")
        here = row if here == column and row != column else column if row != column else here
        node = next((n for n in at[here] if n != node), node)
    return " ".join(factors)


def _indexed(component: Component, latex: bool) -> str:
    """Write a sum over indices of entries, with letters for axes and numbers for held indices."""
    letters: list[str] = []
    bound = 0
    for vertex in component.vertices:
        if vertex.pin >= 0:
            letters.append(str(vertex.pin))
        elif vertex.slots:
            letters.append(_AXES[vertex.slots[0]])
        else:
            letters.append(_BOUND[bound % len(_BOUND)] + "'" * (bound // len(_BOUND)))
            bound += 1
    summed = [
        letter for letter, vertex in zip(letters, component.vertices, strict=True) if vertex.bound
    ]
    factors = [_entry(node, letters, latex) for node in component.nodes]
    for vertex, letter in zip(component.vertices, letters, strict=True):
        others = vertex.slots if vertex.pin >= 0 else vertex.slots[1:]
        factors += [_delta(letter, _AXES[slot], latex) for slot in others]
    powers = [
        f if factors.count(f) == 1 else f"{f}^{factors.count(f)}" for f in dict.fromkeys(factors)
    ]
    if not summed:
        return " ".join(powers)
    over = f"\\sum_{{{' '.join(summed)}}}" if latex else f"Σ_{''.join(summed)}"
    return f"({over} {' '.join(powers)})"


def _entry(node: Node, letters: Sequence[str], latex: bool) -> str:
    symbol, legs = node
    name, places = name_text(symbol.name, latex), [letters[leg] for leg in legs]
    if not places:
        return name
    return f"{name}_{{{' '.join(places)}}}" if latex else f"{name}[{','.join(places)}]"


def _delta(a: str, b: str, latex: bool) -> str:
    return f"\\delta_{{{a} {b}}}" if latex else f"I[{a},{b}]"
