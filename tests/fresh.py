"""Python text, or a command line, in a process that has only imported renaissance.

The processes are forked from one that imported it, so that many take no longer than the import.
"""

import contextlib
import io
import multiprocessing
import os
import sys
import traceback

from renaissance.cli.main import main

SERVER = multiprocessing.get_context("forkserver")


def run(text, timeout=60):
    """Run the text as a program: gives what it has written to standard output and error.

    Raises:
        RuntimeError: It has raised, or has not come to its end.
    """
    SERVER.set_forkserver_preload(["renaissance"])
    receiving, sending = SERVER.Pipe(duplex=False)
    process = SERVER.Process(target=_execute, args=(text, sending))
    process.start()
    sending.close()
    try:
        if not receiving.poll(timeout):
            raise RuntimeError(f"nothing after {timeout} seconds")
        out, err, error = receiving.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"the process died with {process.exitcode}") from None
    finally:
        process.kill()
        process.join()
    if error:
        raise RuntimeError(f"the program failed:\n{error}\n{err}")
    return out, err


def command(arguments, folder):
    """The exit code of ``renaissance`` with these arguments, run in a folder; -9 if killed."""
    SERVER.set_forkserver_preload(["renaissance"])
    process = SERVER.Process(target=_command, args=(arguments, str(folder)))
    process.start()
    process.join()
    return process.exitcode


def _command(arguments, folder):
    os.chdir(folder)
    sys.exit(main(arguments))


def _execute(text, sending):
    out, err, error = io.StringIO(), io.StringIO(), ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            exec(compile(text, "<program>", "exec"), {"__name__": "__main__"})
        except BaseException:  # noqa: BLE001 (it is handed on)
            error = traceback.format_exc()
    sending.send((out.getvalue(), err.getvalue(), error))
