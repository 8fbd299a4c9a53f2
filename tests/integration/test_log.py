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
        text = b""
        while b" messages lost" not in text:
            assert select.select([reader], [], [], harness.DEADLINE)[0], "it does not tell of what was lost"
            text += os.read(reader, 1 << 20)
        lost = [line for line in text.decode().splitlines() if "messages lost" in line]
        told = text.count(b"session opened")
        assert 0 < told < SESSIONS and int(lost[0].split("warning: ")[1].split()[0]) > SESSIONS - told, lost
    finally:
        daemon.clean_up()
        os.close(reader)
