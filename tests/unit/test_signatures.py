"""Signatures: who signed what, what a change of one byte does, and what is refused before it is parsed."""

import shutil
import subprocess
import zipfile

import numpy as np
import pytest

from emulator.board import Board
from emulator.options import Options
from sdk import archive, artifact, signatures
from sdk.compiler import compile
from sdk.errors import InvalidArtifact, ToolMissing, TowlineError, UsageError
from sdk.files import Mapped
from sdk.inputs import zero_point_inputs
from sdk.session import Session
from sdk.signatures import SignatureRefused
from tests.reference_target import NAME, register, small_network
from towline.cli import main
from usbgpu import transport
from usbgpu.flash import job

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH is not installed")


@pytest.fixture(autouse=True)
def registered(monkeypatch, tmp_path):
    register(monkeypatch, tmp_path / "site")
    monkeypatch.delenv("TOWLINE_REQUIRE_SIGNATURE", raising=False)


def key(folder, name, kind="ed25519"):
    command = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", f"{name}@team", "-f", folder / name]
    subprocess.run(command, check=True)
    return folder / name


@pytest.fixture
def ours(tmp_path):
    return key(tmp_path, "ours")


@pytest.fixture
def keys(ours):
    return ours.with_suffix(".pub")


@pytest.fixture
def signed(tmp_path, ours):
    compile(small_network(), NAME, tmp_path / "net.tow")
    assert main(["sign", str(tmp_path / "net.tow"), "--key", str(ours)]) == 0
    return tmp_path / "net.tow"


def code(argv, capsys):
    status = main([*map(str, argv), "--json"])
    return status, capsys.readouterr().out


def test_a_signed_network_loads_and_names_its_signer(signed, keys, capsys):
    assert artifact.signer(signed, keys) == "ours@team"
    before = artifact.load(signed)
    assert artifact.load(signed, keys).programs[0].plan == before.programs[0].plan
    status, said = code(["verify", signed, "--keys", keys], capsys)
    assert (status, '"signer": "ours@team"' in said) == (0, True)


def test_signing_changes_nothing_else(tmp_path, ours):
    compile(small_network(), NAME, tmp_path / "plain.tow")
    artifact.sign(tmp_path / "plain.tow", ours, tmp_path / "signed.tow")
    artifact.sign(tmp_path / "signed.tow", ours, tmp_path / "again.tow")
    parts = {}
    for name in ("plain", "signed", "again"):
        with zipfile.ZipFile(tmp_path / f"{name}.tow") as file:
            parts[name] = {member: file.read(member) for member in file.namelist()}
    assert parts["signed"].pop(artifact.SIGNATURE) == parts["again"].pop(artifact.SIGNATURE)
    assert parts["plain"] == parts["signed"] == parts["again"]


def test_what_is_unsigned_or_signed_by_another_is_refused(tmp_path, signed, ours, keys):
    compile(small_network(), NAME, tmp_path / "plain.tow")
    with pytest.raises(SignatureRefused):
        artifact.load(tmp_path / "plain.tow", keys)
    theirs = key(tmp_path, "theirs")
    with pytest.raises(SignatureRefused):
        artifact.load(signed, theirs.with_suffix(".pub"))
    both = tmp_path / "both"
    both.write_text(f"# the team\n\n{keys.read_text()}{theirs.with_suffix('.pub').read_text()}")
    artifact.sign(signed, theirs, signed)
    assert artifact.signer(signed, both) == "theirs@team"
    with pytest.raises(SignatureRefused):
        artifact.load(signed, keys)


def test_allowed_signers_are_read_as_openssh_has_them(signed, keys, tmp_path):
    allowed = tmp_path / "allowed"
    allowed.write_text(f"captain@boat {keys.read_text()}")
    assert artifact.signer(signed, allowed) == "captain@boat"
    allowed.write_text(f'captain@boat namespaces="file" {keys.read_text()}')
    with pytest.raises(SignatureRefused):
        artifact.load(signed, allowed)


def test_another_line_of_the_same_key(signed, keys, tmp_path):
    allowed, public = tmp_path / "allowed", keys.read_text().strip()
    allowed.write_text(f'git@x namespaces="git" {public}\nrelease@x namespaces="towline" {public}\n')
    assert artifact.signer(signed, allowed) == "release@x"


