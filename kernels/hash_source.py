#!/usr/bin/env python3
"""Writes a header that defines NAME as the 128-bit hash of some source files, as they are compiled.

    hash_source.py NAME OUTPUT FILE...
"""

import hashlib
import sys


def main():
    name, output, *files = sys.argv[1:]
    digest = hashlib.sha256()
    for path in files:
        with open(path, "rb") as source:
            content = source.read()
        digest.update(b"%d\n" % len(content))
        digest.update(content)
    with open(output, "w", encoding="ascii") as header:
        header.write(f'#define {name} "{digest.hexdigest()[:32]}"\n')


if __name__ == "__main__":
    main()
