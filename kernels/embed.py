#!/usr/bin/env python3
"""Write device sources into a C header, as arrays of characters: embed.py OUT NAME= FILE... [NAME= FILE...]...

An array has its files one behind the other."""
import sys

arrays = []
for word in sys.argv[2:]:
    if word.endswith("="):
        arrays.append((word[:-1], bytearray()))
        continue
    with open(word, "rb") as source:
        arrays[-1][1].extend(source.read())
with open(sys.argv[1], "w", encoding="utf-8") as out:
    for name, data in arrays:
        data += b"\0"
        out.write(f"static const char {name}[] = {{\n")
        for at in range(0, len(data), 20):
            out.write("        " + ", ".join(str(byte) for byte in data[at : at + 20]) + ",\n")
        out.write("};\n")
