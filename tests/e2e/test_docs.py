"""The pages are true: every command in them runs, in order, and prints what the page shows.

The info string of a code block of README.md or docs/*.md says what it is:

    ```sh             run by `bash -eu`, a shell for each block, all of a page in one fresh directory
    ```sh background  one command that serves until Ctrl-C: started, its first line awaited, and stopped with
                      Ctrl-C behind the page's last block; it then ends with 0 or 130
    ```sh board       needs a real bridge or card,
    ```sh phone       a real phone, or what builds for one,
    ```sh checkout    the source tree,
    ```sh install     changes the machine,
    ```sh fragment    leaves something to the reader,
    ```sh long        takes minutes, and has a test of its own: these are parsed, and not run
    ```sh thorough    is what tests in ELSEWHERE do, too: run with `--thorough`, and else parsed
    ```text           directly behind a block that runs: each of its lines occurs in the block's output, in
                      this order; `...` stands for anything, and any blanks for any other
    ```python         run like ```sh; ```python fragment is part of a program, and compiled

Other languages are for the reader, or for the tests in ELSEWHERE.
"""

import contextlib
import json
import os
import re
import resource
import select
import shlex
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from firmware.asm2464pd import image
from sdk import cache
from sdk.importers import load_model
from sdk.quantizer import quantize
from sdk.zoo import digits
from tests.amount import amount
from tests.tflite_writer import from_graph
from towline.cli import main, parser

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

WORDS = {
    "sh": {"", "background", "board", "phone", "checkout", "install", "long", "thorough", "fragment"},
    "python": {"", "fragment"},
    **{language: {""} for language in ("text", "console", "c", "json", "toml")},
}
"""What may stand in info strings: languages, and the words behind them."""
ELSEWHERE = {
    ("README.md", "python"): ["test_readme.py"],
    ("docs/adding-a-target.md", "python"): ["test_export.py"],
    ("docs/telemetry.md", "console"): ["test_gpu_telemetry.py"],
    ("docs/car.md", "sh thorough"): ["test_gpu_care.py"],
    ("docs/compile.md", "sh thorough"): ["test_cli.py"],
    ("docs/docks.md", "sh thorough"): ["test_gpu_stress.py"],
    ("docs/firmware.md", "sh thorough"): ["test_coverage.py"],
    ("docs/firmware-tutorial.md", "sh thorough"): ["test_coverage.py"],
    ("docs/float.md", "sh thorough"): ["../unit/test_adreno_plain.py", "test_float_networks.py"],
    ("docs/gpu.md", "sh thorough"): ["test_bench_gemm.py", "test_gpu_cli.py"],
    ("docs/quantize.md", "sh thorough"): ["../unit/test_quantizer_options.py"],
}
"""Blocks that are run, but not here, or not here each time, and by what."""
COMMANDS = parser()
SECONDS = 300
"""Wall time that a block may take."""
QUANTIZE = "towline quantize net.onnx --calibrate pictures/ -o q.onnx"
"""A line of many pages, which takes seconds. Equal files give equal bytes: a later page with those of an
earlier one gets what that has made and printed."""
QUANTIZE_ONCE = f"""kept="$TOWLINE_TEST_KEPT/$(cat net.onnx pictures/* | sha256sum | cut -c -64)"
if [[ -d $kept ]]; then
  cp "$kept/q.onnx" .
  cat "$kept/said"
else
  {QUANTIZE} 2>&1 | tee said
  mkdir "$kept"
  cp q.onnx "$kept"
  mv said "$kept"
fi"""
OPERATOR = re.compile(r"[|&;<>()]+")


