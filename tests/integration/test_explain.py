"""What `explain` and `trials` say of a sweep whose times are known."""
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
        measured = default["time_us"] / winner["time_us"] - 1
        assert abs(said["gain_percent"] / 100 - measured) < 0.01
    text = daemon.ctl("explain", *shape(), as_json=False).output
    assert "wins with" in text and "Knobs" in text and "Measured in" in text
    assert "faster than the default" in text or "It is the default" in text


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
