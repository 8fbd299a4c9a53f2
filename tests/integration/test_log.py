"""The log's reader that stops reading: nothing else stops."""
import fcntl
import os
import select

import harness

SESSIONS = 3000


def test_a_log_that_nobody_reads_stops_no_lookup(tmp_path, runner):
    reader, writer = os.pipe()
    daemon = harness.Daemon(tmp_path, runner, ["--log-level", "debug"], prefix=["bash", "-c", f'exec "$@" 2>&{writer}', "bash"])
    daemon.pass_fds = (writer,)
    try:
        daemon.start()
        os.close(writer)
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
        with daemon.peer() as peer:
            for _ in range(SESSIONS):  # two lines each
                with daemon.peer(hello=False):
                    pass
            assert peer.call("lookup", kernel="rmsnorm", problem=harness.problem(m=64, n=4096))["source"] == "default"
        # Every line is there, or among those that are told to be lost.
        told = lost = 0
        rest = b""
        while told + lost < 2 * SESSIONS:
            assert select.select([reader], [], [], harness.DEADLINE)[0], f"{told} lines came, {lost} are said to be lost"
            *lines, rest = (rest + os.read(reader, 1 << 20)).split(b"\n")
            told += sum(b" session " in line for line in lines)
            lost += sum(int(line.split(b"warning: ")[1].split()[0]) for line in lines if b" messages lost" in line)
        assert told > 0 and lost > 0
    finally:
        daemon.clean_up()
        os.close(reader)
