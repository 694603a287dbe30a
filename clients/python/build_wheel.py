"""Builds the package (PEP 517) with the standard library alone, so that `pip install` needs no network.

A wheel is a zip file of the package and its metadata.
"""

import base64
import hashlib
import os
import tarfile
import tomllib
import zipfile

ROOT = os.path.dirname(os.path.abspath(__file__))


def _project() -> dict[str, str]:
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as f:
        project: dict[str, str] = tomllib.load(f)["project"]
        return project


def _metadata(p: dict[str, str]) -> bytes:
    with open(os.path.join(ROOT, p["readme"]), encoding="utf-8") as f:
        readme = f.read()
    return (f"Metadata-Version: 2.1\nName: {p['name']}\nVersion: {p['version']}\nSummary: {p['description']}\n"
            f"License: Apache-2.0\nRequires-Python: {p['requires-python']}\nClassifier: Typing :: Typed\n"
            f"Description-Content-Type: text/markdown\n\n{readme}").encode()


def _wheel(directory: str, files: dict[str, bytes]) -> str:
    p = _project()
    stem = f"{p['name']}-{p['version']}"
    info = stem + ".dist-info"
    files = {**files, info + "/METADATA": _metadata(p),
             info + "/WHEEL": b"Wheel-Version: 1.0\nGenerator: turnpike\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join(f"{n},sha256={base64.urlsafe_b64encode(hashlib.sha256(d).digest()).decode().rstrip('=')},{len(d)}\n"
                     for n, d in files.items())
    files[info + "/RECORD"] = (record + info + "/RECORD,,\n").encode()
    name = stem + "-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(directory, name), "w", zipfile.ZIP_DEFLATED) as z:
        for path, data in files.items():
            z.writestr(zipfile.ZipInfo(path), data, zipfile.ZIP_DEFLATED)  # without times: two builds are the same
    return name


def build_wheel(directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    files = {}
    for name in sorted(os.listdir(os.path.join(ROOT, "turnpike"))):
        if name.endswith(".py") or name == "py.typed":
            with open(os.path.join(ROOT, "turnpike", name), "rb") as f:
                files["turnpike/" + name] = f.read()
    return _wheel(directory, files)


def build_editable(directory: str, config_settings: object = None, metadata_directory: object = None) -> str:
    return _wheel(directory, {"turnpike.pth": ROOT.encode() + b"\n"})


def build_sdist(directory: str, config_settings: object = None) -> str:
    p = _project()
    stem = f"{p['name']}-{p['version']}"
    with tarfile.open(os.path.join(directory, stem + ".tar.gz"), "w:gz") as t:
        for name in ("pyproject.toml", "build_wheel.py", p["readme"]):
            t.add(os.path.join(ROOT, name), f"{stem}/{name}")
        for name in sorted(os.listdir(os.path.join(ROOT, "turnpike"))):
            if name.endswith(".py") or name == "py.typed":
                t.add(os.path.join(ROOT, "turnpike", name), f"{stem}/turnpike/{name}")
    return stem + ".tar.gz"
