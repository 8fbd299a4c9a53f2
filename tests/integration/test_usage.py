"""What flytunectl says of words that it cannot use: the field, the value and what would have been accepted."""
import json
import os
import subprocess

import pytest

import harness
from harness import shape

CASES = [
    # words; what must be said of them
    ("", "no command is given"), ("lookpu", "no command 'lookpu'; did you mean lookup?"), ("''", "no command ''"),
    ("--nonsense status", "no option --nonsense"), ("--generation", "--generation needs a value"),
    ("--socket= status", "--socket needs a value"), ("status --json=1", "--json takes no value"),
    ("--generation foo status", "--generation is foo; it must be UUID:COUNTER"),
    ("--generation 0f8fad5b-d9cb-469f-a165-70867728950e:x status", "it must be UUID:COUNTER"),
    ("list foo", "kernel is foo"), ("list --foo", "no option --foo"), ("list rmsnorm x", "'x' is one word too many"),
    ("jobs x", "the job is x; it must be a whole number from 1"), ("jobs 1 2", "'2' is one word too many"),
    ("jobs ''", "the job is empty"), ("cancel", "cancel needs the number of one job"), ("cancel 0", "the job is 0"),
    ("watch 1 2", "'2' is one word too many"), ("watch --onc", "no option --onc; did you mean --once?"),
    ("misses x", "the number of lines is x"), ("misses --al", "misses has no option --al"),
    ("status now", "'now' is one word too many: status takes none"), ("devices x", "'x'"), ("metrics x", "'x'"),
    ("pause x", "'x'"), ("resume x", "'x'"), ("export", "export needs the name of a file"), ("export ''", "export needs"),
    ("export --foo", "no option --foo"), ("export a b", "'b' is one word too many"), ("import", "import needs the name"),
    ("import --dryrun FOLDER", "no option --dryrun; did you mean --dry-run?"),
    ("lookup", "lookup needs a kernel, such as layernorm, rmsnorm"), ("lookup --m 4", "lookup needs a kernel"),
    ("lookup ''", "lookup needs a kernel"), ("lookup rmsnorm --m", "--m needs a value"),
    ("lookup rmsnorm --m --n 4096", "--m needs a value"), ("lookup rmsnorm --m ''", "--m has an empty value"),
    ("lookup rmsnorm --m 1,,2", "--m has an empty value"), ("lookup rmsnorm --m x", "--m is x; it must be an integer"),
    ("lookup rmsnorm --m 4 --m 5", "--m is given twice"), ("lookup rmsnorm foo --m 4", "'foo' is one word too many"),
    ("lookup rmsnorm --m 4 --device", "--device needs an id"), ("lookup rmsnorm --m 4 --device ''", "--device needs an id"),
    ("lookup rmsnorm --colour 1", "rmsnorm no such field: it has m, n, dtype, weight_dtype, row_stride"),
    ("tune rmsnorm --m 4 --forc", "tune has no option --forc; did you mean --force?"),
    ("tune rmsnorm --forc --m 4", "did you mean --force?"), ("tune --forc rmsnorm --m 4", "did you mean --force?"),
    ("tune rmsnorm --m 4 --priority", "--priority is missing; it must be -100 to 100"),
    ("tune rmsnorm --m 4 --priority 101", "--priority is 101; it must be -100 to 100"),
    ("tune rmsnorm --m 4 --budget ''", "--budget is empty; it must be 1 to 86400 seconds"),
    ("tune --model", "--model needs the name of a file"), ("tune --model --m 4", "--model needs the name of a file"),
    ("tune --model FOLDER", "cannot read FOLDER: Is a directory"),
    ("tune --model FOLDER/none", "cannot read FOLDER/none: No such file or directory"),
    ("tune --model COHERE", "it is of family layer norms without a bias: its norms are LayerNorms"),
    ("tune --model GPT2", "it does not say its dtype: say --dtype"),
    ("tune --model LLAMA --n 4096", "--n comes from the model's file"),
    ("tune --model LLAMA --m 4x", "--m is 4x; it must be at most 256 numbers of tokens"),
    ("tune --model LLAMA --colour 1", "rmsnorm no such field"), ("tune --model LLAMA rmsnorm", "'rmsnorm' is one word too many"),
    ("tune --model WIDE", "n is 2000000; it must be"),
    ("pin rmsnorm --m 4 --n 4096 --dtype bf16", "pin needs --config KNOB=VALUE"),
    ("pin rmsnorm --m 4 --config", "--config needs KNOB=VALUE"), ("code -o", "needs the name of a file"),
]

