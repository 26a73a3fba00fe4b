"""Signatures: who signed what, what a change of one byte does, and what is refused before it is parsed."""

import shutil
import subprocess
import zipfile

import numpy as np
import pytest

from sdk import archive, artifact, signatures
from sdk.compiler import compile
from sdk.errors import InvalidArtifact, TowlineError, UsageError
from sdk.files import Mapped
from sdk.signatures import SignatureRefused
from tests.reference_target import NAME, register, small_network
from towline.cli import main
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
