"""Figures of rounds that alternated: medians, spreads, ratios round by round, and the table that shows them."""
import json


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def quartiles(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4 if len(ordered) > 1 else 0]


def of(rounds, what):
    return [one[what] for one in rounds]


class Ratio:
    """One thing beside another in the same rounds: the median of the rounds' ratios, and their quartiles."""

    def __init__(self, ours, theirs):
        each = [a / b for a, b in zip(ours, theirs) if b]
        self.median = median(each)
        self.low, self.high = quartiles(each)

    def __str__(self):
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def us(nanoseconds):
    value = nanoseconds / 1000
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def spread(rounds, what):
    """The median of the rounds, and how far apart their quartiles are."""
    low, high = quartiles(of(rounds, what))
    return f"{us(median(of(rounds, what)))} ({us(low)} to {us(high)})"


def rate(rounds):
    low, high = quartiles(of(rounds, "rate"))
    return f"{median(of(rounds, 'rate')):,.0f} ({low:,.0f} to {high:,.0f})"


class Table:
    """Lines of a section under its heading, as Markdown; keeps which bars were met."""

    def __init__(self, name, title, columns):
        self.name = name
        self.title = title
        self.columns = columns
        self.lines = []
        self.notes = []
        self.bars = []
        self.data = {}

    def add(self, *cells):
        assert len(cells) == len(self.columns), cells
        self.lines.append([str(cell) for cell in cells])

    def note(self, text):
        self.notes.append(text)

    def bar(self, what, value, most=None, least=None):
        """Holds a figure to its bar."""
        good = (most is None or value <= most) and (least is None or value >= least)
        bound = f"at most {most:g}" if most is not None else f"at least {least:g}"
        self.bars.append((what, value, bound, good))
        return good

    def markdown(self):
        rows = [self.columns, ["---"] * len(self.columns), *self.lines]
        parts = [f"### {self.title}", "", *("| " + " | ".join(row) + " |" for row in rows)]
        if self.notes:
            parts += ["", *self.notes]
        if self.bars:
            parts += ["", "| must | is | bound | |", "|---|---|---|---|"]
            parts += [f"| {what} | {value:.3g} | {bound} | {'met' if good else '**missed**'} |"
                      for what, value, bound, good in self.bars]
        return "\n".join(parts) + "\n"

    def save(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.md").write_text(self.markdown(), encoding="utf-8")
        (folder / f"{self.name}.json").write_text(
            json.dumps({"title": self.title, "columns": self.columns, "lines": self.lines, "notes": self.notes,
                        "bars": self.bars, "data": self.data}, indent=1), encoding="utf-8")
