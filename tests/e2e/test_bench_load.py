"""`towline bench load`: weights reach the card at the link's rate, and the host has no copy of them."""

import json

import pytest

from tests.amount import amount
from towline.cli import main
from towline.cli.benchmarks import load

pytestmark = pytest.mark.usefixtures("quiet_card")


def bench(capsys, *argv):
    """(exit code, JSON document)."""
    code = main(["bench", "load", *argv, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_half_a_gigabyte_goes_at_the_rate_of_the_link_and_is_not_copied(capsys):
    """With `--thorough`, and otherwise an eighth of it; `--bytes 4G` is the same, in eight times the time."""
    code, document = bench(capsys, "--bytes", f"{amount(64, 512)}M")
    found = document["result"]
    assert code == 0
    assert found["bytes"] == amount(64, 512) << 20
    assert found["mismatches"] == 0
    assert found["share_of_link"] >= 0.9
    assert found["transfers"] <= amount(64, 512) + 40
    assert found["vram_rss_bytes"] >= found["bytes"]
    # libLLVM and what it makes of the kernels: it does not grow with the weights.
    assert found["peak_rss_bytes"] - found["base_rss_bytes"] < 192 << 20


@pytest.mark.slow
def test_a_network_larger_than_the_card_is_refused_with_all_sizes(capsys, monkeypatch):
    """Before anything of it is sent: what is opened is counted alone."""
    sent = []
    monkeypatch.setattr("usbgpu.amd.gpu.Gpu.stream", lambda *_: sent.append("stream"))
    monkeypatch.setattr("usbgpu.amd.gpu.Gpu.upload", lambda *_: sent.append("upload"))
    code, document = bench(capsys, "--bytes", "192M", "--device", "emulated?gpu=gfx1100&vram=256M")
    error = document["error"]
    assert code == 1
    assert error["code"] == "unsupported"
    for part in ("201.3 MB of weights", "of activations", "of code", "free"):
        assert part in error["message"]
    assert "more memory" in error["hint"]
    assert not sent


@pytest.mark.parametrize(
    "argv",
    [
        ["--bytes", "7"],
        ["--bytes", "4M"],
        ["--target", "c"],
        ["--baseline", "x.json"],
        ["--device", "nothing"],
    ],
)
def test_wrong_options_are_refused_before_anything_is_opened(capsys, monkeypatch, argv):
    monkeypatch.setattr(load, "measure", None)
    code, document = bench(capsys, *argv)
    assert code == 2
    assert document["error"]["message"]
