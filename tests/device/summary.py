#!/usr/bin/env python3
"""Prints what the build matrix left in build/reports/device/ as tables: for each compiler, target and type what the default
takes, what spills, and which knob changed the machine code.

    tests/device/summary.py [FOLDER]
"""
import json
import sys
from pathlib import Path

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else "build/reports/device")


def built():
    """(compiler, kernel, target, type) -> [(n, report)], n ascending."""
    found = {}
    for path in FOLDER.glob("*rtc-*.json"):
        compiler, kernel, target, dtype, n = path.stem.split("-")
        found.setdefault((compiler, kernel, target, dtype), []).append((int(n), json.loads(path.read_text())))
    return {name: sorted(reports, key=lambda pair: pair[0]) for name, reports in sorted(found.items())}


def line(*cells):
    print("| " + " | ".join(map(str, cells)) + " |")


def print_builds(found):
    line("compiler, kernel, target, type", "n", "configs", "codes", "spill", "default: threads", "registers", "spills")
    line(*["---"] * 8)
    for (compiler, kernel, target, dtype), reports in found.items():
        for n, report in reports:
            configs = report["configs"]
            default = next(config for config in configs if config["default"])
            line(f"{compiler} {kernel} {target} {dtype}", n, len(configs), len({config["code"] for config in configs}),
                 sum(config["spills"] > 0 for config in configs), default["config"]["BLOCK_THREADS"], default["registers"],
                 default["spills"])


def print_knobs(found):
    knobs = list(dict.fromkeys(knob for reports in found.values() for _, report in reports for knob in report["knobs"]))
    line("compiler, kernel, target, type, n", *knobs)
    line(*["---"] * (len(knobs) + 1))
    for (compiler, kernel, target, dtype), reports in found.items():
        for n, report in reports:
            cells = []
            for knob in knobs:
                counts = report["knobs"].get(knob)
                cells.append(f"{counts['other']} of {counts['same'] + counts['other']}" if counts else "")
            line(f"{compiler} {kernel} {target} {dtype} {n}", *cells)


def print_clang():
    line("target", "n", "codes of 13 configs", "the same code")
    line(*["---"] * 4)
    for path in sorted(FOLDER.glob("clang-*.json"), key=lambda p: (p.stem.split("-")[1], int(p.stem.split("-")[2]))):
        codes = json.loads(path.read_text())
        groups = []
        for group in codes:
            waves = {}
            for config, *_ in group:
                if config != "default":
                    waves.setdefault(config["BLOCK_THREADS"], []).append(str(config["waves_per_eu"]))
            groups += [f"{block}: {' = '.join(values)}" for block, values in waves.items() if len(values) > 1]
        line(path.stem.split("-")[1], path.stem.split("-")[2], len(codes), "waves_per_eu at " + "; ".join(groups) if groups else "")


def main():
    found = built()
    print_builds(found)
    print("\nPairs of configs that differ in one knob alone: how many of them have other machine code.\n")
    print_knobs(found)
    print("\nclang 19, the plain blocks and the default, bf16:\n")
    print_clang()


if __name__ == "__main__":
    main()
