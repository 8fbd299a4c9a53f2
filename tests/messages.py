"""The messages as proto/messages.h declares them and as PROTOCOL.md lists them."""
import re
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
KINDS = {"BOOL": "bool", "INT": "int", "UINT": "uint", "REAL": "real", "BYTES": "bytes", "PROBLEM": "problem", "PROBLEMS": "list of problem",
         "CONFIG": "config"}


def sizes():
    """Names of sizes, from the enums of the headers."""
    found = {}
    for header in ("value.h", "messages.h", "error.h", "reader.h"):
        for name, value in re.findall(r"\b(FT_\w+)\s*=\s*(\d+)\b", (TOP / "proto" / header).read_text()):
            found[name] = int(value)
    return found


def declared():
    """Of each message its members in order: (name, type, required). A list or a map has the type None."""
    known = sizes()
    text = (TOP / "proto" / "messages.h").read_text().replace("\\\n", "\n")
    lists = {name: body for name, body in re.findall(r"#define (FT_\w+)\(F\)(.*?)\nFT_DECLARE", text, re.S)}
    messages = {}
    for tag, name in re.findall(r"FT_DECLARE_MESSAGE\((\w+), (FT_\w+)\)", text):
        members = []
        for kind, member, size, need in re.findall(r"F\((\w+),\s*(\w+),\s*(\w+),\s*(FT_\w+)\)", lists[name]):
            if kind == "TEXT":
                shown = f"text {int(size if size.isdigit() else known[size]) - 1}"
            else:
                shown = KINDS.get(kind)
            members.append((member, shown, need == "FT_REQUIRED"))
        messages[tag] = members
    return messages


def documented(text):
    """The same, from the last section of PROTOCOL.md."""
    block = re.search(r"```members\n(.*?)```", text, re.S)[1]
    messages = {}
    for entry in re.sub(r"\n +", " ", block).strip().split("\n"):
        tag, _, rest = entry.partition(":")
        members = []
        for part in rest.split(","):
            name, shown = part.split(maxsplit=1)
            members.append((name, shown.rstrip("!").strip(), shown.endswith("!")))
        messages[tag] = members
    return messages