@dataclass
class Block:
    """A fenced block.

    Attributes:
        line: of its opening fence, from 1.
        language, word: of its info string.
        output: the ```text directly behind it.
    """

    line: int
    language: str
    word: str
    text: str
    output: str = ""

    @property
    def runs(self):
        run = {("sh", ""), ("sh", "background"), ("python", ""), *amount((), (("sh", "thorough"),))}
        return (self.language, self.word) in run

    @property
    def argv(self):
        if self.language == "python":
            return [sys.executable, "-c", self.text]
        text = re.sub(f"^{re.escape(QUANTIZE)}$", lambda match: QUANTIZE_ONCE, self.text, flags=re.M)
        return ["bash", "-euo", "pipefail", "-c", text]


def name(page):
    """Of a page, from the top of the tree."""
    return page.relative_to(ROOT).as_posix()


def blocks_of(page):
    """The blocks of a page, in order."""
    found, behind = [], None
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"^```(.*)\n((?:.*\n)*?)```$", text, re.M):
        language, _, word = match[1].partition(" ")
        block = Block(text.count("\n", 0, match.start()) + 1, language, word, match[2])
        if language == "text" and behind and not text[behind : match.start()].strip():
            found[-1].output = block.text
        behind = match.end()
        found.append(block)
    return found


def runs_here(page, block):
    return block.runs and (name(page), block.language) not in ELSEWHERE


# -- quick: the blocks are well formed, and the commands parse --------------------------------------------


def command_lines(script):
    """The words of each `towline` command of a script, up to the first operator of the shell."""
    ends_at = None
    for line in re.sub(r"\\\n", " ", script).splitlines():
        if ends_at is not None:  # within a here-document
            ends_at = None if line == ends_at else ends_at
            continue
        if opens := re.search(r"<<\s*(['\"]?)(\w+)\1", line):
            ends_at = opens[2]
        if "towline " not in line:
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
        while words and re.match(r"\w+=", words[0]):
            words = words[1:]
        end = next((i for i, word in enumerate(words) if OPERATOR.fullmatch(word)), len(words))
        if end < len(words) and words[end].startswith((">", "<")) and words[end - 1] in {"1", "2"}:
            end -= 1
        if words and words[0] == "towline":
            yield words[1:end]


def test_the_words_of_commands_are_found():
    script = (
        "A=1 towline run a \\\n  'b c' 2> x # d\ncat <<'END'\ntowline no\nEND\ntowline bench d | tail\nls"
    )
    assert list(command_lines(script)) == [["run", "a", "b c"], ["bench", "d"]]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_blocks_of_the_page_are_well_formed(page, capsys):
    text = page.read_text(encoding="utf-8")
    blocks = blocks_of(page)
    assert len(re.findall(r"^```", text, re.M)) == 2 * len(blocks), "a fence is not closed"
    for block in blocks:
        where = f"{name(page)}:{block.line}"
        if block.language:
            assert block.word in WORDS.get(block.language, ()), f"{where}: ```{block.language} {block.word}"
        if block.language == "console":
            assert (name(page), "console") in ELSEWHERE, (
                f"{where}: make it ```sh, and ```text for what it prints"
            )
        if block.word == "thorough":
            assert (name(page), "sh thorough") in ELSEWHERE, f"{where}: which test does this each time?"
        if block.language == "python":
            compile(block.text, where, "exec")
        if block.language != "sh":
            continue
        if not block.runs:
            subprocess.run(["bash", "-n", "-c", block.text], check=True)
        for words in command_lines(block.text):
            try:
                assert COMMANDS.parse_args(words).verb
            except SystemExit:
                pytest.fail(f"{where}: towline {shlex.join(words)}\n{capsys.readouterr().err}")


# -- slow: they run ---------------------------------------------------------------------------------------


@dataclass
class Shell:
    """Runs blocks in one directory."""

    home: Path
    environment: dict[str, str]

    def start(self, block, **streams):
        return subprocess.Popen(
            block.argv,
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **streams,
        )

    def run(self, block):
        """The output of a block that runs to its end, and the exit code."""
        process = self.start(block, stdout=subprocess.PIPE)
        try:
            output, _ = process.communicate(timeout=SECONDS)
        except BaseException:  # the shell may have ended before what it has started
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return output, process.returncode

    def serve(self, block):
        """A block in the background, once it has written a line."""
        process = self.start(block, stdout=subprocess.PIPE)
        if not select.select([process.stdout], [], [], SECONDS)[0]:
            stop(process, signal.SIGKILL)
            pytest.fail(f"wrote nothing in {SECONDS} s:\n{block.text}")
        return process


