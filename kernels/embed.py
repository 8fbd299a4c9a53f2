#!/usr/bin/env python3
"""Write device sources into a C header, as arrays of characters: embed.py OUT NAME=FILE+FILE..."""
import sys

with open(sys.argv[1], "w", encoding="utf-8") as out:
    for pair in sys.argv[2:]:
        name, paths = pair.split("=", 1)
        data = b""
        for path in paths.split("+"):
            with open(path, "rb") as source:
                data += source.read()
        data += b"\0"
        out.write(f"static const char {name}[] = {{\n")
        for at in range(0, len(data), 20):
            out.write("        " + ", ".join(str(byte) for byte in data[at : at + 20]) + ",\n")
        out.write("};\n")
