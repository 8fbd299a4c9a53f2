"""What `explain` and `trials` say of a sweep whose times are known."""
import json

from harness import shape


def test_the_gain_over_the_default_is_told(daemon, runner):
    runner.write("best 3")
    daemon.tune()
    said = daemon.ctl("explain", *shape()).json
    winner, default = said["winner"], said["default"]
    assert winner["winner"] and default["default"]
    assert said["conclusive"] and said["rounds"] >= 7 and said["sweep_s"] >= 0
    if winner["config"] != default["config"]:
        assert said["gain_percent"] > said["gain_least_percent"] > 0
        # One figure with its bound in every view.
        gain, least = 1 + said["gain_percent"] / 100, 1 + said["gain_least_percent"] / 100
        export = json.loads(daemon.ctl("export", "-", as_json=False).output)["answers"][0]
        views = [daemon.lookup(), daemon.ctl("list").json["answers"][0], daemon.tune()[0], daemon.ctl("trials", *shape()).json,
                 {"gain": export["default_time_ps"] / export["time_ps"], "gain_least": export["gain_least_ppm"] / 1e6,
                  "unsettled": export.get("unsettled", False)}]
        for view in views:
            assert abs(view["gain"] - gain) < 1e-4 and abs(view["gain_least"] - least) < 1e-4, (view, gain, least)
            assert view["unsettled"] is False
        shown = f"{gain:.2f}× (≥{least:.2f})"
        for words in (["lookup", *shape()], ["list"], ["tune", *shape()], ["trials", *shape()]):
            assert shown in daemon.ctl(*words, as_json=False).output, (words, shown)
    text = daemon.ctl("explain", *shape(), as_json=False).output
    assert "wins with" in text and "Knobs" in text and "Measured in" in text
    assert "faster than the default" in text or "It is the default" in text


def test_a_default_that_was_not_timed_has_no_gain_over_it(daemon, runner):
    """Where it is out there is no figure in any view, whatever else was measured."""
    daemon.tune()
    default = next(at for at, trial in enumerate(daemon.trials()) if trial["default"])
    daemon.ctl("forget", *shape())
    runner.write(f"wrong {default}", "best 0" if default else "best 1")
    tuned, = daemon.tune("--force")
    for view in (tuned, daemon.lookup(), daemon.ctl("list").json["answers"][0], daemon.ctl("trials", *shape()).json):
        assert view["gain"] is None and view["gain_least"] is None, view
    assert daemon.ctl("explain", *shape()).json["gain_percent"] is None
    text = daemon.ctl("explain", *shape(), as_json=False).output
    assert "is not known: no round had both (wrong)" in text and "×" not in daemon.ctl("list", as_json=False).output


def test_a_check_tells_what_it_measured_itself(daemon, runner):
    """Times, duration and figures are of now: what is stored stays, and is told as what it was."""
    runner.write("best 3")
    tuned, = daemon.tune()
    members = sum(trial["status"] != "pruned" for trial in daemon.trials())
    runner.write("pace_us 1000", *[f"time {at} {200 + (abs(at - 3)) * 6}000000" for at in range(members)])
    before = daemon.ctl("metrics", as_json=False).output
    checked = daemon.ctl("check", *shape()).json
    assert checked["holds"] and checked["config"] == tuned["config"]
    assert abs(checked["time_us"] / tuned["time_us"] - 2) < 0.05, (checked, tuned)
    assert f"({tuned['time_us']:.4g} µs)" in checked["said"], checked
    assert abs(daemon.lookup()["time_us"] - tuned["time_us"]) < 0.01, "nothing of it is stored"
    # A sweep counts what it took itself, once.
    jobs = daemon.ctl("jobs").json["jobs"]
    total = sum(job["sweep_s"] for job in jobs)
    after = daemon.ctl("metrics", as_json=False).output
    assert before != after
    summed = next(float(line.split()[1]) for line in after.splitlines() if "_sweep_seconds_sum" in line)
    assert abs(summed - total) < 1e-3 + 0.01 * total, (summed, jobs)


def test_a_knob_that_changes_no_code_is_said_to_do_nothing(daemon, runner):
    runner.write("same 1")
    daemon.tune()
    said = daemon.ctl("explain", *shape()).json
    knobs = {knob["name"]: knob for knob in said["knobs"]}
    paired = [knob for knob in knobs.values() if knob["pairs"]]
    assert paired and all(knob["role"] in ("same code", "one value") for knob in paired)
    assert "did nothing" in daemon.ctl("explain", *shape(), as_json=False).output


def test_when_and_why_each_was_dropped_is_listed(daemon, runner):
    runner.write("best 0", "wrong 2")
    daemon.tune()
    dropped = [trial for trial in daemon.trials() if trial["dropped_round"]]
    assert dropped and all("slower than the best" in trial["reason"] for trial in dropped)
    text = daemon.ctl("trials", *shape(), as_json=False).output
    assert "dropped after" in text and "wrong" in text
    assert "wrong:" in daemon.ctl("explain", *shape(), as_json=False).output


def test_a_problem_that_was_never_tuned_is_no_error(daemon):
    assert "has not been tuned" in daemon.ctl("explain", *shape(), as_json=False).output
    assert daemon.ctl("explain", *shape()).json["winner"] is None


def test_a_pin_is_told_before_the_winner_that_it_hides(daemon):
    config = daemon.tune()[0]["config"]
    assert daemon.ctl("explain", *shape()).json["pin"] is None
    pinned = next(trial["config"] for trial in daemon.trials() if trial["config"] != config)
    daemon.ctl("pin", *shape(), "--config", ",".join(f"{knob}={value}" for knob, value in pinned.items()))
    assert daemon.ctl("explain", *shape(), env={"FLYTUNE_AUTOTUNE": "1"}).json["pin"] == pinned
    assert len(daemon.ctl("jobs").json["jobs"]) == 1, "explaining swept"
    text = daemon.ctl("explain", *shape(), as_json=False).output
    assert "Pinned by hand to " + " ".join(f"{knob}={value}" for knob, value in pinned.items()) in text
    assert text.index("Pinned by hand") < text.index("wins with")
    assert "\npinned " in daemon.ctl("lookup", *shape(), as_json=False).output


def test_configs_that_cannot_win_are_counted_by_reason_and_listed_for_programs(daemon):
    daemon.tune()
    pruned = [trial["reason"] for trial in daemon.trials() if trial["status"] == "pruned"]
    text = daemon.ctl("trials", *shape(), as_json=False).output
    assert [line for line in text.splitlines() if "not tried: " in line] == [
        f"{pruned.count(reason)} not tried: {reason}" for reason in dict.fromkeys(pruned)]
    assert "pruned" not in text
