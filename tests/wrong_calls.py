"""Tables of wrong calls: an expression, and indented below it the error that it raises.

    polar(vector)
        polar needs matrices in the last two axes, got shape (3,).

Long lines of both go on in the next one. The test evaluates the expression among its own names.
"""


def wrong_calls(table):
    """Each expression of a table with its error, both in one line."""
    rows = []
    for line in table.strip().split("\n"):
        if not line.startswith(" ") and (not rows or rows[-1][1]):
            rows.append(["", ""])
        place = int(line.startswith(" "))
        rows[-1][place] = f"{rows[-1][place]} {line.strip()}".strip()
    return [tuple(row) for row in rows]
