"""A measured cell: the JSON line that flashinfer.py writes, read back, and the quantities that follow from it."""

import json

import attention_cell

OFF, AUTO, INVARIANT = "headwater_off", "headwater_auto", "headwater_invariant"
LAYERS = 32  # that share one plan


class Line:
    def __init__(self, entry, call=None):
        self.entry, self.call = entry, call or {}
        self.cell = attention_cell.Cell(**entry["cell"])
        self.arms = entry["arms"]

    def us(self, arm):
        """The time of an arm that ran and was right, else None."""
        fields = self.arms.get(arm, {})
        return None if fields.get("faults") else fields.get("us")

    def best(self, *prefixes):
        """The fastest right arm whose name begins so, else None."""
        names = [name for name in self.arms if name.startswith(prefixes) and self.us(name)]
        return min(names, key=self.us, default=None)

    def best_us(self, *prefixes):
        return self.us(self.best(*prefixes))

    def ratio(self, slower, faster):
        """Of two times, None where one is missing."""
        return slower / faster if slower and faster else None

    @property
    def quoted(self):
        return any(fields.get("quoted") for fields in self.arms.values())

    @property
    def complete(self):
        """Both sides of the comparison were tried."""
        return self.best("flat") is not None and OFF in self.arms and AUTO in self.arms

    @property
    def read_us(self):
        return self.entry["read_floor"].get("us")

    @property
    def limit_us(self):
        return max(self.read_us, self.cell.matrix_us) if self.read_us else None

    @property
    def peer_over_auto(self):
        """FlashInfer's best arm of all over ours."""
        return self.ratio(self.best_us("flat", "cascade"), self.us(AUTO))

    @property
    def flat_over_off(self):
        return self.ratio(self.best_us("flat"), self.us(OFF))

    @property
    def over_limit(self):
        return self.ratio(self.us(AUTO), self.limit_us)

    @property
    def run_tflop_per_s(self):
        """Work on the shared run over the time of the whole cell: the run itself is not slower."""
        us = self.us(AUTO)
        return self.cell.flop(self.cell.shared) / us / 1e6 if us else None

    @property
    def step_auto_over_off(self):
        """Of one layer with its share of the plan."""
        steps = [self.us(arm) and self.us(arm) + self.arms[arm].get("plan_us", 0) / LAYERS for arm in (AUTO, OFF)]
        return self.ratio(*steps)

    @property
    def path(self):
        return self.arms.get(AUTO, {}).get("outcome", {}).get("path")

    @property
    def rel_err(self):
        """The largest of our arms."""
        return max((self.arms[arm].get("rel_err", 0) for arm in self.arms if arm.startswith("headwater")), default=None)

    def own_faults(self):
        return [f"{arm}: {fault}" for arm, fields in self.arms.items() if arm.startswith("headwater")
                for fault in fields["faults"]] + [f"read floor: {fault}"
                                                  for fault in self.entry["read_floor"].get("faults", [])]

    def text(self):
        """One line for a person."""
        parts = []
        for label, arm in (("flat", self.best("flat")), ("cascade", self.best("cascade")), ("off", OFF), ("auto", AUTO),
                           ("invariant", INVARIANT)):
            if self.us(arm):
                kind = f" {arm.partition('_')[2]}" if arm.startswith(("flat", "cascade")) else ""
                parts.append(f"{label} {self.us(arm):.1f}{kind}")
        if self.path:
            parts.append(f"path {self.path}")
        for label, value, digits in (("FlashInfer/auto", self.peer_over_auto, 2), ("flat/off", self.flat_over_off, 2),
                                     ("limit", self.limit_us, 1), ("auto/limit", self.over_limit, 2),
                                     ("plan", self.arms.get(AUTO, {}).get("plan_us"), 1)):
            if value is not None:
                parts.append(f"{label} {value:.{digits}f}")
        if self.rel_err is not None:
            parts.append(f"err {self.rel_err:.1e}")
        text = f"{self.cell.name}: {', '.join(parts)}{' (quoted)' if self.quoted else ''}"
        return "\n".join([text, *(f"  WRONG {fault}" for fault in self.own_faults())])


def read(paths, layout, keep):
    """The last line of each cell that `keep` accepts, in the order of their first; a line knows its call."""
    lines = {}
    for path in paths:
        call = {}
        with open(path, encoding="utf-8") as file:
            for text in file:
                entry = json.loads(text)
                if entry.get("call"):
                    call = entry
                elif "cell" in entry and entry["layout"] == layout:
                    line = Line(entry, call)
                    if keep(line):
                        lines[line.cell.name] = line
    return list(lines.values())