MODELS = {
    "GPT2": {"model_type": "gpt2", "n_embd": 768, "layer_norm_epsilon": 1e-5},
    "COHERE": {"model_type": "cohere", "hidden_size": 8192, "layer_norm_eps": 1e-5, "torch_dtype": "float16"},
    "LLAMA": {"model_type": "llama", "hidden_size": 4096, "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16"},
    "WIDE": {"model_type": "llama", "hidden_size": 2000000, "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16"},
}


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """One daemon for all: nothing is changed."""
    folder = tmp_path_factory.mktemp("usage")
    daemon = harness.Daemon(folder, runner=harness.BadRunner(folder)).start()
    yield daemon
    assert not daemon.clean_up()


@pytest.mark.parametrize("words, said", CASES, ids=[words or "nothing" for words, _ in CASES])
def test_words_that_cannot_be_used_are_told_apart(quiet, tmp_path, words, said):
    for name, config in MODELS.items():
        (tmp_path / name).write_text(json.dumps(config))
    words = ["" if word == "''" else str(tmp_path / word) if word in MODELS else word.replace("FOLDER", str(tmp_path))
             for word in words.split()]
    said = said.replace("FOLDER", str(tmp_path))
    done = quiet.ctl(*words, as_json=False, check=False)
    assert done.status == 2 and said in done.complaint and not done.output, done
    done = quiet.ctl(*words, check=False)
    assert done.status == 2 and said in done.complaint and done.json["error"]["code"], done
    assert done.json["error"]["message"] in done.complaint


def test_a_bad_generation_of_the_environment_is_named(quiet):
    done = quiet.ctl("lookup", *shape(), check=False, env={"FLYTUNE_GENERATION": "bar"})
    assert done.status == 2 and "FLYTUNE_GENERATION is bar; it must be UUID:COUNTER" in done.complaint


def test_options_stand_anywhere(quiet):
    words = ["--m", "64", "--n", "4096", "--dtype", "bf16"]
    wanted = quiet.ctl("lookup", "rmsnorm", *words).json["config"]
    for line in (["--device", "cpu:0", *words, "rmsnorm"], [*words[:2], "rmsnorm", "--device=cpu:0", *words[2:]],
                 ["--n=4096", "rmsnorm", "--dtype", "bf16", "--m=64", "#", "remark", "--device"]):
        assert quiet.ctl("lookup", *line).json["config"] == wanted, line


def test_a_file_that_cannot_be_read_or_written_is_named_under_json_too(quiet, tmp_path):
    for words in (["import", tmp_path], ["export", tmp_path], ["import", tmp_path / "none"], ["export", tmp_path / "no" / "file"]):
        done = quiet.ctl(*words, check=False)
        assert done.status == 1 and str(words[1]) in done.complaint and done.json["error"]["code"] == "system", done


def test_an_import_of_which_nothing_serves_says_what_differs(daemon, tmp_path):
    daemon.ctl("tune", *shape(m="16,64"))
    file = tmp_path / "answers"
    daemon.ctl("export", file)
    text = file.read_text().replace('"kernel": "rmsnorm", "problem": {"m": 16', '"kernel": "other", "problem": {"m": 16')
    file.write_text(text)
    said = daemon.ctl("import", "--dry-run", file, as_json=False).output
    assert "2 rows, 1 usable here (kernel differs in 1)" in said, said


