"""The direction of imports: a module may import only what stands in a lower row."""

import ast
import pathlib

import renaissance

ROOT = pathlib.Path(renaissance.__file__).parent
# Each row lists rooms; a room is one file, or a few that belong together and may import each other.
ROWS = [
    ["_native"],
    ["built"],
    [
        "settings wording",
        "broadcasts",
        "direction",
        "busy",
        "devices",
        "random",
        "kernels",
        "switches",
        "interrupts",
        "jsontext",
        "yamltree",
        "tables",
        "bars",
        "figures picture",
    ],
    ["memory layout segments survey binding bound link edits arena"],
    [
        "optim",
        "schedules curves plateau",
        "losses foreign_losses",
        "metrics",
        "init fills",
        "precision",
        "ema",
        "nn",
    ],
    ["scalars update operations range_tables host_ranges device_ranges", "data"],
    ["step passes capture inputs residence tally", "scan"],
    ["checkpoint saver tensorfile"],
    ["hooks logs monitor"],
    ["callbacks", "score", "loggers", "progress", "history", "report facts"],
    [
        "pretrained",
        "frozen",
        "recipe",
        "carried",
        "fastpath",
        "misfit",
        "build",
        "evaluation",
        "options",
        "identity",
        "hoststate",
        "snapshot",
        "resume",
        "rundir",
        "nonfinite",
        "dryrun",
        "loop",
        "describe",
        "standing",
    ],
    ["task"],
    ["config reader hints kinds factories schema"],
    ["runfolder", "planning", "proof", "lrfinder", "templates"],
    ["cli cli_arguments cli_train cli_predict cli_inspect"],
]
#: Modules of the row below the task, in the direction in which they import each other.
TASK_PARTS = ROWS[-5]
ROOM_OF = {name: room for row in ROWS for room in row for name in room.split()}
ROW_OF = {name: i for i, row in enumerate(ROWS) for room in row for name in room.split()}
OUTSIDE = {"models": {"nn", "init"}, "datasets": {"data"}}


def room(path):
    """The module, or the sub-package, that a file belongs to."""
    return path.relative_to(ROOT).with_suffix("").parts[0]


def is_for_types(node):
    """``if TYPE_CHECKING:``, whose imports never run."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def running(tree):
    """The nodes of a module that run."""
    for node in ast.iter_child_nodes(tree):
        if not is_for_types(node):
            yield node
            yield from running(node)


def imported(tree):
    """Modules of renaissance that a module imports when it runs."""
    for node in running(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            parts = node.module.split(".")
            if parts[0] == "renaissance":
                yield from ([a.name for a in node.names] if len(parts) == 1 else [parts[1]])
        elif isinstance(node, ast.ImportFrom):
            raise AssertionError("relative imports hide the direction; write renaissance.x")
        elif isinstance(node, ast.Import):
            for name in node.names:
                parts = name.name.split(".")
                if parts[0] == "renaissance" and len(parts) > 1:
                    yield parts[1]


def is_allowed(name, other):
    if ROOM_OF.get(other) == ROOM_OF[name]:
        return True
    if other in OUTSIDE:
        return ROW_OF[name] >= ROW_OF["config"]
    if name in TASK_PARTS and other in TASK_PARTS:
        return TASK_PARTS.index(other) < TASK_PARTS.index(name)
    return ROW_OF.get(other, 99) < ROW_OF[name]


def violations(name, rooms):
    if name in OUTSIDE:
        return [r for r in rooms if r not in OUTSIDE[name] | {name}]
    return [r for r in rooms if not is_allowed(name, r)]


def test_imports_go_down_only():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        if path == ROOT / "__init__.py" or path == ROOT / "__main__.py":
            continue
        name = room(path)
        assert name in ROW_OF or name in OUTSIDE, f"{path.name}: give it a row in ROWS"
        found = violations(name, imported(ast.parse(path.read_text())))
        wrong += [f"{path.relative_to(ROOT)} imports {r}" for r in found]
    assert not wrong, "\n".join(wrong)


def test_every_room_exists():
    there = {room(path) for path in ROOT.rglob("*.py")} | {"_native"}
    future = {"config", "cli"}
    assert set(ROW_OF) - there <= future


def test_the_check_finds_an_upward_import():
    tree = ast.parse("from renaissance.task import Task\nfrom renaissance import cli")
    assert violations("memory", imported(tree)) == ["task", "cli"]
    assert violations("models", imported(ast.parse("import renaissance.task"))) == ["task"]
    assert violations("task", imported(ast.parse("from renaissance.memory import x"))) == []
    assert violations("losses", ["metrics"]) == ["metrics"]
    assert violations("arena", ["binding"]) == violations("loop", ["options"]) == []
    assert violations("options", ["loop"]) == ["loop"]
