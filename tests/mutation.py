"""Changes the library one small step at a time, to see whether the tests notice.

    python tests/mutation.py agents posteriors.ensemble --sample 40 --seed 1

applies mutants (a comparison, sign, number, truth value or order of arguments changed) one by one
to a copy of the package, runs the tests of the module's room, and prints the mutants that
survive. What was tried is kept in a JSON file and not tried again; delete it to start anew.
"""

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "ensemble_sampling"
SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Pow: ast.Mult, ast.Mod: ast.Mult, ast.MatMult: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """The node with one thing changed, for every thing there is to change."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield _with(node, ops=[SWAPS[type(node.ops[0])](), *node.ops[1:]])
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS:
        yield _with(node, op=SWAPS[type(node.op)]())
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub | ast.Invert):
        yield node.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield _with(node, value=not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield _with(node, value=node.value + 1)
    if isinstance(node, ast.Call) and len(node.args) >= 2 and _distinct(*node.args[:2]):
        yield _with(node, args=[node.args[1], node.args[0], *node.args[2:]])
    if isinstance(node, ast.IfExp):
        yield _with(node, body=node.orelse, orelse=node.body)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call):
        yield node.value.args[0] if _is_split(node.value) else node


def _with(node: ast.AST, **fields: object) -> ast.AST:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _distinct(one: ast.expr, two: ast.expr) -> bool:
    starred = isinstance(one, ast.Starred) or isinstance(two, ast.Starred)
    return not starred and ast.dump(one) != ast.dump(two)


def _is_split(call: ast.Call) -> bool:
    """`jax.random.split(key)[i]`, which one might have written as `key`."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "split"


def spots(tree: ast.AST) -> Iterator[tuple[ast.AST, str, int | None]]:
    """(parent, field, position) of everything whose value counts: no annotations, no messages."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list") or isinstance(tree, ast.Raise):
            continue
        for position, child in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield tree, field, position if isinstance(value, list) else None
                yield from spots(child)


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """(what was changed, the whole text with that change)."""
    tree = ast.parse(source)
    for parent, field, position in list(spots(tree)):
        value = getattr(parent, field)
        old = value if position is None else value[position]
        for new in changes(old):
            if ast.dump(new) == ast.dump(old):
                continue
            _put(parent, field, position, new)
            said = f"line {getattr(old, 'lineno', 0)}: {ast.unparse(old)} -> {ast.unparse(new)}"
            yield said, ast.unparse(ast.fix_missing_locations(tree))
            _put(parent, field, position, old)


def _put(parent: ast.AST, field: str, position: int | None, node: ast.AST) -> None:
    if position is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[position] = node


def tests_of(module: str) -> list[str]:
    """Those of its room; and the contract and the bad input, which all rooms share."""
    room = module.partition(".")[0]
    own = f"tests/{room}" if (ROOT / "tests" / room).is_dir() else f"tests/test_{room}.py"
    return [own, "tests/test_contract.py", "tests/test_bad_input.py"]


def noticed(home: Path, tests: list[str], limit: float) -> bool:
    """Whether the tests fail, or take too long, with the package as it is in `home`."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        run = subprocess.run(
            command, cwd=ROOT, env=environment, timeout=limit, capture_output=True, check=False
        )
    except subprocess.TimeoutExpired:
        return True
    return run.returncode != 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("modules", nargs="+", help="such as agents.thompson")
    parser.add_argument("--tests", nargs="+", help="test files, in place of those of its room")
    parser.add_argument("--sample", type=int, help="try so many of a module's mutants, at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=300, help="seconds for one mutant")
    parser.add_argument("--results", type=Path, default=Path("mutation.json"))
    options = parser.parse_args()
    results = json.loads(options.results.read_text()) if options.results.exists() else {}
    for module in options.modules:
        tests = options.tests or tests_of(module)
        relative = Path(*module.split(".")).with_suffix(".py")
        found = list(mutants((PACKAGE / relative).read_text()))
        if options.sample is not None:
            found = random.Random(options.seed).sample(found, min(options.sample, len(found)))
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            shutil.copytree(PACKAGE, home / PACKAGE.name, ignore=shutil.ignore_patterns("*.pyc"))
            if noticed(home, tests, options.limit):
                sys.exit(
                    f"{module}: its tests fail or exceed {options.limit:g} s as it is: {tests}"
                )
            for said, text in found:
                known = results.setdefault(module, {})
                if said not in known:
                    (home / PACKAGE.name / relative).write_text(text)
                    known[said] = noticed(home, tests, options.limit)
                    options.results.write_text(json.dumps(results, indent=1))
                if not known[said]:
                    print(f"survived  {module} {said}", flush=True)
        tried = [results[module][said] for said, _ in found]
        print(f"{module}: {sum(tried)} of {len(tried)} mutants noticed", flush=True)


if __name__ == "__main__":
    main()