@pytest.mark.parametrize(
    ("principals", "name"),
    [("a@x,b@y", "a@x"), ("!c@x,a@x", "a@x"), ("*@team", "*@team"), ('"a@x,b@y"', "a@x")],
)
def test_principals_of_allowed_signers(signed, keys, tmp_path, principals, name):
    (tmp_path / "allowed").write_text(f"{principals} {keys.read_text()}")
    assert artifact.signer(signed, tmp_path / "allowed") == name


@pytest.mark.parametrize("comment", ["#1 build key", '"John" Smith', "!ops", "a,b *", ""])
def test_a_public_key_s_comment_may_be_anything(signed, keys, tmp_path, comment):
    kind, public = keys.read_text().split()[:2]
    (tmp_path / "team").write_text(f"{kind} {public} {comment}\n", encoding="utf-8-sig")
    assert artifact.signer(signed, tmp_path / "team") == (comment or "unnamed")


def test_ssh_without_its_keygen(signed, keys, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    shutil.copy(shutil.which("ssh"), tmp_path / "bin")
    monkeypatch.setenv("TOWLINE_SSH", str(tmp_path / "bin" / "ssh"))
    with pytest.raises(ToolMissing):
        artifact.load(signed, keys)


def test_a_signature_for_another_purpose_is_refused(signed, ours, keys, tmp_path):
    manifest = archive.read(Mapped(signed), artifact.MANIFEST)[0]
    (tmp_path / "data").write_bytes(manifest)
    command = ["ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", ours, tmp_path / "data"]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(SignatureRefused):
        signatures.verify(manifest, signatures.beside(tmp_path / "data"), keys, "data")


@pytest.mark.slow
def test_no_change_of_a_signed_file_is_taken(signed, keys):
    """But of bytes that mean nothing: padding, the dates of the zip."""

    def meaning():
        loaded = artifact.load(signed, keys)
        return [(one.code, one.plan, bytes(one.weights)) for one in loaded.programs], loaded.labels

    whole, original = signed.read_bytes(), meaning()
    random = np.random.default_rng(1)
    refused = 0
    for at in random.choice(len(whole), 60, replace=False):
        signed.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << int(random.integers(8))]) + whole[at + 1 :])
        try:
            assert meaning() == original
        except TowlineError:
            refused += 1
    assert refused > 20


def test_a_refused_file_is_not_parsed(signed, keys, monkeypatch, tmp_path):
    """Its manifest may be anything: the signature is looked at before."""
    with zipfile.ZipFile(signed) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    parts[artifact.MANIFEST] = b"[" * 100_000
    with zipfile.ZipFile(tmp_path / "deep.tow", "w") as file:
        for name, data in parts.items():
            file.writestr(name, data)
    with pytest.raises(InvalidArtifact):
        artifact.load(tmp_path / "deep.tow")
    with pytest.raises(SignatureRefused):
        artifact.load(tmp_path / "deep.tow", keys)


def test_the_environment_requires_it_everywhere(signed, keys, tmp_path, monkeypatch, capsys):
    compile(small_network(), NAME, tmp_path / "plain.tow")
    picture = tmp_path / "x.npy"
    np.save(picture, np.zeros((1, 1, 4, 4), np.float32))
    run = ["run", tmp_path / "plain.tow", "--input", picture]
    assert code(run, capsys)[0] == 0
    status, said = code([*run, "--require-signature", keys], capsys)
    assert (status, '"code": "signature"' in said) == (1, True)
    monkeypatch.setenv("TOWLINE_REQUIRE_SIGNATURE", str(keys))
    for verb in ("run", "stream"):
        status, said = code([verb, tmp_path / "plain.tow", "--input", picture], capsys)
        assert (status, '"code": "signature"' in said) == (1, True), verb
    assert code(["run", signed, "--input", picture], capsys)[0] == 0