def test_the_documented_pipeline_tunes_what_was_missed_on_the_real_runner(daemons):
    daemon = daemons(arguments=["--budget", harness.BUDGET]).start()
    daemon.await_device()
    for m in (5, 6):
        daemon.lookup(m=m, n=1024)
    manual = (harness.TOP / "man" / "flytunectl.1.scd").read_text()
    line = next(line for line in manual.splitlines() if line.startswith("flytunectl misses"))
    done = subprocess.run(["sh", "-c", line], text=True, capture_output=True, timeout=harness.DEADLINE, check=False,
                          env={**os.environ, "FLYTUNE_SOCKET": str(daemon.path),
                               "PATH": f"{harness.FLYTUNECTL.parent}:{os.environ['PATH']}"})
    assert done.returncode == 0 and "m=5 " in done.stdout and "m=6 " in done.stdout, done
    for job in daemon.ctl("jobs").json["jobs"]:
        daemon.ctl("watch", job["job"], timeout=4 * harness.DEADLINE)
    assert daemon.lookup(m=5, n=1024)["source"] == daemon.lookup(m=6, n=1024)["source"] == "tuned"


def test_a_models_norms_are_tuned_and_a_users_table_adds_to_ours(daemon, tmp_path):
    model = tmp_path / "config.json"
    model.write_text(json.dumps({"model_type": "qwen3", "hidden_size": 2048, "head_dim": 128, "num_attention_heads": 16,
                                 "num_key_value_heads": 8, "rms_norm_eps": 1e-6, "dtype": "bfloat16"}))
    tuned = daemon.ctl("tune", "--model", model, "--m", "1,2").json
    # 2 tokens of 8 heads are 1 of 16: one problem.
    assert [(one["kernel"], one["problem"]["m"], one["problem"]["n"], one["problem"]["row_stride"]) for one in tuned] == [
        ("rmsnorm", 1, 2048, 2048), ("rmsnorm", 2, 2048, 2048), ("rmsnorm", 16, 128, 128), ("rmsnorm", 32, 128, 128),
        ("rmsnorm", 8, 128, 128)]
    said = daemon.ctl("tune", "--model", model, "--m", "1,2", as_json=False).output.splitlines()
    assert said[:3] == [
        "qwen3, hidden norm: rmsnorm --m 1,2 --n 2048 --dtype bf16", "qwen3, query heads norm: rmsnorm --m 16,32 --n 128 --dtype bf16",
        "qwen3, key heads norm: rmsnorm --m 8,16 --n 128 --dtype bf16"]

    own = tmp_path / "flytune" / "models.json"
    own.parent.mkdir()
    fields = {"m": "=3 * tokens", "n": "=hidden_size / 2", "dtype": "f32"}
    table = {"flytune": "models", "version": 1, "families": [
        {"name": "mine", "types": ["qwen3"], "norms": [{"name": "half", "kernel": "rmsnorm", "fields": fields}]}]}
    own.write_text(json.dumps(table))
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    tuned = daemon.ctl("tune", "--model", model, "--m", "2", "--row-stride", "1040", env=env).json
    assert [one["problem"] for one in tuned] == [
        {"m": 6, "n": 1024, "dtype": "f32", "weight_dtype": "f32", "row_stride": 1040}]
    fields["n"] = "=hidden_size /"
    own.write_text(json.dumps(table))
    done = daemon.ctl("tune", "--model", model, env=env, check=False)
    assert done.status == 1 and done.json["error"]["code"] == "system", done
    assert f'{own}: families[0].norms[0].fields.n is "=hidden_size /"; it must be a formula' in done.complaint, done
    # What steers a terminal, and what tune would obey, is none of a table's.
    norm = table["families"][0]["norms"][0]
    fields["n"], norm["name"] = 1024, "\x1b[2Jhalf"
    own.write_text(json.dumps(table))
    done = daemon.ctl("tune", "--model", model, env=env, check=False)
    assert done.status == 1 and "without control characters" in done.complaint and "\x1b" not in done.complaint, done
    norm["name"] = "half"
    for option, value in (("device", "cpu:0"), ("force", 1), ("no_wait", 1), ("priority", 77), ("json", 1)):
        norm["fields"] = {option: value, **fields}
        own.write_text(json.dumps(table))
        done = daemon.ctl("tune", "--model", model, env=env, check=False)
        assert done.status == 2 and f"has a field {option.replace('_', '-')}" in done.complaint, done
