"""Holds what flytunectl --json prints to client/JSON.md."""
import json
import re
from pathlib import Path

PAGE = (Path(__file__).resolve().parents[2] / "client" / "JSON.md").read_text()
DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def is_count(value):
    return type(value) is int and value >= 0


PLAIN = {
    "text": lambda value: isinstance(value, str),
    "count": is_count,
    "integer": lambda value: type(value) is int,
    "real": lambda value: type(value) is float,
    "bool": lambda value: isinstance(value, bool),
    "date": lambda value: isinstance(value, str) and DATE.fullmatch(value),
    "problem": lambda value: isinstance(value, dict) and value and all(type(one) in (int, str) for one in value.values()),
    "value": lambda value: type(value) in (int, str),
    "config": lambda value: isinstance(value, dict) and value and all(type(one) in (int, str) for one in value.values())
              or isinstance(value, str) and value,
}


def rows(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()
            if line.startswith("|") and not line.startswith("|--")][1:]


def read_commands():
    """The shapes that each command may print."""
    table = PAGE[PAGE.index("| command |"):PAGE.index("What fails")]
    return {command: re.findall(r"`([^`]+)`", cells[1]) for cells in rows(table)
            for command in re.findall(r"`([^`]+)`", cells[0])}


def read_shapes():
    """Of each shape its members: {"jobs.queued": ("count", may be null)}."""
    shapes = {}
    for name, text in re.findall(r"^## (\w+)$(.*?)(?=^## |\Z)", PAGE, re.M | re.S):
        shape = shapes[name] = {}
        for member, kind, _ in rows(text):
            word = re.search(r"`([^`]+)`", member).group(1)
            if member.startswith("all of"):
                for inner, (its, null) in shapes[word].items():
                    shape[inner] = (its, null or inner not in ("kernel", "problem", "reason"))
            else:
                shape[word] = (kind.split("`")[1], kind.endswith("or null"))
    return shapes


COMMANDS = read_commands()
SHAPES = read_shapes()


def faults(kind, value, where="", seen=None):
    """What is wrong with a value of a kind; `seen` gets every (shape, member) that was not null."""
    if kind.startswith("["):
        if not isinstance(value, list):
            return [f"{where} is no array"]
        return [fault for i, one in enumerate(value) for fault in faults(kind[1:-1], one, f"{where}[{i}]", seen)]
    if kind in PLAIN:
        return [] if PLAIN[kind](value) else [f"{where} is {value!r}, no {kind}"]
    if not isinstance(value, dict):
        return [f"{where} is {value!r}, no {kind}"]
    shape, found, left = SHAPES[kind], [], dict(value)
    for member in {name.split(".")[0] for name in shape if "." in name}:
        inner = left.pop(member, None)
        left.update({f"{member}.{name}": one for name, one in inner.items()} if isinstance(inner, dict) else {})
    for member in sorted(set(shape) | set(left)):
        place = f"{where}.{member}".lstrip(".")
        if member not in left:
            found.append(f"{place} is missing")
        elif member not in shape:
            found.append(f"{place} is not in JSON.md")
        elif left[member] is not None or not shape[member][1]:
            if seen is not None:
                seen.add((kind, member))
            found += faults(shape[member][0], left[member], place, seen)
    return found


def command_of(words):
    """As the page calls it: with the second word of a command that has several."""
    return next((name for name in (" ".join(words[:2]), *words[:1]) if name in COMMANDS), "")


def hold(words, output, seen=None):
    """Checks what one run printed; what is no command's own output is passed over."""
    words = [str(word) for word in words]
    command = command_of(words)
    if command not in COMMANDS or "--help" in words or (command == "export" and "-" in words) or not output:
        return
    documents = [json.loads(line) for line in output.splitlines()] if command == "watch" else [json.loads(output)]
    for document in documents:
        if isinstance(document, dict) and "error" in document:
            kinds = ["failure"]
        else:
            kinds = [kind for kind in COMMANDS[command] if kind.startswith("[") == isinstance(document, list)]
        assert kinds, f"{command} prints {output}"
        wrong = faults(kinds[0], document, "", seen)
        assert not wrong, f"{' '.join(words)}: {'; '.join(wrong)}\n{output}"
