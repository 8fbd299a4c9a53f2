"""Every command prints with --json what client/JSON.md says. Whatever other tests ask for is held to the page as well."""
import json
import subprocess

import harness
import shapes
from harness import shape

# What only a GPU has (test_gpu.py asks for its code), what a device has while it is at work (test_devices.py), and what no winner
# says of itself; kernels of folders (test_kernel_folder.py), attempts at one (test_kernel_command.py), and spaces that are searched
# (test_large_space.py).
ELSEWHERE = {("device", "pci"), ("device", "holder"), ("device", "job"), ("kernel", "path"), ("kernel_field", "default"),
             ("job", "space"), ("event", "space"), ("tried", "tuned"), ("tried", "explained")} | {
    (shape, member) for shape in ("code", "step") for member in shapes.SHAPES[shape]} | {
    (shape, "order_class") for shape in ("answer", "tuned", "checked")} | {
    (shape, member) for shape in ("tuned", "checked") for member in ("tuned_scale", "revision")}


class Asked:
    """Asks a daemon, and keeps which members of which shapes came."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.seen = set()
        self.commands = set()

    def __call__(self, *words, status=0, env=None):
        done = self.daemon.ctl(*words, check=False, env=env)
        assert done.status == status, done
        shapes.hold(words, done.output, self.seen)
        self.commands.add(shapes.command_of([str(word) for word in words]))
        return done.json if words[0] != "watch" else None


def follow(ask, runner):
    """A sweep from its beginning to its end."""
    gate = runner.gate("sweep")
    runner.write("space 6", f"at sweep once gate {gate}")
    job = ask("tune", "--no-wait", *shape(m=1024))[0]["job"]
    gate.arrived()
    assert ask("jobs", job)["jobs"][0]["stage"]
    watch = ask.daemon.ctl_start("watch", job)
    first = watch.stdout.readline()
    assert json.loads(first)["event"] == "watching"
    gate.release()
    rest, _ = watch.communicate(timeout=harness.DEADLINE)
    shapes.hold(("watch", job), first + rest, ask.seen)


def test_every_command_prints_what_the_page_says(daemons, runner, tmp_path, monkeypatch):
    settings = tmp_path / "flytuned.conf"
    settings.write_text("")
    runner.write("best 3", "wrong 1")  # now: a change while it runs has the device asked for anew
    daemon = daemons(runner, arguments=["--config", settings]).start().await_device()
    ask = Asked(daemon)
    listed = subprocess.run([harness.FLYTUNECTL, "--help"], text=True, capture_output=True, check=True).stdout
    listed = {line.split()[0] for line in listed.split("Commands:")[1].split("Options")[0].splitlines() if line.strip()}
    assert listed == {name.split()[0] for name in shapes.COMMANDS}

    assert ask("lookup", *shape())["reason"] == "no result yet"
    ask("misses")
    assert ask("tune", *shape(m="64,512"))[0]["source"] == "tuned"
    ask("tune", *shape())
    assert ask("lookup", *shape(m="64,100,4"))[1]["tuned_scale"] == 64
    for command in ("lookup", "list", "trials", "explain", "check"):
        ask(command, *(shape() if command != "list" else ()))
    runner.write("same 9")
    ask("tune", *shape(m=8))
    ask("trials", *shape(m=8))
    ask("trials", *shape(m=7))
    ask("explain", *shape(m=7))
    config = ",".join(f"{name}={value}" for name, value in ask("lookup", *shape())["config"].items())
    ask("pin", *shape(), "--config", config)
    ask("explain", *shape())
    file = tmp_path / "answers"
    ask("export", file)
    ask("unpin", *shape())
    assert len(ask("forget", *shape(m="64,512"))) == 2
    file.write_text(file.read_text().replace("compiler=", "compiled="))
    ask("import", "--dry-run", file, status=2)
    daemon.ctl("tune", *shape(m="64,512"))
    ask("export", file)
    text = file.read_text().replace('"kernel": "rmsnorm", "problem": {"m": 512', '"kernel": "other", "problem": {"m": 512')
    file.write_text(text)
    assert ask("import", file)["notes"]
    for command in ("status", "devices", "jobs", "kernels", "metrics", "pause"):
        ask(command)
    queued = ask("tune", "--no-wait", *shape(m=9))[0]
    assert queued["config"] is None and queued["state"] == "queued"
    assert ask("cancel", queued["job"])["cancelled"] == queued["job"]
    ask("cancel", 1)
    ask("watch", queued["job"], status=4)
    ask("resume")
    follow(ask, runner)
    ask("code", *shape(), status=1)
    runner.write("at sweep exit 7")
    failed = ask("tune", *shape(m=3), status=4)[0]
    assert failed["state"] == "failed" and failed["config"] is None and failed["reason"]
    assert ask("check", *shape(m=3), status=4)["config"] is None
    monkeypatch.chdir(tmp_path)
    ask("kernel", "new", "mine")
    (tmp_path / "mine" / "kernel.json").write_text(
        (tmp_path / "mine" / "kernel.json").read_text().replace('"m * n >= 256 ? 256 : 64"', "1024"))
    assert ask("kernel", "check", "mine", status=1)["findings"][0]["problem"]
    assert ask("kernel", "try", "mine", status=1)["findings"]
    assert ask.commands == set(shapes.COMMANDS)
    daemon.stop()
    assert ask("lookup", *shape(), status=3)["daemon_away"]
    never = {(name, member) for name, members in shapes.SHAPES.items() for member in members} - ask.seen - ELSEWHERE
    assert not never, f"never asked for: {sorted(never)}"
