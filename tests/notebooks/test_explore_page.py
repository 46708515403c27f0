"""`scs-eval explore`: a page for this machine alone, which shows what the models say of what is picked."""

import base64
import http.client
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import chromium
import numpy as np
import pytest
import torch
from PIL import Image

import scs_eval
from scs_eval.errors import InputError
from scs_eval.explorer.server import App, make_server

DATA = scs_eval.load_data("sample", n=4, seed=0)
HOSTILE = "</script><script>document.title = 'owned'</script>"


@pytest.fixture(scope="module")
def app() -> App:
    models = {"scs": scs_eval.load_model("rohrer100k_scs"), HOSTILE: scs_eval.load_model("rohrer100k_conv")}
    data = replace(DATA, classes=(HOSTILE, *DATA.classes[1:]))
    return App(models, dict.fromkeys(models, data), methods=["grad", "wx", "deeplift"])


@pytest.fixture(scope="module")
def address(app: App) -> Iterator[str]:
    server, url = make_server(app)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield url
    server.shutdown()
    server.server_close()


def ask(url: str, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read(), dict(answer.getheaders())


def view(url: str, **chosen: object) -> dict:
    status, body, _ = ask(url, f"{urlsplit(url).path}view?{urlencode(chosen, doseq=True)}")
    return {"status": status, **json.loads(body)}


def test_a_view_is_what_the_model_says(app, address):
    answer = view(address, image=2, model=["scs"], method="grad", eps=8 / 255)
    (scs,) = answer["answers"]
    pictures = {title: np.array(Image.open(io.BytesIO(base64.b64decode(uri[22:])))) for title, uri in scs["pictures"]}
    clean = (255 * DATA.images[2].permute(1, 2, 0)).round().numpy()
    np.testing.assert_array_equal(pictures["image"], clean)
    assert np.abs(pictures["attacked image"] - clean).max() <= 8, "ε is 8 of 255 steps"
    with torch.no_grad():
        logits = app.models["scs"].eval()(DATA.images[2:3])[0]
    assert f"logit {logits.max():.2f}" in scs["sentences"][1]
    assert "8/255" in scs["sentences"][2]


def test_nothing_is_served_but_the_app(address):
    base = urlsplit(address).path
    for path in ("/", "/view", "/etc/passwd", f"{base[:-2]}x/", "/../../etc/passwd", f"/x{base}"):
        assert ask(address, path)[0] == 403, path
    for path in (f"{base}x", f"{base}../../etc/passwd", f"{base}view/..", f"{base}explorer.html", f"{base}//"):
        status, body, _ = ask(address, path)
        assert (status, body) in ((404, b""),) or path.endswith("//"), path
    assert ask(address, base, "POST")[0] == 501
    assert ask(address, base, Host="evil.example")[0] == 403, "another name that points here"
    status, _, headers = ask(address, base)
    assert status == 200
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer"
    assert address.startswith("http://127.0.0.1:")
    assert len(base) > 30, "a token that nobody guesses"


def test_wrong_requests_are_refused_in_a_line(app, address):
    for chosen in (
        {"image": 99},
        {"image": "-1"},
        {"method": "rise"},
        {"model": ["other"]},
        {"eps": "nan"},
        {"eps": "x"},
    ):
        answer = view(address, **chosen)
        assert answer["status"] == 400, chosen
        assert "expected" in answer["error"]
    told = view(address, model=["scs"], method="deeplift")["answers"][0]
    assert not told["pictures"]
    assert "no rule for SCS2d" in told["sentences"][0]
    with pytest.raises(InputError, match="did you mean grad"):
        App(app.models, app.data, methods=["gradd"])


@pytest.mark.skipif(chromium.PROGRAM is None, reason="needs chromium, which is not here: apt-get install chromium")
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_in_a_browser(address, tmp_path, width, dark):
    with chromium.Browser(tmp_path / "profile") as browser:
        browser.open(f"{address}#image=1&method=wx&model=scs&eps=0", width=width, dark=dark)
        ready = "document.getElementById('status').textContent.endsWith('ms')"
        wait_for(browser, ready)
        assert browser.run("document.title") == "scs-eval explore"
        assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("[...document.querySelectorAll('h2')].map(each => each.textContent)") == ["scs"]
        browser.choose("class", HOSTILE)
        wait_for(browser, "document.getElementById('answers').innerText.includes('Explained: </script>')")
        browser.run("document.querySelectorAll('#images button')[3].click()")
        wait_for(browser, f"{ready} && new URLSearchParams(location.hash.slice(1)).get('image') === '3'")
        browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
        browser.run("document.getElementById('png').click()")
        end = time.monotonic() + 20
        while not (saved := list(tmp_path.glob("explore-*.png"))):
            assert time.monotonic() < end
            time.sleep(0.05)
        with Image.open(saved[0]) as picture:
            assert picture.width >= 900
        ours = [told for told in browser.complaints() if not told.startswith(address)]
        assert ours == [], "no error, and nothing asked of anybody else"


def wait_for(browser: chromium.Browser, condition: str) -> None:
    end = time.monotonic() + 30
    while not browser.run(condition):
        assert time.monotonic() < end, f"never: {condition}; {browser.run('document.body.innerText')}"
        time.sleep(0.05)


EXPLORE = [sys.executable, "-m", "scs_eval", "explore", *["rohrer25k_conv", "-n", "2", "--method", "grad"]]


def test_the_command_prints_the_address_and_ctrl_c_ends_it():
    words = [*EXPLORE, "--no-browser"]
    started = subprocess.Popen(
        [*words, "--view", "image=1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    url = started.stdout.readline().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/#image=1", url), url or started.stderr.read()
    assert ask(url, urlsplit(url).path)[0] == 200
    started.send_signal(signal.SIGINT)
    assert started.wait(60) == 0  # seconds, on a machine that does other work too
    assert "Traceback" not in started.stderr.read()


def test_a_port_that_is_taken_says_so(address, tmp_path: Path):
    port = str(urlsplit(address).port)
    words = [*EXPLORE, "--port", port]
    done = subprocess.run([*words, "--no-browser"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert f"port {port} is taken" in done.stderr
