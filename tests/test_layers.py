"""The direction of imports: a module may import only what stands in a lower row."""

import ast
import pathlib

import renaissance

ROOT = pathlib.Path(renaissance.__file__).parent
# A room is a file, or a folder whose files may import each other. Those of a row do not know each
# other; where a few belong together all the same, a row names them in one string.
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
        "bars",
        "figures",
    ],
    ["memory"],
    [
        "optim",
        "schedules",
        "losses foreign_losses",
        "metrics",
        "init fills",
        "precision",
        "ema",
        "nn",
    ],
    ["update", "data"],
    ["step"],
    ["checkpoint saver tensorfile"],
    ["hooks logs monitor"],
    ["callbacks", "score", "loggers", "progress", "history", "report facts"],
    ["assembly"],
    ["fit"],
    ["describe", "standing"],
    ["task"],
    ["config", "lrfinder"],
    ["cli"],
]
#: The files of a folder that import each other in one direction alone: each those before it.
ORDERED = {
    "assembly": [
        "scan",
        "pretrained",
        "frozen",
        "recipe",
        "carried",
        "fastpath",
        "misfit",
        "trial",
        "build",
    ],
    "fit": [
        "failures",
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
        "call",
    ],
}
ROOM_OF = {name: room for row in ROWS for room in row for name in room.split()}
ROW_OF = {name: i for i, row in enumerate(ROWS) for room in row for name in room.split()}
OUTSIDE = {"models": {"nn", "init"}, "datasets": {"data"}}


def place(path):
    """Where a file stands, "task" or "fit.loop"."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


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
    """Places in renaissance that a module imports when it runs: "task", "fit.loop"."""
    for node in running(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            package, _, rest = node.module.partition(".")
            if package == "renaissance" and (ROOT / rest.replace(".", "/")).is_dir():
                yield from (f"{rest}.{a.name}".lstrip(".") for a in node.names)
            elif package == "renaissance":
                yield rest
        elif isinstance(node, ast.ImportFrom):
            raise AssertionError("relative imports hide the direction; write renaissance.x")
        elif isinstance(node, ast.Import):
            for name in node.names:
                package, _, rest = name.name.partition(".")
                if package == "renaissance" and rest:
                    yield rest


def is_allowed(name, other):
    (room, _, file), (theirs, _, target) = name.partition("."), other.partition(".")
    if room == theirs and target in ORDERED.get(room, ()):
        return ORDERED[room].index(target) < ORDERED[room].index(file)
    if ROOM_OF.get(theirs) == ROOM_OF[room]:
        return True
    if theirs in OUTSIDE:
        return ROW_OF[room] >= ROW_OF["config"]
    return ROW_OF.get(theirs, 99) < ROW_OF[room]


def violations(name, others):
    room = name.partition(".")[0]
    if room in OUTSIDE:
        return [o for o in others if o.partition(".")[0] not in OUTSIDE[room] | {room}]
    return [o for o in others if not is_allowed(name, o)]


def test_imports_go_down_only():
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        if path == ROOT / "__init__.py" or path == ROOT / "__main__.py":
            continue
        name = place(path)
        room = name.partition(".")[0]
        assert room in ROW_OF or room in OUTSIDE, f"{path.name}: give it a row in ROWS"
        found = violations(name, imported(ast.parse(path.read_text())))
        wrong += [f"{path.relative_to(ROOT)} imports {other}" for other in found]
    assert not wrong, "\n".join(wrong)


def test_every_room_exists():
    there = {place(path).partition(".")[0] for path in ROOT.rglob("*.py")} | {"_native"}
    assert not set(ROW_OF) - there
    for room, files in ORDERED.items():
        assert {f"{file}.py" for file in [*files, "__init__"]} == {
            path.name for path in (ROOT / room).glob("*.py")
        }


def test_the_check_finds_an_upward_import():
    tree = ast.parse("from renaissance.task import Task\nfrom renaissance import cli")
    assert violations("memory.plan", imported(tree)) == ["task", "cli"]
    assert violations("models.mlp", imported(ast.parse("import renaissance.task"))) == ["task"]
    assert violations("task", imported(ast.parse("from renaissance.memory.plan import x"))) == []
    assert violations("losses", ["metrics"]) == ["metrics"]
    assert violations("memory.arena", ["memory.binding"]) == []
    loop = ast.parse("from renaissance.fit import loop")
    assert violations("fit.options", imported(loop)) == ["fit.loop"]
    assert violations("fit.loop", ["fit.options"]) == []
