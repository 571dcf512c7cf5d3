# %% [markdown]
# # Reading the ledgers
#
# *Which statements of these papers hold, which do not, and what decided it?* Every numbered
# statement is a row of a ledger, and the records of runs are in the package, so nothing is
# computed here.

# %%
from collections import Counter
from textwrap import fill

import matplotlib.pyplot as plt

from specjax.experiments.ledgers import PAPERS, ledger
from specjax.report import ledger_status, records

recorded = list(records.load_all().values())
found = {paper: ledger_status.rows(paper, recorded) for paper in PAPERS}
counts = {paper: Counter(row.status for row in rows) for paper, rows in found.items()}
for paper, of_status in counts.items():
    print(f"{paper:20} {dict(of_status)}")

# %%
statuses = ("holds", "corrected", "false", "depends", "open", "not judged")
colors = ("#009E73", "#56B4E9", "#D55E00", "#E69F00", "#CC79A7", "#BBBBBB")
figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
left = [0] * len(counts)
for status, color in zip(statuses, colors, strict=True):
    widths = [of_status[status] for of_status in counts.values()]
    axes.barh(list(counts), widths, left=left, color=color, label=status)
    left = [a + b for a, b in zip(left, widths, strict=True)]
axes.set_xlabel("rows of the ledger")
axes.invert_yaxis()
axes.legend(
    ncols=6, loc="upper center", bbox_to_anchor=(0.4, 1.15), fontsize="small", frameon=False
)
plt.show()

# %% [markdown]
# Two false rows of each paper with the statement that decided, and one finding in full.

# %%
for paper, rows in found.items():
    for row in [row for row in rows if row.status == "false"][:2]:
        print(f"{paper}, {row.row.id}: {row.decided[0]}")

print(fill(f"{row.row.where}: {row.sentence}", 90))

# %% [markdown]
# Rows that are not judged say why.

# %%
reasons = Counter(
    row.because.split(":")[0].split(",")[0]
    for paper in PAPERS
    for row in ledger(paper).rows.values()
    if row.because
)
for reason, count in reasons.most_common(6):
    print(f"{count:4} {reason}")
