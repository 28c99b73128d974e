"""User code arrives byte for byte, and what would be lost on the way is named with its line."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pulumi_trainer.code import entry_source, project_code, user_code
from pulumi_trainer.provider.kubernetes.values.unknown import Unknown
from pulumi_trainer.provider.pod import code
from pulumi_trainer.provider.targets.local.volumes import config_files

OUTSIDE = 7


def plain(epochs: int, path: str = "$HOME") -> None:
    import json

    text = f"`whoami` $5 off \\n {path} 'EOM'"
    print(json.dumps({"epochs": epochs, "text": text, "nested": [i + 1 for i in range(2)]}))


def uses_global() -> None:
    print(OUTSIDE)


def uses_import() -> Any:
    return functools.partial(print)


@functools.lru_cache
def decorated() -> None:
    print("x")


async def coroutine() -> None:
    print("x")


def recursive(n: int) -> int:
    return n and recursive(n - 1)


def closure() -> Any:
    captured = 1

    def inner() -> None:
        print(captured)

    return inner


def started(folder: Path, data: dict[str, Any], *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    for name, text in data.items():
        (folder / name).write_text(text)
    argv = [sys.executable, str(folder / code.BOOTSTRAP_FILE), *args]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, **env})


def test_a_function_arrives_byte_for_byte(tmp_path: Path) -> None:
    shipped = entry_source.from_function(plain)
    script = shipped.script
    assert not shipped.problems and not shipped.warnings
    lines = Path(__file__).read_text().splitlines(keepends=True)
    start = lines.index('def plain(epochs: int, path: str = "$HOME") -> None:\n')
    assert script.startswith("from __future__ import annotations\n" + "".join(lines[start : start + 5]))
    done = started(tmp_path, user_code.files(script, {"epochs": 3}, None, None, ""))
    assert json.loads(done.stdout) == {"epochs": 3, "text": "`whoami` $5 off \\n $HOME 'EOM'", "nested": [1, 2]}


def test_the_same_line_numbers_as_in_the_source() -> None:
    script = entry_source.from_function(plain).script
    assert script.splitlines()[4].strip().startswith("text = "), "below the line that keeps annotations unevaluated"


@pytest.mark.parametrize(
    ("func", "name", "line"),
    [
        (uses_global, "OUTSIDE", "print(OUTSIDE)"),
        (uses_import, "functools", "return functools.partial"),
        (decorated, "@functools.lru_cache", "@functools.lru_cache"),
        (closure(), "captured", "print(captured)"),
        (coroutine, "coroutine", "async def coroutine"),
        (lambda: 1, "lambda", ""),
    ],
)
def test_what_would_be_lost_is_named_with_its_line(func: Any, name: str, line: str) -> None:
    problems = entry_source.from_function(getattr(func, "__wrapped__", func)).problems
    assert problems, "the loss was not found"
    text = "\n".join(str(p) for p in problems)
    assert name in text
    if line:
        source = Path(__file__).read_text().splitlines()
        number = next(i for i, s in enumerate(source, 1) if s.strip().startswith(line))
        assert f"test_shipping.py:{number}" in text


def twice(func: Any) -> Any:
    @functools.wraps(func)
    def both(*args: Any, **more: Any) -> None:
        func(*args, **more)
        func(*args, **more)

    return both


def test_a_function_that_the_program_has_wrapped_is_refused() -> None:
    assert "is wrapped" in str(entry_source.from_function(twice(recursive)).problems[0])


def test_recursion_and_builtins_travel() -> None:
    assert not entry_source.from_function(recursive).problems


def test_not_a_function() -> None:
    assert "must be a plain function" in str(entry_source.from_function(print).problems[0])


def test_arguments_that_the_function_does_not_take() -> None:
    problem, _ = entry_source.argument_problems(plain, {"epoch": 3})
    assert "plain(" in str(problem) and "epoch" in str(problem)


def test_a_script_arrives_byte_for_byte(tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_bytes("import sys\nprint('$HOME `id` ä', sys.argv[1:])\n# EOM\n".encode())
    shipped = entry_source.from_script(source)
    script = shipped.script
    assert not shipped.problems and script.encode() == source.read_bytes()
    done = started(tmp_path, user_code.files(script, None, None, None, ""), "--lr", "$X")
    assert done.stdout == "$HOME `id` ä ['--lr', '$X']\n"


SCRIPTS = {
    "CRLF": b"print('a')\r\ntext = 'b\\\r\nc'\r\n",
    "a lone CR": b"print('a')\rprint('b')\r",
    "BOM": b"\xef\xbb\xbfprint('\xc3\xa4')\n",
    "latin-1": b"# coding: latin-1\r\nprint('\xe4')\n",
    "cookie of the second line": b"#!/usr/bin/python3\n# -*- coding: cp1252 -*-\nprint('\x80')\n",
    "no newline at the end": b"print('a')",
    "form feed": b"print('a')\n\x0c\nprint('b')\n\x0c",
    "empty": b"",
}


@pytest.mark.parametrize("kind", SCRIPTS)
def test_the_bytes_of_a_script_are_shipped(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "mine.py"
    file.write_bytes(SCRIPTS[kind])
    shipped = entry_source.from_script(file)
    assert not shipped.problems and shipped.exact == SCRIPTS[kind]
    data = user_code.with_exact_script({"main.py": shipped.script, "launch.json": "{}"}, shipped.exact)
    assert config_files({"ConfigMap/c": data}, "c")["main.py"] == SCRIPTS[kind]
    assert data["data"]["launch.json"] == "{}" and len([part for part in data.values() if "main.py" in part]) == 1


@pytest.mark.parametrize("ending", [b"\r\n", b"\r"])
def test_line_endings_make_no_other_script(tmp_path: Path, ending: bytes) -> None:
    file = tmp_path / "mine.py"
    file.write_bytes(b"print('a')\nprint('b')\n".replace(b"\n", ending))
    assert entry_source.from_script(file).script == "print('a')\nprint('b')\n"


@pytest.mark.parametrize(
    ("content", "says"), [(None, "no such file"), (b"\xff\xfe", "not UTF-8"), (b"def x(:\n", "mine.py:1")]
)
def test_a_script_that_cannot_be_shipped(tmp_path: Path, content: bytes | None, says: str) -> None:
    file = tmp_path / "mine.py"
    if content is not None:
        file.write_bytes(content)
    assert says in str(entry_source.from_script(file).problems[0])


def test_a_script_that_may_never_end_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    for path in (tmp_path / "pipe.py", "/dev/zero", tmp_path):
        (problem,) = entry_source.from_script(path).problems
        assert str(problem) == f"script: {path} is not a regular file"
    with (tmp_path / "large.py").open("wb") as file:
        file.truncate(5 << 30)
    (problem,) = entry_source.from_script(tmp_path / "large.py").problems
    assert "large.py has 5368709120 bytes, and a ConfigMap holds 900000" in str(problem)


@pytest.mark.parametrize(
    "word", ["scikit learn", "not a requirement!!", "torch=2.0", "numpy 1.2", "", "torch torchvision", "torch, numpy"]
)
def test_a_requirement_that_pip_cannot_read(word: str) -> None:
    [problem] = user_code.package_problems({"packages": ["torch", word, "numpy"]})
    assert problem.where == "packages_to_install[1]"
    assert f"{word!r} is not a valid requirement: Expected " in problem.why


@pytest.mark.parametrize(
    "words",
    [
        [
            "torch>=2.6,<3",
            "lightning[extra]==2.*",
            "numpy ; python_version < '3.13'",
            "x~=1.0",
            "x @ https://host/x.whl",
        ],
        ["git+https://host/x@main", "https://host/x.zip", "file:///x", "./mine", ".", "/mnt/x[extra]", "wheels/x.whl"],
        ["x-1.0-py3-none-any.whl", "x.tar.gz", "x.whl[extra]", "../up"],
        ["--find-links", "a folder", "-r", "my requirements.txt", "--no-deps", "-e", "some where", "--index-url=x y"],
        [Unknown("a"), "torch"],
    ],
)
def test_what_pip_can_read(words: list[Any]) -> None:
    assert user_code.package_problems({"packages": words}) == []


@pytest.mark.parametrize("option", ["--extra-index-url https://a.b/c", "-r requirements.txt", "-e ."])
def test_an_option_and_its_value_are_two_words(option: str) -> None:
    [problem] = user_code.package_problems({"packages": ["torch", option]})
    name, value = option.split()
    assert problem.where == "packages_to_install[1]" and "are one word" in problem.why
    assert problem.hint == f'write them as two items: "{name}", "{value}"'


def test_a_requirement_that_holds_a_secret_is_not_shown() -> None:
    assert user_code.package_problems({"packages": ["x --token=hf_" + "aB3" * 12]}) == []


@pytest.mark.parametrize(("processes", "variable"), [("auto", "1"), ("2", "1"), ("1", None)])
def test_the_output_of_several_processes_is_not_kept_back(tmp_path: Path, processes: str, variable: str | None) -> None:
    starter = tmp_path / "torchrun"
    starter.write_text(f"#!{sys.executable}\nimport os\nprint(repr(os.environ.get('PYTHONUNBUFFERED')))\n")
    starter.chmod(0o755)
    for name, text in user_code.files("", None, None, None, "torch").items():
        (tmp_path / name).write_text(text)
    argv = [sys.executable, str(tmp_path / code.BOOTSTRAP_FILE)]
    env = {"PATH": str(tmp_path), "PET_NPROC_PER_NODE": processes}
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=True)
    assert done.stdout == f"{variable!r}\n"


def test_a_launcher_that_is_missing(tmp_path: Path) -> None:
    data = user_code.files("print(1)\n", None, None, None, "torch")
    for name, text in data.items():
        (tmp_path / name).write_text(text)
    argv = [sys.executable, str(tmp_path / code.BOOTSTRAP_FILE)]
    done = subprocess.run(argv, capture_output=True, text=True, env={"PATH": str(tmp_path)}, check=False)
    assert done.returncode == 1 and "torchrun is not on PATH" in done.stderr and "Traceback" not in done.stderr


def _json(given: int = 1) -> None:
    print(given)


def _fails(given: int = 1) -> None:
    raise ValueError(given)


@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "[default1]:", "[default1]:[rank1]: "])
@pytest.mark.parametrize("imported", [False, True])
def test_a_traceback_begins_with_the_function(tmp_path: Path, imported: bool, prefix: str) -> None:
    script = entry_source.from_function(_fails).script
    if imported:
        script = project_code._IMPORTED.format(module="mine", name="fails")
    (tmp_path / "mine.py").write_text("def fails(given):\n    raise ValueError(given)\n")
    (tmp_path / "start.py").write_text(script)
    (tmp_path / "func_args.json").write_text('{"given": 3}')
    done = subprocess.run([sys.executable, str(tmp_path / "start.py")], capture_output=True, text=True)
    printed = "".join(f"{prefix}{line}\n" for line in ["epoch 1", *done.stderr.splitlines()])
    assert ", in <module>" in printed
    first, title, place, source, *_, last = code.with_user_tracebacks(printed).splitlines()
    assert (first, title) == (f"{prefix}epoch 1", f"{prefix}Traceback (most recent call last):")
    assert place.startswith(f'{prefix}  File "') and place.endswith("fails")
    assert (source, last) == (f"{prefix}    raise ValueError(given)", f"{prefix}ValueError: 3")


@pytest.mark.parametrize(
    "folder",
    [
        "/opt/pulumi-trainer/source/project/",
        "/home/me/my work/.pulumi-trainer/jobs/team/digits/pods/digits-node-0-0/volumes/trainer-source/project/",
        "/tmp/pulumi-trainer-4e613378-s7ydf1rg/main.py-9hnq904w/",
    ],
)
@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "[default1]:[rank1]: "])
def test_lines_name_the_files_of_the_user(folder: str, prefix: str) -> None:
    def shown(line: str) -> str:
        return code.with_user_paths(f"{prefix}{line}").removeprefix(prefix)

    assert shown(f'  File "{folder}sub/other.py", line 6, in f') == '  File "sub/other.py", line 6, in f'
    assert shown(f"{folder}sub/warn.py:2: UserWarning: old") == "sub/warn.py:2: UserWarning: old"
    for line in (f"reads {folder}a.txt", f"{folder}a.txt", f"{folder}a.txt:7", "/usr/lib/x.py:2: UserWarning: old"):
        assert shown(line) == line


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ['File "', "/main.py-", "/main.py-x/", "[rank0]: /main.py-x/", "/x", "/main.py-x/\n"])
def test_hostile_lines_do_not_hold_us_up(piece: str) -> None:
    code.with_user_paths(piece * (1_000_000 // len(piece)))


def test_a_traceback_of_the_call_alone_stays(tmp_path: Path) -> None:
    (tmp_path / "start.py").write_text(entry_source.from_function(_fails).script)
    (tmp_path / "func_args.json").write_text('{"other": 3}')
    done = subprocess.run([sys.executable, str(tmp_path / "start.py")], capture_output=True, text=True)
    assert "unexpected keyword" in done.stderr and code.with_user_tracebacks(done.stderr) == done.stderr


def test_a_function_may_have_the_name_of_a_module_that_its_call_needs(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(entry_source.from_function(_json).script)
    (tmp_path / "func_args.json").write_text('{"given": 3}')
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout == "3\n"


@pytest.mark.parametrize("line", [1, 2, 3, 40])
@pytest.mark.parametrize("start", ["", "from __future__ import annotations\n"])
def test_tracebacks_have_the_line_of_the_file(tmp_path: Path, line: int, start: str) -> None:
    script = start + "def train(x: int):\n    raise ValueError(x)\n\ntrain(1)\n"
    done = started(tmp_path, user_code.files(script, {"x": 1}, None, None, "", line=line))
    expected = max(line, 2 if start else 1) + 1
    assert f'main.py", line {expected}, in train\n    raise ValueError(x)' in done.stderr


@pytest.mark.parametrize("slot", [False, True])
@pytest.mark.parametrize(
    ("line", "name"), [(40, "jobs/json.py"), (1, "jobs/json.py"), (1, "größe.py"), (9, ".text/main.py")]
)
def test_tracebacks_name_the_file_of_the_project(tmp_path: Path, line: int, name: str, slot: bool) -> None:
    """Other files of its name are still imported: json here."""
    script = (
        "def train(x: int):\n    raise ValueError(x)\n\nimport json, sys; print(json.dumps(sys.argv[1:]))\ntrain(1)\n"
    )
    data = user_code.files(script, {"x": 1}, None, None, "mpi" if slot else "", line=line, file=name)
    if slot:
        data["launch.json"] = json.dumps({**json.loads(data["launch.json"]), "launcher": [sys.executable]})
    done = started(tmp_path, data, "--a", OMPI_COMM_WORLD_RANK="1") if slot else started(tmp_path, data, "--a")
    assert done.stdout == '["--a"]\n', done.stderr
    shown = code.with_user_tracebacks(done.stderr)
    if name != ".text/main.py":
        assert f'File "{name}", line {line + 1}, in train\n    raise ValueError(x)' in shown
    assert "FileExistsError" not in shown and "ValueError: 1\n" in shown


@pytest.mark.parametrize("line", [1, 40])
def test_files_of_the_job_do_not_hide_modules_of_the_user(tmp_path: Path, line: int) -> None:
    own = tmp_path / "own"
    own.mkdir()
    for name in ("main", "training", "run_program", "bootstrap"):
        (own / f"{name}.py").write_text(f"MINE = '{name}'\n")
    script = "def train():\n    import bootstrap, main, run_program, training\n    print(main.MINE, training.MINE)\n\ntrain()\n"
    data = user_code.files(script, None, None, None, "", line=line, file="train.py", training=True)
    done = started(tmp_path, data, PYTHONPATH=str(own))
    assert done.stdout == "main training\n", done.stderr


def test_a_function_has_its_file_in_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_source, "project_folder", lambda: Path(__file__).resolve().parents[1])
    assert entry_source.from_function(plain).file == "unit/test_shipping.py"
    monkeypatch.setattr(entry_source, "project_folder", lambda: tmp_path)
    assert entry_source.from_function(plain).file == "test_shipping.py", "no folder of this machine"
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "train.py").write_text("print(1)\n")
    assert entry_source.from_script(tmp_path / "jobs" / "train.py").file == "jobs/train.py"


def test_a_container_that_cannot_write_runs_the_script_as_it_is(tmp_path: Path) -> None:
    script = "import json, pathlib\nprint(pathlib.Path(__file__).with_name('func_args.json').read_text(), __file__)\n"
    for name, text in user_code.files(script, {"x": 1}, None, None, "", line=9).items():
        (tmp_path / name).write_text(text)
    limit = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); os.execv(sys.executable, sys.argv)"
    argv = [sys.executable, "-c", limit, "-B", str(tmp_path / code.BOOTSTRAP_FILE)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.stdout == f'{{"x": 1}} {tmp_path}/main.py\n', done.stderr
