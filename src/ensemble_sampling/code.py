"""The code of what users write: loaded from a file of theirs, and as a digest.

An edited function of the same name is another.
"""

import ast
import functools
import hashlib
import inspect
import linecache
import os
import sys
import textwrap
import traceback
import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

OTHERS = {"jax", "jaxlib", "equinox", "optax", "numpy", "builtins", "functools"}
KNOWN = {__name__.partition(".")[0], *OTHERS}
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def load(path: str | os.PathLike[str]) -> types.ModuleType:
    """A user's Python file as a module; it is run, and what it gets wrong is said with its line."""
    file = Path(path).resolve()
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    there = sys.modules.get(file.stem)
    taken = there is not None and there.__spec__ is not None and there.__file__ != str(file)
    if taken or file.stem in {*sys.stdlib_module_names, "__main__"}:
        raise ValueError(f"{path}: a module is called {file.stem!r} already; rename the file")
    module = types.ModuleType(file.stem)
    module.__file__ = str(file)
    sys.modules[file.stem] = module
    if str(file.parent) not in sys.path:  # as for a script: its neighbours can be imported
        sys.path.insert(0, str(file.parent))
    try:
        exec(compile(file.read_bytes(), str(file), "exec"), vars(module))
    except Exception as error:
        del sys.modules[file.stem]
        raise ValueError(f"{path}{_line(error, file)}: {type(error).__name__}: {error}") from error
    return module


def _line(error: Exception, file: Path) -> str:
    """Where in the file it happened."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(file)]
    return f", line {lines[-1]}" if lines else ""


def code_of(thing: Any) -> str | None:
    """A digest of a user's function or class, and of those of theirs that it uses.

    Made from the text without comments and layout or, where there is none (an interactive
    session), from the bytecode. None for what belongs to an installed package or to this one:
    there the version counts, which results record.
    """
    texts = sorted(set(_texts(thing, set())))
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16] if texts else None


def _texts(thing: Any, seen: set[int]) -> Iterator[str]:
    """The text of `thing` and of everything of the user's own that it refers to."""
    thing = inspect.unwrap(thing) if callable(thing) else thing
    thing = getattr(thing, "__func__", thing)  # a bound method's
    if not isinstance(thing, type | types.FunctionType) or id(thing) in seen:
        return
    if not is_own_module(thing.__module__ or "__main__"):
        return
    seen.add(id(thing))
    yield _source(thing) or _bytecode(thing)
    relatives: list[Any] = list(getattr(thing, "__bases__", ()))
    for function in _functions(thing).values():
        relatives += [function.__globals__.get(name) for name in _names(function.__code__)]
    for relative in relatives:
        if isinstance(relative, type | types.FunctionType) or hasattr(relative, "__wrapped__"):
            yield from _texts(relative, seen)


def _functions(thing: Any) -> dict[str, types.FunctionType]:
    """A function itself, or those behind the methods, properties and static methods of a class."""
    members = vars(thing) if isinstance(thing, type) else {thing.__name__: thing}
    found = {}
    for name, member in members.items():
        for inside in ("fget", "__func__", "__wrapped__", "method"):
            member = getattr(member, inside, None) or member
        if isinstance(member, types.FunctionType):
            found[name] = member
    return found


def _names(code: types.CodeType) -> set[str]:
    """Every global name that a function uses, also within those it defines."""
    inner = (_names(c) for c in code.co_consts if isinstance(c, types.CodeType))
    return set(code.co_names).union(*inner)


def is_own_module(module: str) -> bool:
    """Whether a user wrote it: no part of Python, of an installed package, or of this one."""
    if module == "__main__":
        return True
    if module.split(".")[0] in (__package__, *sys.stdlib_module_names):
        return False
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return not {"site-packages", "dist-packages"}.intersection(Path(file).parts)


def _source(thing: Any) -> str | None:
    """The text of one definition; None where there is none, or more than one it could be."""
    if isinstance(thing, type):
        try:
            return ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(thing))))
        except (OSError, TypeError, SyntaxError):
            return None
    linecache.checkcache(thing.__code__.co_filename)
    lines = linecache.getlines(thing.__code__.co_filename, thing.__globals__)
    found = {ast.unparse(n) for n in _definitions(tuple(lines)) if _made(thing.__code__, n)}
    return found.pop() if len(found) == 1 else None


@functools.lru_cache(maxsize=16)
def _definitions(lines: tuple[str, ...]) -> tuple[Definition, ...]:
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:  # a notebook's cell with more than Python in it
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, Definition))


def _made(code: types.CodeType, node: Definition) -> bool:
    """Whether the code object was compiled from this definition."""
    if isinstance(node, ast.Lambda):
        body = node.body
        span = (body.lineno, body.end_lineno, body.col_offset, body.end_col_offset)
        return code.co_name == "<lambda>" and span in set(code.co_positions())
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return node.name == code.co_name and first == code.co_firstlineno


def _bytecode(thing: Any) -> str:
    found = {name: _instructions(f.__code__) for name, f in sorted(_functions(thing).items())}
    return f"{thing.__qualname__} {found}" if isinstance(thing, type) else found[thing.__name__]


def _instructions(code: types.CodeType) -> str:
    """What a function does, whatever its file and lines."""
    constants = [_instructions(c) if isinstance(c, types.CodeType) else c for c in code.co_consts]
    ordered = [sorted(map(repr, c)) if isinstance(c, frozenset) else repr(c) for c in constants]
    return f"{code.co_name} {code.co_code.hex()} {ordered} {code.co_names} {code.co_varnames}"


def is_known(thing: Any) -> bool:
    """Whether all of it is plain data, this package's, or of libraries whose version says what
    they do.

    A function or class has to be what its module has under its name: decorators copy the name of
    what they wrap, and two closures of one name need not do the same.
    """
    if isinstance(thing, type) or (callable(thing) and hasattr(thing, "__qualname__")):
        return _is_found_by_name(thing)
    if thing is not None and not _is_found_by_name(type(thing)):
        return False
    if isinstance(thing, functools.partial):
        return is_known((thing.func, thing.args, thing.keywords))
    if is_dataclass(thing):
        return all(is_known(getattr(thing, field.name, None)) for field in fields(thing))
    if isinstance(thing, dict | list | tuple):
        return all(map(is_known, thing.values() if isinstance(thing, dict) else thing))
    return not callable(thing)


def _is_found_by_name(thing: Any) -> bool:
    module = getattr(thing, "__module__", None) or ""
    if module.partition(".")[0] not in KNOWN:
        return False
    found: Any = sys.modules.get(module)
    for name in thing.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is thing