def stop(process, number):
    """A signal to a shell and all that it has started."""
    if process.poll() is None:
        os.killpg(process.pid, number)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A directory for what `QUANTIZE_ONCE` has made."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def shell(tmp_path, kept):
    """A directory as a new user has it, with a shared cache, except for what the user has tuned.

    A kind of thing that the cache does not have yet is left to it: a later page need not make it again.
    """
    home, private = tmp_path / "page", tmp_path / "cache"
    home.mkdir()
    private.mkdir()
    shared = cache.directory("x").parent
    shared.mkdir(parents=True, exist_ok=True)
    for kind in shared.iterdir():
        if kind.name != "tuning":
            (private / kind.name).symlink_to(kind, target_is_directory=True)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TOWLINE_CACHE": str(private),
        "TOWLINE_STATE": str(tmp_path / "state"),
        "TOWLINE_TEST_KEPT": str(kept),
        "PYTHONUNBUFFERED": "1",  # so that the order of both streams is that of a terminal
    }
    yield Shell(home, environment)
    for kind in private.iterdir():
        if kind.name != "tuning" and not kind.is_symlink():
            with contextlib.suppress(OSError):  # another process was first, or the cache is on another disk
                kind.rename(shared / kind.name)


def missing_tool(output, code):
    """What the machine lacks for a block, a tool or a free port, if that is why it failed."""
    found = None
    if code == 3:
        found = re.search(r"^towline: error: (.*(?:not found|Address already in use).*)$", output, re.M)
    elif code == 127:
        found = re.search(r"(\S+: command not found)$", output, re.M)
    return found and found[1]


def blanks_as_one(text):
    return " ".join(text.split())


def first_missing(quoted, output):
    """The first line of a quotation that is not in the output behind the one before; None if all are."""
    lines = iter(map(blanks_as_one, output.splitlines()))
    for line in map(blanks_as_one, quoted.splitlines()):
        pattern = ".*".join(re.escape(part.strip()) for part in line.split("..."))
        if line != "..." and not any(re.search(pattern, candidate) for candidate in lines):
            return line
    return None


@pytest.mark.parametrize(
    ("quoted", "missing"),
    [
        ("a  b\nc", None),
        ("a ... d\n...\ne", None),
        ("c ... d", None),
        ("c\na b", "a b"),
        ("b...x", "b...x"),
        ("d d", "d d"),
    ],
)
def test_quotations_are_compared(quoted, missing):
    assert first_missing(quoted, "x\na b  c d\nc d\n e\n") == missing


def test_servers_are_awaited_and_stopped(shell):
    server = Block(
        1, "sh", "background", "trap 'echo down; exit 130' INT; echo up; while :; do sleep 0.02; done"
    )
    process = shell.serve(server)
    stop(process, signal.SIGINT)
    assert process.communicate(timeout=SECONDS) == ("up\ndown\n", None)
    assert process.returncode == 130


def test_a_block_ends_at_its_first_failure(shell):
    assert shell.run(Block(1, "sh", "", "echo a; false | cat; echo b")) == ("a\n", 1)
    output, code = shell.run(Block(1, "sh", "", "no-such-tool --help"))
    assert missing_tool(output, code) == "no-such-tool: command not found"