def test_firmware_images(tmp_path, ours, keys, capsys):
    image = tmp_path / "bridge.bin"
    image.write_bytes(b"not even an image")
    with pytest.raises(SignatureRefused):
        job.read_image(image, str(keys))
    assert main(["sign", str(image), "--key", str(ours)]) == 0
    assert (tmp_path / "bridge.bin.sig").exists()
    assert code(["verify", image, "--keys", keys], capsys)[0] == 0
    with pytest.raises(TowlineError, match="not a wrapped image"):
        job.read_image(image, str(keys))
    image.write_bytes(b"changed")
    with pytest.raises(SignatureRefused):
        job.read_image(image, str(keys))
    flash = ["firmware", "flash", image, "--device", "emulated", "--yes", "--require-signature", keys]
    status, said = code(flash, capsys)
    assert (status, '"code": "signature"' in said) == (1, True)


@pytest.mark.parametrize("target", [NAME, "c"])
def test_what_was_checked_is_what_runs(signed, keys, monkeypatch, tmp_path, ours, target):
    """Whatever becomes of the file meanwhile: here all of it changes once its code was hashed."""
    if target != NAME:
        compile(small_network(), target, signed)
        artifact.sign(signed, ours, signed)
    artifact.load(signed, keys)
    before = [(one.code, one.plan, bytes(one.weights)) for one in artifact.load(signed).programs]
    check, checked = archive.damaged, []

    def then_changed(members, listed):
        found = check(members, listed)
        checked.append(found)
        with signed.open("r+b") as file:
            file.write(bytes(signed.stat().st_size))
        return found

    monkeypatch.setattr(archive, "damaged", then_changed)
    loaded = artifact.load(signed, keys)
    assert checked
    assert [(one.code, one.plan, bytes(one.weights)) for one in loaded.programs] == before
    signed.write_bytes(b"")  # of a mapped file, to read on would end the process
    assert [bytes(one.weights) for one in loaded.programs] == [weights for _, _, weights in before]
    if target != NAME:
        with Session(loaded) as session:
            session.run(zero_point_inputs(session.artifact.graph))


def test_a_sealed_copy_cannot_be_changed(signed):
    mapped = Mapped(signed, private=True)
    with open(f"/dev/fd/{mapped.number}", "r+b", buffering=0) as file, pytest.raises(PermissionError):
        file.write(b"x")


def test_a_backup_whose_image_is_written(tmp_path, ours, keys, capsys, monkeypatch):
    monkeypatch.setenv("TOWLINE_STATE", str(tmp_path / "state"))
    flash = ["firmware", "flash", "--device", "emulated", "--flash", tmp_path / "board.flash", "--yes"]
    backup = tmp_path / "backup.json"
    assert code([*flash, "--backup", backup], capsys)[0] == 0
    assert code([*flash, "--restore", backup], capsys)[0] == 0
    monkeypatch.setenv("TOWLINE_REQUIRE_SIGNATURE", str(keys))
    status, said = code([*flash, "--restore", backup], capsys)
    assert (status, '"code": "signature"' in said) == (1, True)
    assert main(["sign", str(backup), "--key", str(ours)]) == 0
    assert code([*flash, "--restore", backup], capsys)[0] == 0
    backup.write_text(backup.read_text().replace(":", ": ", 1))
    assert code([*flash, "--restore", backup], capsys)[0] == 1
    board = Board(None, Options(flash=tmp_path / "board.flash"))
    with pytest.raises(SignatureRefused), transport.attach(board.backend()) as device:
        job.prepare(device, tmp_path, image=None, restore=backup, keys=str(keys), kind="emulated")


@pytest.mark.parametrize("content", [None, b"", b"# nothing\n", b"\xff\xfe"])
def test_files_of_keys_that_hold_none(signed, tmp_path, content):
    path = tmp_path / "keys"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        artifact.load(signed, path)
    assert caught.value.where == str(path)


def test_keys_that_cannot_sign(signed, tmp_path, capsys):
    (tmp_path / "text").write_text("no key")
    for wrong in ("missing", "text"):
        assert code(["sign", signed, "--key", tmp_path / wrong], capsys)[0] == 2
    assert code(["verify", signed], capsys)[0] == 2
    assert code(["verify", tmp_path / "missing.tow", "--keys", "x"], capsys)[0] == 2


def test_a_signature_that_is_none(signed, keys, tmp_path):
    for wrong in (b"", b"nonsense", bytes(1 << 20)):
        with pytest.raises(SignatureRefused):
            signatures.verify(b"data", wrong, keys, "file")
