"""The command line: ``renaissance train examples/quickstart.yaml``, ``renaissance --help``.

Exit codes: 0 done; 1 an error; 2 a wrong configuration or command line; 3 stopped on non-finite
values; 130 interrupted by Ctrl-C, 143 by SIGTERM, each with a checkpoint written.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

import click

from renaissance import built
from renaissance.cli import inspect as cli_inspect
from renaissance.cli import predict as cli_predict
from renaissance.cli import train as cli_train
from renaissance.config.yamltree import ConfigError
from renaissance.fit.nonfinite import NonFiniteError
from renaissance.interrupts import Interrupted

TRACEBACK = "--traceback"
DONE, ERROR, WRONG, NON_FINITE, INTERRUPTED, TERMINATED = 0, 1, 2, 3, 130, 143


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(built.VERSION, prog_name="renaissance")
@click.option(
    TRACEBACK, is_flag=True, expose_value=False, help="Show where in the code an error arose."
)
def cli() -> None:
    """Train networks from YAML files, exactly reproducibly.

    \b
    A first run, from nothing to predictions:
      renaissance new digits                       write digits.yaml, a complete example
      renaissance train digits.yaml                train it; the run folder is printed
      renaissance train digits.yaml --resume auto  continue after a break, bit for bit
      renaissance evaluate runs/digits             loss and metrics of the newest run there
      renaissance predict runs/digits a.png        classes of pictures

    \b
    Any setting can be changed for one command, typed as in the file:
      renaissance train digits.yaml fit.epochs=5 optimizer.weight_decay=1e-3 name=try-2
      renaissance train digits.yaml data.train.transforms.0.std=0.5 optimizer=sgd optimizer.lr=0.1
    """


for command in (*cli_train.COMMANDS, *cli_predict.COMMANDS, *cli_inspect.COMMANDS):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code and prints errors as single lines to stderr.

    What is noted on one, where in the data it arose, is a line more.

    Args:
        arguments: Those of the process by default.
    """
    given = sys.argv[1:] if arguments is None else list(arguments)
    commands = [text for text in given if text != TRACEBACK]  # wherever it was written
    try:
        answer = cli.main(args=commands, prog_name="renaissance", standalone_mode=False)
        return answer if isinstance(answer, int) else DONE
    except click.ClickException as error:
        error.show()
        return WRONG if isinstance(error, click.UsageError) else ERROR
    except ConfigError as error:
        return _say(str(error), WRONG)
    except NonFiniteError as error:
        return _say(f"stopped: {error}", NON_FINITE)
    except (KeyboardInterrupt, click.Abort):
        return _say("interrupted", INTERRUPTED)
    except Interrupted as error:
        return _say(str(error), TERMINATED)
    except (ValueError, TypeError, RuntimeError, OSError, ImportError) as error:
        if TRACEBACK in given:
            traceback.print_exc()
        notes: list[str] = getattr(error, "__notes__", [])
        return _say("\n".join([f"error: {error}", *notes]), ERROR)


def _say(text: str, code: int) -> int:
    click.echo(text, err=True)
    return code


def run() -> None:
    """The console script."""
    sys.exit(main())