def cpu_seconds():
    """Of all that has been started and has ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def check(page, block, output, code, allowed=(0,)):
    where = f"{name(page)}:{block.line}"
    if lacking := missing_tool(output, code):
        pytest.skip(f"{where}: {lacking}")
    assert code in allowed, f"{where}: exit code {code} of\n{block.text}\n{output}"
    missing = first_missing(block.output, output)
    assert missing is None, f"{where}: it does not print {missing!r}, but\n{output}"


def readers_own(home):
    """What the reader of README.md has already: a float model, pictures, one of them to look at."""
    (home / "net.onnx").write_bytes(digits().model.read_bytes())
    (home / "pictures").mkdir()
    pictures = digits().write_pictures(home / "pictures", 20)
    (home / "cat.jpg").write_bytes(pictures[0].read_bytes())


def readers_tflite(home):
    """A .tflite, which nothing in the package makes, and a picture."""
    quantize(digits().model, digits().calibration()[:8], home / "q.onnx")
    (home / "net.tflite").write_bytes(from_graph(load_model(home / "q.onnx")))
    (picture,) = digits().write_pictures(home, 1)
    picture.rename(home / "picture.jpg")


PREPARED = {"README.md": readers_own, "docs/tflite.md": readers_tflite}
"""What a page's reader has already, by page; other pages begin in an empty directory."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(runs_here(page, block) for block in blocks_of(page))],
    ids=name,
)
def test_the_page_does_what_it_says(page, shell):
    if name(page) in PREPARED:
        PREPARED[name(page)](shell.home)
    servers = []
    before = cpu_seconds()
    try:
        for block in blocks_of(page):
            if not runs_here(page, block):
                continue
            if block.word == "background":
                servers.append((block, shell.serve(block)))
            else:
                check(page, block, *shell.run(block))
        for block, process in servers:
            stop(process, signal.SIGINT)
            output, _ = process.communicate(timeout=SECONDS)
            check(page, block, output, process.returncode, allowed=(0, 130))
    finally:
        for _, process in servers:
            stop(process, signal.SIGKILL)
    print(f"{name(page)}: {cpu_seconds() - before:.1f} s of CPU")


def test_every_exception_is_needed():
    """ELSEWHERE names tests and blocks that exist."""
    found = Counter(
        (name(page), words)
        for page in PAGES
        for block in blocks_of(page)
        for words in (block.language, f"{block.language} {block.word}")
    )
    for words, tests in ELSEWHERE.items():
        assert found[words]
        assert all((Path(__file__).parent / test).exists() for test in tests)


# -- what the tutorials rely on --------------------------------------------------------------------------


def test_demo_leaves_files_to_begin_with(tmp_path, capsys):
    assert main(["demo", "--files", str(tmp_path / "new"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)["result"]
    assert Path(document["model"]).read_bytes() == digits().model.read_bytes()
    assert len(document["pictures"]) == len(list((tmp_path / "new" / "pictures").iterdir())) == 100
    (tmp_path / "file").write_text("")
    assert main(["demo", "--files", str(tmp_path / "file")]) == 1
    assert "pictures: cannot be created" in capsys.readouterr().err
    assert main(["demo", "--files", str(tmp_path), "--target", "c"]) == 2


def test_code_is_wrapped(tmp_path, capsys):
    code, wrapped = tmp_path / "code.bin", tmp_path / "wrapped.bin"
    code.write_bytes(bytes.fromhex("80007F03DFFE80FE"))
    assert main(["firmware", "build", "--wrap", str(code), "-o", str(wrapped)]) == 0
    assert image.unwrap(wrapped.read_bytes()) == code.read_bytes()
    assert main(["firmware", "build", "--check", str(wrapped)]) == 0
    nowhere = tmp_path / "nowhere.ihx"
    nowhere.write_text(":01FFFF0002FF\n:020000040001F9\n:01FFFF0002FF\n:00000001FF\n")
    assert main(["firmware", "build", "--wrap", str(nowhere), "-o", str(wrapped)]) == 1
    assert "nowhere.ihx: " in capsys.readouterr().err
    assert main(["firmware", "build", "--wrap", str(code)]) == 2
    assert main(["firmware", "build", "--wrap", str(code), "-o", str(tmp_path / "no" / "x.bin")]) != 0
    assert image.unwrap(wrapped.read_bytes()) == code.read_bytes()
