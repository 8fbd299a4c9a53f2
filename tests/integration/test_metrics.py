"""What an operator sees: metrics and the status."""
import os
import re
import shlex
import subprocess

import harness
from harness import problem, shape

LINE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[a-z]+="[^"\\\n]*"(?:,[a-z]+="[^"\\\n]*")*\})? ([0-9.eE+-]+|\+Inf|NaN)$')


def parse(page):
    """The figures of a page, which must be what a Prometheus server takes."""
    figures, typed = {}, {}
    assert page.endswith("\n")
    for line in page.splitlines():
        if line.startswith("# "):
            word, name, rest = line[2:].split(" ", 2)
            assert word in ("HELP", "TYPE") and rest
            if word == "TYPE":
                assert name not in typed and rest in ("counter", "gauge", "histogram")
                typed[name] = rest
            continue
        found = LINE.match(line)
        assert found, line
        name, labels, value = found.groups()
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        assert name in typed or typed.get(base) == "histogram", f"{name} has no type"
        key = name + (labels or "")
        assert key not in figures, f"{key} stands twice"
        figures[key] = float(value)
    return figures


def metrics(daemon):
    return parse(daemon.ctl("metrics", as_json=False).output)


def known(daemon):
    daemon.await_device()
    return daemon


def test_the_page_counts_what_happened(daemon):
    known(daemon)
    before = metrics(daemon)
    daemon.tune()
    for _ in range(3):
        daemon.lookup()
    daemon.lookup(m=100)
    daemon.lookup(m=9999)
    config = daemon.lookup()["config"]
    daemon.ctl("pin", *shape(m=5), "--config", ",".join(f"{knob}={value}" for knob, value in config.items()))
    daemon.lookup(m=5)
    daemon.ctl("lookup", *shape(n=0), check=False)
    after = metrics(daemon)

    def grew(key):
        return after[key] - before.get(key, 0)
    assert grew('flytune_lookups_total{source="tuned"}') == 4
    assert grew('flytune_lookups_total{source="nearest"}') == 1
    assert grew('flytune_lookups_total{source="default"}') == 1
    assert grew('flytune_lookups_total{source="pinned"}') == 1
    assert grew("flytune_misses_total") == 2
    assert grew("flytune_lookups_refused_total") == 1
    assert grew("flytune_lookup_seconds_count") == 7 and grew("flytune_lookup_seconds_sum") > 0
    assert grew('flytune_jobs_ended_total{state="done"}') == 1
    assert grew("flytune_sweep_seconds_count") == 1
    assert after["flytune_store_answers"] == 2 and after["flytune_generation"] == daemon.status()["generation"]
    assert after["flytune_store_degraded"] == 0 and after["flytune_store_stale_answers"] == 0
    assert after['flytune_device_ready{device="cpu:0",kind="cpu"}'] == 1
    for name in ("lookup", "sweep"):
        buckets = [value for key, value in after.items() if key.startswith(f"flytune_{name}_seconds_bucket")]
        assert buckets == sorted(buckets) and buckets[-1] == after[f"flytune_{name}_seconds_count"]
    done = daemon.ctl("metrics").json
    assert parse(done["page"]).keys() == after.keys()


def test_runners_are_counted_by_how_they_ended(daemons, runner):
    runner.write("at build 2 once exit 3", "at verify 3 once hang", "at measure 1 once rubbish")
    daemon = daemons(runner, arguments=["--deadline", "verify=2"]).start()
    daemon.tune()
    figures = metrics(daemon)
    assert figures['flytune_runners_gone_total{cause="died"}'] >= 1
    assert figures['flytune_runners_gone_total{cause="late"}'] >= 1
    assert figures['flytune_runners_gone_total{cause="nonsense"}'] >= 1
    assert figures["flytune_runner_restarts_total"] >= 3


def test_pipelined_lookups_are_all_in_the_histogram(daemon):
    known(daemon)
    with daemon.peer() as peer:
        numbers = [peer.ask("lookup", kernel="rmsnorm", problem=problem(m=m % 7 + 1)) for m in range(1000)]
        for number in numbers:
            peer.answer(number)
    assert metrics(daemon)["flytune_lookup_seconds_count"] == 1000


def test_the_timers_service_keeps_the_figures_in_a_file(daemon, tmp_path):
    unit = (harness.TOP / "systemd/metrics/flytuned-metrics.service").read_text()
    words = shlex.split(re.search("^ExecStart=(.*)$", unit, re.M)[1])
    tool = harness.program("flytunectl")
    subprocess.run(words, cwd=tmp_path, check=True, umask=0o022, timeout=harness.DEADLINE,
                   env={**os.environ, "FLYTUNE_SOCKET": str(daemon.path), "PATH": f"{tool.parent}:{os.environ['PATH']}"})
    assert [path.name for path in tmp_path.glob("*.prom*")] == ["flytuned.prom"]
    path = tmp_path / "flytuned.prom"
    assert parse(path.read_text())["flytune_sessions"] == 1 and path.stat().st_mode & 0o777 == 0o644


def test_the_status_tells_stale_answers_and_what_is_missed(daemons, runner):
    daemon = daemons(runner).start()
    daemon.ctl("tune", *shape(m="1,2,3"))
    status = daemon.status()
    assert status["stale"] == 0 and status["misses"] == 0 and status["config"] is None
    daemon.stop()
    runner.write("identity compiler=newer")
    daemon.runner.program.write_text(daemon.runner.program.read_text() + "\n")
    daemon.start()
    known(daemon)
    harness.until(lambda: daemon.status()["stale"] == 3, "the answers of the old compiler are stale")
    assert "stale" in daemon.lookup(m=1)["reason"]
    assert ", 3 stale" in daemon.ctl("status", as_json=False).output
    daemon.ctl("forget", *shape(m=2))
    harness.until(lambda: daemon.status()["stale"] == 2, "one is forgotten")
    daemon.tune(m=1)
    harness.until(lambda: daemon.status()["stale"] == 1, "one is tuned anew")


def test_a_miss_that_cannot_be_asked_about_just_now_stays_in_the_list(daemons, runner):
    daemon = daemons(runner, arguments=["--runner-idle", "0.05"]).start()
    known(daemon)
    daemon.lookup(m=64)
    for pid in set(runner.pids()):
        harness.await_death(pid)
    runner.write("at hello lie nokernel")
    harness.until(lambda: daemon.ctl("lookup", *shape(), check=False).status != 0, "its kernel is gone")
    daemon.ctl("misses")
    runner.write()
    harness.until(lambda: daemon.ctl("lookup", *shape(m=3), check=False).status == 0, "its kernel is back")
    assert 64 in [miss["problem"]["m"] for miss in daemon.ctl("misses").json["misses"]]


def test_the_status_names_a_device_that_was_wanted_and_is_not_there(daemons, runner):
    daemon = daemons(runner, device="hip", arguments=["--device", "cpu", "--runner", "hip=/bin/false"]).start()
    harness.until(lambda: "no hip device" in daemon.status()["degraded"], "the missing device is told")
    assert daemon.lookup()["source"] == "default"


def test_a_pause_is_told(daemon):
    daemon.ctl("pause")
    assert daemon.status()["paused"] and metrics(daemon)["flytune_queue_paused"] == 1
    assert "paused" in daemon.ctl("status", as_json=False).output


def test_what_a_peer_breaks_is_logged_once_a_while(daemon):
    for _ in range(50):
        with daemon.peer(hello=False) as peer:
            peer.send(b"\xc1")
            peer.ended()
    assert daemon.log().count("broke the framing") == 1
