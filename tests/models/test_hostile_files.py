"""Files made to hang, to fill the memory, to run code or to write to the terminal: one line each, and soon."""

import json
import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from scs_eval import InputError, create_model, load_model
from scs_eval.errors import printable
from scs_eval.models.loading.external import parse_statistics
from scs_eval.models.loading.limits import ALLOWANCE
from scs_eval.models.loading.state_dict import metadata_of, read_state

LIMIT = 4 << 30  # bytes of address space in the processes that open hostile files; torch alone takes about 1.5 GB


def state(name: str = "rohrer25k_conv") -> dict[str, torch.Tensor]:
    return create_model(name).state_dict()


# Imports torch once; then every line that it reads, a path and options, is answered by a child of its own.
ENDED = "the process ended with"
SERVER = """
import json, os, resource, signal, sys
from scs_eval import load_model, InputError
import scs_eval.models.loading.external, scs_eval.models.zoo.registry, torchvision.models
for line in sys.stdin:
    path, options = json.loads(line)
    child = os.fork()
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps(f"{sys.argv[2]} {status}" if status else "end"), flush=True)
        continue
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]), int(sys.argv[1])))
    signal.alarm(60)
    try:
        load_model(path, **options)
        said = "loaded"
    except InputError as error:
        said = str(error)
    print(json.dumps(said), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def refusal() -> Iterator[Callable[..., str]]:
    """The message with which a file is refused, in a process of its own: a hang or an allocation is a failure."""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(LIMIT), ENDED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None
    assert server.stdout is not None

    def ask(path: Path, **options: object) -> str:
        print(json.dumps([str(path), options]), file=server.stdin, flush=True)
        said = json.loads(server.stdout.readline())
        assert not said.startswith(ENDED), said
        assert json.loads(server.stdout.readline()) == "end"
        assert "\n" not in said
        return said

    yield ask
    server.stdin.close()
    server.wait(60)  # a busy machine takes its time


def test_a_state_dict_that_contains_itself(refusal, tmp_path) -> None:
    content: dict = {}
    content["state_dict"] = content
    torch.save(content, tmp_path / "a.pt")
    assert "holds no tensors by name" in refusal(tmp_path / "a.pt")
    content.update(state())
    torch.save(content, tmp_path / "b.pt")
    assert read_state(tmp_path / "b.pt").state.keys() == state().keys()
    assert read_state(tmp_path / "b.pt").undone == (), "nothing was taken off"


def test_an_endless_name(refusal, tmp_path) -> None:
    torch.save({"net." * 100_000 + "weight": torch.zeros(2)}, tmp_path / "a.pt")
    assert "whose name has 400,006 characters" in refusal(tmp_path / "a.pt")


@pytest.mark.parametrize("claimed", ["30000000", "²", "9" * 5000, "-3", "0"])
def test_a_number_of_classes_that_the_tensors_do_not_have(refusal, tmp_path, claimed: str) -> None:
    save_file(state(), tmp_path / "a.safetensors", metadata={"name": "rohrer25k_conv", "num_classes": claimed})
    wanted = "claims 30,000,000 classes, but no tensor in it has more than 80 rows"
    assert (wanted if claimed == "30000000" else "") in (line := refusal(tmp_path / "a.safetensors"))
    assert line != "loaded"


def test_a_network_far_larger_than_the_file(refusal, tmp_path) -> None:
    save_file({"a": torch.zeros(4)}, tmp_path / "a.safetensors", metadata={"name": "vit_l_conv", "num_classes": "4"})
    assert "do not fit vit_l_conv: it has" in refusal(tmp_path / "a.safetensors")
    spec = {"source": "torchvision:vit_h_14", "num_classes": None, "statistics": None, "spec": {"layer": "bcos"}}
    save_file({"a": torch.zeros(4)}, tmp_path / "b.safetensors", metadata={"converted": json.dumps(spec)})
    assert "do not fit torchvision:vit_h_14: it has" in refusal(tmp_path / "b.safetensors")


@pytest.mark.parametrize(
    "change", [{"statistics": 3}, {"spec": {"layer": "bcos", "b": "x"}}, {"spec": 4}, {"num_classes": "many"}]
)
def test_a_description_that_makes_no_sense(tmp_path, change: dict) -> None:
    spec = {"source": "rohrer25k_conv", "num_classes": 10, "statistics": None, "spec": {"layer": "bcos"}}
    save_file({"a": torch.zeros(4)}, tmp_path / "a.safetensors", metadata={"converted": json.dumps(spec | change)})
    with pytest.raises(InputError, match=r"expected a description of a converted network in a\.safetensors"):
        load_model(tmp_path / "a.safetensors")


def test_a_head_of_stride_zero(refusal, tmp_path) -> None:
    tensors = {**state(), "head.weight": torch.zeros(1, 1).expand(30_000_000, 40)}
    torch.save(tensors, tmp_path / "a.pt")
    assert (tmp_path / "a.pt").stat().st_size < 200_000
    assert "and claims to hold 4,800," in refusal(tmp_path / "a.pt", arch="rohrer25k_conv")


def test_a_deflated_file_that_inflates_a_thousand_times(refusal, tmp_path) -> None:
    torch.save({"a": torch.zeros(2 * ALLOWANCE)}, tmp_path / "whole.pt")
    with (
        zipfile.ZipFile(tmp_path / "whole.pt") as whole,
        zipfile.ZipFile(tmp_path / "a.pt", "w", zipfile.ZIP_DEFLATED) as deflated,
    ):
        for entry in whole.infolist():
            deflated.writestr(entry.filename, whole.read(entry))
    (tmp_path / "whole.pt").unlink()
    assert (tmp_path / "a.pt").stat().st_size < 200_000
    assert "and claims to hold 134," in refusal(tmp_path / "a.pt")


@pytest.mark.parametrize("kind", [torch.int8, torch.bool, torch.complex64, torch.int64])
@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_weights_that_are_no_floats(tmp_path, kind: torch.dtype, suffix: str) -> None:
    tensors, path = state(), tmp_path / f"a.{suffix}"
    tensors["head.weight"] = tensors["head.weight"].to(kind)
    (torch.save if suffix == "pt" else save_file)(tensors, path)
    name = str(kind).removeprefix("torch.")
    with pytest.raises(InputError, match=rf"expected float.*got {name} for head.weight|head.weight .*got {name}"):
        load_model(path, arch="rohrer25k_conv")


def test_half_precision_still_loads(tmp_path) -> None:
    save_file({key: value.half() for key, value in state().items()}, tmp_path / "a.safetensors")
    assert load_model(tmp_path / "a.safetensors", arch="rohrer25k_conv").head.weight.dtype == torch.float32


def test_tensors_without_numbers_of_their_own(tmp_path) -> None:
    torch.save({"a": torch.zeros(3, 3).to_sparse()}, tmp_path / "sparse.pt")
    torch.save({"a": torch.empty(3, 3, device="meta")}, tmp_path / "meta.pt")
    for name in ("sparse", "meta"):
        with pytest.raises(InputError, match=f"{name}.pt holds a tensor without numbers of its own"):
            load_model(tmp_path / f"{name}.pt")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_a_file_that_may_not_be_read(tmp_path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    save_file(state(), path)
    path.chmod(0)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        load_model(path)


def test_paths_that_are_no_files(tmp_path) -> None:
    (tmp_path / "circle.pt").symlink_to("circle.pt")
    (tmp_path / "folder.pt").mkdir()
    os.mkfifo(tmp_path / "pipe.pt")
    for name, why in {
        "circle": "its symbolic links run in a circle",
        "folder": "expected a file of weights",
        "pipe": "expected a file of weights",
        "x" * 300: "cannot be read: File name too long",
        "missing": "no such file",
    }.items():
        with pytest.raises(InputError, match=why):
            load_model(tmp_path / f"{name}.pt")
    with pytest.raises(InputError, match="unknown model"):
        load_model("x" * 5000)


def test_every_truncation_is_an_error_of_one_line(tmp_path) -> None:
    save_file(state(), tmp_path / "whole.safetensors")
    torch.save(state(), tmp_path / "whole.pt")
    torch.save(state(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    for name in ("whole.safetensors", "whole.pt", "old.pt"):
        content = (tmp_path / name).read_bytes()
        for share in (0.001, 0.1, 0.5, 0.9, 0.999):
            path = tmp_path / f"cut_{name}"
            path.write_bytes(content[: int(len(content) * share)])
            with pytest.raises(InputError) as caught:
                load_model(path, arch="rohrer25k_conv")
            assert "\n" not in str(caught.value)
            assert "weights_only" not in str(caught.value)


def test_a_text_is_called_damaged_in_words(tmp_path) -> None:
    """The unpickler's own reason is the number of a character."""
    (tmp_path / "a.pt").write_bytes(b"hello")
    with pytest.raises(InputError, match=r"a\.pt is not a torch checkpoint or is damaged: KeyError$"):
        load_model(tmp_path / "a.pt")


