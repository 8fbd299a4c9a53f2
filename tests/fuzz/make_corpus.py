#!/usr/bin/env python3
"""Writes the seeds of the fuzz corpus: one small file for each kind of message, good and bad.

Inputs that a fuzzer found are kept beside them under other names; this leaves those alone.
"""
import json
import os
import struct
import sys

import msgpack

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")
PROBLEM = {"m": 64, "n": 4096, "dtype": "bf16"}
CONFIG = {"BLOCK_THREADS": 256, "waves_per_eu": 0}


def keep(target, name, body, piece=255):
    folder = os.path.join(HERE, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write((bytes([piece]) if piece is not None else b"") + body)


def request(method, params, number=1):
    return msgpack.packb([0, number, method, params])


def response(result, number=1):
    return msgpack.packb([1, number, None, result])


def notice(method, params):
    return msgpack.packb([2, method, params])


def readers():
    every = [None, True, False, 0, 127, 128, 65535, 2**32, 2**64 - 1, -1, -33, -(2**15), -(2**63), 1.5,
             "text", "x" * 40, b"bytes", [1, [2, [3]]], {"a": {"b": []}}, msgpack.ExtType(5, b"1234")]
    for index, value in enumerate(every):
        keep("reader", f"value-{index:02}", msgpack.packb(value), index % 5)
    keep("reader", "all", msgpack.packb(every), 3)
    keep("reader", "problem", msgpack.packb(PROBLEM), 0)
    keep("reader", "config", msgpack.packb(CONFIG), 0)
    keep("reader", "huge-array", b"\xdd\xff\xff\xff\xff")
    keep("reader", "huge-map", b"\xdf\xff\xff\xff\xff")
    keep("reader", "huge-text", b"\xdb\xff\xff\xff\xff")
    keep("reader", "deep", b"\x91" * 40)
    keep("reader", "deep-empty", b"\x91" * 5 + b"\x90")
    keep("reader", "counts-level-by-level", b"\xdc\x00\x20\xdc\x00\x20\xdc\x00\x20")
    keep("reader", "never-used", b"\x92\x00\xc1")
    keep("reader", "nan", b"\xcb\x7f\xf8\0\0\0\0\0\0")
    keep("reader", "infinity", b"\xca\x7f\x80\0\0")


def requests():
    job = {"job": 3}
    good = {
        "hello": {"min": 2, "max": 2, "name": "flytunectl/0.2"},
        "lookup": {"kernel": "rmsnorm", "problem": PROBLEM, "device": "cpu:0", "generation": "u:1", "tune_on_miss": True},
        "tune": {"kernel": "rmsnorm", "problem": PROBLEM, "force": True, "priority": -5, "budget_ns": 10**9},
        "wait": job, "cancel": job, "jobs": {}, "watch": job,
        "trials": {"kernel": "rmsnorm", "problem": PROBLEM}, "status": {}, "devices": None, "no_such": {},
        "lookup_many": {"lookups": [{"kernel": "rmsnorm", "problem": PROBLEM}] * 3},
        "pin": {"kernel": "rmsnorm", "problem": PROBLEM, "device": "cpu:0", "config": CONFIG},
        "forget": {"kernel": "rmsnorm", "problem": PROBLEM}, "misses": {"most": 10}, "export": {"generation": "u:1"},
        "import_rows": {"rows": [
            {"kernel": "rmsnorm", "problem": PROBLEM, "device": "arch=sm_90", "config": CONFIG, "identity": "compiler=x",
             "origin": "0f8fad5b-d9cb-469f-a165-70867728950e", "time_ps": 81200000, "default_time_ps": 90500000},
            {"kernel": "rmsnorm", "problem": PROBLEM, "device": "arch=\x1b[2J", "pin": CONFIG, "pinned_at_ns": 2**63}]},
        "subscribe": {"lookups": [{"kernel": "rmsnorm", "problem": PROBLEM}] * 2, "seen": [0, 2**64 - 1]},
    }
    for method, params in good.items():
        keep("request", method, request(method, params))
    keep("request", "pipelined", b"".join(request(method, params) for method, params in good.items()), 6)
    lookup = good["lookup"]
    bad = {
        "kernel-missing": {"problem": PROBLEM},
        "kernel-number": {**lookup, "kernel": 7},
        "kernel-nul": {**lookup, "kernel": "rms\0norm"},
        "kernel-long": {**lookup, "kernel": "k" * 64},
        "problem-list": {**lookup, "problem": []},
        "problem-real": {**lookup, "problem": {"m": 1.5}},
        "problem-wide": {**lookup, "problem": {"m": 2**64 - 1}},
        "problem-many": {**lookup, "problem": {f"f{i}": i for i in range(17)}},
        "problem-shell": {**lookup, "problem": {"dtype": "$(reboot)"}},
        "problem-name": {**lookup, "problem": {"../m": 1}},
        "flag-number": {**lookup, "tune_on_miss": 1},
        "unknown-member": {**lookup, "later": [1, {"a": 2}]},
        "nil-members": {**lookup, "device": None},
    }
    for name, params in bad.items():
        keep("request", name, request("lookup", params))
    keep("request", "repeated-member", b"\x94\x00\x01\xa4wait\x82\xa3job\x01\xa3job\x02")
    keep("request", "repeated-field", b"\x94\x00\x01\xa6lookup\x82\xa6kernel\xa1k\xa7problem\x82\xa1m\x01\xa1m\x02")
    keep("request", "params-list", request("lookup", [1, 2]))
    keep("request", "id-wide", request("status", {}, 2**32))
    keep("request", "half", request("lookup", lookup)[:-9])
    keep("request", "response", response({}))
    keep("request", "failure", msgpack.packb([1, 1, {"code": "busy", "message": "full"}, None]))
    keep("request", "method-nul", request("look\0up", lookup))


def runners():
    hello = {
        "protocol": 2, "runner": "example 1", "identity": "compiler=1", "files": ["/usr/lib/libexample.so"],
        "devices": [{"id": "cpu:0", "kind": "cpu", "name": "CPU", "arch": "x86-64-v3", "identity": "arch=x86-64-v3",
                     "units": 4, "memory": 2**33, "cache": 2**25}],
        "kernels": [{"name": "rmsnorm", "revision": 1, "source": "0" * 32, "scale": "m",
                     "fields": [{"name": "m", "type": "int", "min": 1, "max": 2**31},
                                {"name": "dtype", "type": "text", "choices": ["f32", "bf16"], "has_default": True,
                                 "default_text": "f32"}],
                     "knobs": [{"name": "BLOCK_THREADS", "values": [128, 256], "changes_bits": True}],
                     "fallback": CONFIG}],
    }
    keep("runner", "hello", response(hello))
    keep("runner", "space", response({"members": [{"config": CONFIG}, {"config": CONFIG, "pruned": "idle"}], "default_index": 0}))
    keep("runner", "sweep-reply", response({"outcome": "decided", "winner": 1, "rounds": 9, "conclusive": True}))
    keep("runner", "failure", msgpack.packb([1, 2, {"code": "runner", "message": "no", "field": "m", "value": "0", "bound": "1"}, None]))
    keep("runner", "sweep", request("sweep", {
        "job": 1, "kernel": "rmsnorm", "problem": PROBLEM, "device": "cpu:0", "default_index": 0, "seed": 7, "budget_ns": 10**10,
        "band_ppm": 5000, "min_rounds": 7, "max_rounds": 60,
        "members": [{"config": CONFIG, "code": "ab", "verified": True, "samples": [81000, 0, 82000]},
                    {"config": CONFIG, "status": "wrong"}]}))
    keep("runner", "space-request", request("space", {"kernel": "rmsnorm", "problem": PROBLEM, "device": "cpu:0"}))
    keep("runner", "hello-request", request("hello", {"min": 2, "max": 2, "code_dir": "/x", "memory_cap": 1}))
    keep("runner", "cancel", notice("cancel", {"job": 1}))
    event = {"job": 1, "trial": 0}
    events = [{"event": "begin", "stage": "build"}, {"event": "built", "code": "ab", "registers": 40, "build_ns": 5},
              {"event": "same_code", "other": 2}, {"event": "verified", "error": 0.001},
              {"event": "out", "status": "failed", "reason": "µ…"}, {"event": "stage", "stage": "measure"},
              {"event": "round", "round": 1, "samples": [[0, 81000], [1, 90000]]}, {"event": "dropped", "round": 7}]
    stream = b"".join(notice("event", {**event, **one}) for one in events)
    keep("runner", "events", stream, 10)
    keep("runner", "event-nan", notice("event", {**event, "event": "verified", "error": float("nan")}))
    keep("runner", "event-cut-text", b"\x93\x02\xa5event\x84\xa3job\x01\xa5trial\x00\xa5event\xa3out\xa6reason\xa2\xe2\x80")
    keep("runner", "job", response({"job": 1, "kernel": "rmsnorm", "problem": PROBLEM, "device": "cpu:0", "state": "done",
                                    "answer": {"kernel": "rmsnorm", "problem": PROBLEM, "config": CONFIG,
                                               "source": "tuned", "generation": 4}}))
    keep("runner", "trials", response({"kernel": "rmsnorm", "problem": PROBLEM, "device": "cpu:0", "trials": [
        {"config": CONFIG, "status": "ok", "time_ps": 81000000, "error": 0.01},
        {"config": CONFIG, "status": "same_code_as", "same_as": CONFIG}]}))
    keep("runner", "raw-garbage", b"\x94\x01\x01\xc0\x81\xa7members\xdd" + struct.pack(">I", 2**31))


def configs():
    def text(name, *lines):
        keep("config", name, "\n".join((*lines, "")).encode(), piece=None)
    with open(os.path.join(os.path.dirname(HERE), "..", "..", "daemon", "host", "flytuned.conf.in"), encoding="utf-8") as file:
        lines = file.read().splitlines()
    text("empty")
    text("example", *lines)
    # Every key, with the value that stands there for an example.
    text("all", *[line[1:] if line.startswith("#") and not line.startswith("# ") and " = " in line else line
                  for line in lines if not line.startswith("# ")])
    text("comments", "; a", "# b", "[daemon] ; c", "log_level = debug ; d", "", "[queue]", "path=/x")
    text("indented", "[daemon]", "  max_clients = 17", "\tlog_level : info")
    text("unknown-key", "[daemon]", "max_client = 1")
    text("unknown-section", "[demon]", "max_clients = 1")
    text("elsewhere", "[store]", "max_clients = 1")
    text("too-large", "[daemon]", "max_clients = 99999999999999999999")
    text("negative", "[daemon]", "clients_per_user = -1")
    text("seconds", "[queue]", "budget = 1e400", "[runner]", "idle = 0.5", "[deadline]", "build = nan")
    text("devices", "[devices]", "device = cpu hip cuda:1", "memory = 0")
    text("many-devices", "[devices]", "device = " + " ".join(f"cuda:{i}" for i in range(15)))
    text("twice", "[daemon]", "group = a", "group = b", "[daemon]", "group = c")
    text("long-line", "[daemon]", "group = " + "x" * 300)
    text("long-value", "[daemon]", "socket = /" + "x" * 120)
    text("no-section", "group = a")
    text("open-section", "[daemon", "group = a")
    text("no-key", "[daemon]", "= a", "group")
    text("escapes", "[daemon]", "\x1b]0;x\x07 = 1")
    keep("config", "nul", b"[daemon]\ngroup = a\0b\n", piece=None)
    keep("config", "bom", b"\xef\xbb\xbf[daemon]\ngroup = a\n", piece=None)
    keep("config", "returns", b"[daemon]\r\ngroup = a\r\n", piece=None)
    keep("config", "no-end", b"[daemon]\ngroup = a", piece=None)


# Under the hashes that the reader expects.
DEVICES = {"35dbf3e724e8c7add5aad3eb1f231cec": "arch=sm_90 units=132"}
IDENTITIES = {"23d69e9be1952979dc4ed93f953f96b5": "compiler=nvrtc-12.4"}


def imports():
    device, identity = next(iter(DEVICES)), next(iter(IDENTITIES))
    row = {"kernel": "rmsnorm", "problem": PROBLEM, "device": device, "config": CONFIG, "identity": identity,
           "origin": "0f8fad5b-d9cb-469f-a165-70867728950e", "time_ps": 81200000, "default_time_ps": 90500000,
           "tuned_at": "2025-06-01T11:58:12Z"}
    pin = {"kernel": "rmsnorm", "problem": PROBLEM, "device": device, "pin": CONFIG, "pinned_at": "2025-06-01T11:58:12Z"}

    def file(name, *rows, **members):
        head = {"flytune": "answers", "version": 1, "from": {"store": "u", "generation": 7, "at": "2025-06-01T12:00:00Z"},
                "devices": DEVICES, "identities": IDENTITIES, "answers": list(rows), **members}
        keep("import", name, json.dumps({key: value for key, value in head.items() if value is not None}).encode(), piece=None)

    def less(name, **members):
        file(name, {key: value for key, value in {**row, **members}.items() if value is not None})

    file("nothing")
    file("row", row)
    file("pin", pin)
    file("both", {**row, **pin}, {**row, "problem": {"m": -1, "n": 2**63 - 1, "text": "x" * 31}})
    file("many", *[{**row, "problem": {**PROBLEM, "m": m}} for m in range(20)])
    file("version", row, version=2)
    file("version-text", row, version="1")
    file("kind", row, flytune="trials")
    file("no-answers", answers=None)
    file("answers-object", answers={})
    file("no-devices", row, devices=None)
    file("wrong-hash", row, devices={device: "arch=sm_80"})
    file("unknown-member", {**row, "more": 1})
    file("unknown-top", row, more=1)
    file("escapes", {**row, "\x1b[2J\n": 1})
    file("cut-text", {**row, "tuned_at": "µ" * 60})
    file("row-text", "row")
    less("no-kernel", kernel=None)
    less("kernel-long", kernel="x" * 40)
    less("kernel-spaces", kernel="a b")
    less("problem-empty", problem={})
    less("problem-many", problem={f"f{i}": i for i in range(17)})
    less("problem-real", problem={"m": 1.5})
    less("config-many", config={f"k{i}": i for i in range(17)})
    less("config-empty", config={})
    less("config-text", config={"a": "b"})
    less("no-identity", identity=None)
    less("unknown-device", device="0" * 32)
    less("negative-time", time_ps=-1)
    less("huge-time", time_ps=2**63 - 1)
    less("bad-date", tuned_at="2025-02-31T00:00:00Z")
    less("old-date", tuned_at="1969-12-31T23:59:59Z")
    less("late-date", tuned_at="9999-12-31T23:59:59Z")
    less("no-origin", origin="")
    for name, text in (("not-json", b"rmsnorm"), ("cut", b'{"flytune": "answers", "vers'), ("twice", b'{"a": 1, "a": 2}'),
                       ("deep", b"[" * 3000), ("huge-number", b"[1e999999]"), ("array", b"[]"), ("text", b'"x"'),
                       ("bad-utf8", b'{"flytune": "\xff\xfe"}'), ("nul", b'{"flytune": "a\\u0000b"}'), ("nothing-at-all", b"")):
        keep("import", name, text, piece=None)


def models():
    fields = {"m": "=tokens", "n": "=hidden_size | 64 / 2 + 1", "dtype": "=dtype", "kind": "text", "number": 7}
    norm = {"name": "hidden", "kernel": "rmsnorm", "when": "a | 1", "fields": fields}
    family = {"name": "f", "types": ["llama*"], "when": "rms_norm_eps", "norms": [norm]}

    def table(name, *families, **members):
        head = {"flytune": "models", "version": 1, "parts": ["text_config"], "dtypes": {"half": "f16"}, "families": list(families)}
        keep("model", name, json.dumps({**head, **members}).encode(), piece=None)

    table("table", family)
    table("override", {**family, "name": "x"}, family)
    table("refuse", {"name": "f", "refuse": "no \x1b[2J"})
    table("twice", family, family)
    table("version", family, version=2)
    table("unknown", {**family, "\x1b[2J\n": 1})
    for name, formula in (("unfinished", "=a +"), ("deep-formula", "=" + "(" * 40 + "a"), ("large", "=999999999999999999 * 999999999"),
                          ("uneven", "=hidden_size / 3"), ("zero", "=hidden_size / 0"), ("two-lists", "=tokens * 2"), ("bare", "=")):
        table(name, {**family, "norms": [{**norm, "fields": {**fields, "n": formula}}]})
    model = {"model_type": "llama", "a": 4, "b": 64, "dtype": "half"}
    for name, members in (("model", {}), ("part", {"text_config": model, "model_type": "zebra"}), ("escapes", {"model_type": "g\x1b[2J"}),
                          ("negative", {"a": -1}), ("real", {"b": 1.5}), ("dtype", {"dtype": "\x1b[2Jint8"})):
        keep("model", name, json.dumps({**model, **members}).encode(), piece=None)
    for name, text in (("cut", b'{"flytune": "models", "vers'), ("escape-syntax", b"{\x1b[2J}"), ("deep", b"[" * 3000), ("bad-utf8", b'{"flytune": "\xff\xfe"}'),
                       ("nothing-at-all", b"")):
        keep("model", name, text, piece=None)


def expressions():
    numbers = struct.pack("<5q", 7, 4096, 128, 132, 3)
    edges = struct.pack("<5q", 2**63 - 1, -2**63, 0, -1, 2**62 + 1)
    for name, text in (
            ("launch", "ceildiv(m * n, BLOCK) * (dtype in ('f16', 'bf16') ? 2 : 1)"), ("bytes", "2 * m * n * sizeof(dtype) + n * 4"),
            ("rule", "BLOCK <= n and n % BLOCK == 0 or not kind == 'cpu'"), ("word", "n > 1024 ? 'rows' : layout"),
            ("choices", "m > 4 ? m > 5 ? 1 : 2 : n < 3 ? 3 : 4"), ("logs", "log2(pow2ceil(n)) + log2(m) - -BLOCK"),
            ("least", "min(m, n, BLOCK, units, min) - max(m, n)"), ("texts", "dtype != kind and layout == \"\""),
            ("not-in", "not m not in (1, n, BLOCK / units)"), ("conditions", "(m < n) == (n >= BLOCK) != (1 > 2)"),
            ("quotient", "m / units + n % units"), ("product", "m * n * BLOCK"), ("sign", "---m - - -9223372036854775808"),
            ("type", "sizeof(f32) + sizeof('bf16') + sizeof(kind)"), ("chain", "m < n < BLOCK"), ("unknown", "blok * frob(m)"),
            ("mixed", "m + dtype == 'x' ? 1 : 'y'"), ("c-words", "m == 1 && n == 2 || !m"), ("number-large", "9223372036854775808"),
            ("number-hex", "0x10 + 1.5 + 010"), ("unclosed", "dtype == 'f16"), ("escapes", "dtype == '\x1b[2J' @ \x7f"),
            ("utf8", "m \u00e4 + '\u00e4'"), ("deep", "(" * 70 + "m"), ("deep-choice", "m < 1 ? 1 : " * 66 + "2"), ("signs", "-" * 64 + "m"),
            ("many", "m" + " + 1" * 300), ("long", " " * 4096 + "m"), ("most", " " * 4095 + "m"), ("empty", ""), ("space", " \t\r\n")):
        keep("expression", name, text.encode() + b"\0" + numbers, piece=None)
    for name, text in (("overflow", "m + n * BLOCK"), ("zero", "n % BLOCK + m / BLOCK"), ("smallest", "n / units"), ("largest", "pow2ceil(min)"),
                       ("negative", "ceildiv(units, m) + log2(n)"), ("members", "m in (n, BLOCK, 9223372036854775807)")):
        keep("expression", name, text.encode() + b"\0" + edges, piece=None)


def folders():
    grid = {"symbol": "scale", "grid": ["m", 1, "ceildiv(n, BLOCK)"], "block": ["BLOCK"], "shared": "BLOCK * 4", "cluster": [1],
            "arguments": ["x", "y", {"i32": "m * n"}, {"f32": 1.5}, {"f64": "n"}]}
    good = {
        "name": "scale", "help": "y = a x",
        "fields": [{"name": "m", "min": 1, "max": 4096, "scale": True}, {"name": "n", "min": 0, "max": 2**63 - 1, "default": 64},
                   {"name": "dtype", "choices": ["f32", "bf16"], "default": "bf16"}, {"name": "stride", "min": 0, "max": 2**63 - 1, "same_as": "n"}],
        "checks": [{"rule": "stride >= n", "why": "rows may not overlap"}],
        "knobs": [{"name": "BLOCK", "values": [64, 128, 256]}, {"name": "WALK", "values": ["rows", "columns"], "changes_bits": True},
                  {"name": "threads", "values": [1, 2], "kinds": ["cpu"]}],
        "space": [{"rule": "BLOCK <= 2 * n", "why": "too long"}, {"rule": "threads <= units", "why": "no such cores"},
                  {"rule": "WALK == 'rows' or m > 1", "prune": "there is one row"}],
        "default": {"BLOCK": "n >= 128 ? 128 : 64", "WALK": "'rows'", "threads": 1},
        "order": ["threads", "-BLOCK"],
        "buffers": [{"name": "x", "role": "in", "type": "dtype", "rows": "m", "length": "n", "stride": "stride", "fill": "uniform"},
                    {"name": "y", "role": "out", "type": "dtype", "rows": "m", "length": "n", "stride": "stride", "alias": "x"}],
        "sources": {"cpu": {"file": "scale.c", "options": ["fast-math"]}, "hip": "cuda",
                    "cuda": {"file": "scale.cu", "defines": {"BLOCK": "BLOCK", "T": "dtype"}, "options": ["no-fma"]}},
        "launch": {"cpu": [{"symbol": "scale", "grid": ["m", "threads"], "arguments": ["x", "y"]}], "cuda": [grid],
                   "hip": [{name: value for name, value in grid.items() if name != "cluster"}]},
        "reference": {"file": "reference.c", "symbol": "scale_reference", "arguments": ["x", "y", {"i64": "n"}]},
        "tolerance": {"f32": {"relative": 1e-5, "absolute": 1}}, "bytes": "2 * m * n * sizeof(dtype)", "flops": "m * n"}
    wide = [{"name": "K%d" % i, "values": list(range(1, 9))} for i in range(10)]
    for name, members in (
            ("good", {}), ("config", {"reference": {"config": good["default"]}}), ("name-taken", {"name": "rmsnorm"}), ("unknown", {"x\x1b[2J": 1}),
            ("overflow", {"bytes": "m * 9223372036854775807"}), ("zero", {"order": ["BLOCK / (m - 1)"]}), ("mixed", {"checks": [{"rule": "m", "why": "w"}]}),
            ("nothing-left", {"space": [{"rule": "BLOCK > 999", "why": "\u00e4"}]}), ("outside", {"default": {**good["default"], "BLOCK": "n"}}),
            ("no-knobs", {"knobs": [], "space": [], "default": {}, "order": [], "sources": {"cpu": good["sources"]["cpu"]},
                          "launch": {"cpu": [{**good["launch"]["cpu"][0], "grid": [1]}]}}),
            ("large", {"knobs": good["knobs"] + wide, "default": {**good["default"], **{knob["name"]: 1 for knob in wide}}}),
            ("cycle", {"fields": [{**field, "same_as": field["name"]} for field in good["fields"]]}), ("path", {"reference": {"file": "../x", "symbol": "x", "arguments": []}}),
            ("in-place", {"buffers": [{"name": "x", "role": "inout", "type": "f32", "rows": "m", "length": "n"}, {"name": "y", "role": "scratch", "type": "bf16", "length": 8}]})):
        keep("folder", name, json.dumps({**good, **members}).encode(), piece=None)
    for name, text in (("cut", json.dumps(good)[:700].encode()), ("twice", b'{"name": "a", "name": "b"}'), ("deep", b"[" * 3000), ("bad-utf8", b'{"name": "\xff\xfe"}'),
                       ("nul", b'{"name": "\\u0000"}'), ("bare", b"7"), ("nothing-at-all", b"")):
        keep("folder", name, text, piece=None)


def main():
    readers()
    requests()
    runners()
    configs()
    imports()
    models()
    expressions()
    folders()
    return 0


if __name__ == "__main__":
    sys.exit(main())