class Trap:
    """Unpickling this would run a command."""

    def __reduce__(self):
        return (os.system, ("true",))


def test_no_refusal_advises_to_switch_protection_off(tmp_path) -> None:
    """torch's own message does: `weights_only=False`, `add_safe_globals`."""
    for name, content in {"trap": {"a": Trap()}, "module": nn.Linear(2, 2), "function": {"f": print}}.items():
        for write in (torch.save, lambda content, path: path.write_bytes(pickle.dumps(content))):
            write(content, tmp_path / f"{name}.pt")
            with pytest.raises(InputError, match=r"could run code|is not a torch checkpoint") as caught:
                load_model(tmp_path / f"{name}.pt")
            assert "weights_only" not in str(caught.value)
            assert "globals" not in str(caught.value)


ESCAPE = "\x1b]0;owned\x07\x1b[2J"


def test_escape_sequences_are_spelled_out(tmp_path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({**state(), f"extra{ESCAPE}": torch.zeros(1)}, path, metadata={"name": "rohrer25k_conv", "by": ESCAPE})
    with pytest.raises(InputError, match=r"unexpected extra\\x1b\]0;owned") as caught:
        load_model(path)
    assert str(caught.value).isprintable()
    assert metadata_of(path)["by"].isprintable()
    assert all(key.isprintable() for key in read_state(path).state)
    assert str(InputError(f"got {ESCAPE}\nand more")) == r"got \x1b]0;owned\x07\x1b[2J and more"
    assert printable("Größe 1–2 %") == "Größe 1–2 %"
    assert printable("\udc80\u202e") == r"\udc80\u202e"


@pytest.mark.parametrize("text", ["0.5,inf", "inf,0.5", "nan,1", "0.5,0.5,0.5,1,1,inf"])
def test_statistics_are_finite(text: str) -> None:
    with pytest.raises(InputError, match="expected imagenet"):
        parse_statistics(text)
