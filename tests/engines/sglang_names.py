"""Reads the metrics of SGLang from the source of its package, which needs a GPU to run.

    sglang_names.py RECORDED CACHE [--newest]

RECORDED: file with the release in its first line and a line for each metric: name and type.
CACHE: folder for the package.
Fails if the package of that release has other metrics. With --newest it reads the newest release instead and prints what
changed, which is no failure.
"""

import ast
import pathlib
import shutil
import subprocess
import sys
import zipfile

KINDS = {"Gauge": "gauge", "Counter": "counter", "Histogram": "histogram", "Summary": "summary"}


def package(release, cache):
    """The package as a zip file. `release`: empty for the newest one."""
    folder = cache / (release or "newest")
    if not release:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob("*.whl")):
        name = f"sglang=={release}" if release else "sglang"
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, "--dest", folder, name], check=True)
    return next(folder.glob("*.whl"))


def metrics(source):
    """Name and type of each metric that a module creates."""
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        function = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        names = [word.value for word in call.keywords if word.arg == "name"] + call.args[:1]
        for name in names:
            is_text = isinstance(name, ast.Constant) and isinstance(name.value, str)
            if is_text and name.value.startswith("sglang:") and function in KINDS:
                yield name.value, KINDS[function]


def read(wheel):
    found = set()
    with zipfile.ZipFile(wheel) as files:
        for path in files.namelist():
            if path.startswith("sglang/srt/") and path.endswith(".py"):
                source = files.read(path).decode()
                if "sglang:" in source:
                    found.update(metrics(source))
    return found


def main():
    recorded, cache = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    is_newest = "--newest" in sys.argv
    head, *lines = recorded.read_text().splitlines()
    release = head.removeprefix("# SGLang ")
    known = {tuple(line.split()) for line in lines if line and not line.startswith("#")}
    wheel = package("" if is_newest else release, cache)
    found = read(wheel)
    if not found:
        sys.exit(f"{wheel.name} creates no metric: its source has another form")
    changes = [f"+ {' '.join(one)}" for one in sorted(found - known)]
    changes += [f"- {' '.join(one)}" for one in sorted(known - found)]
    print(f"sglang: {len(found)} metrics in {wheel.name}, {len(changes)} changes since {release}")
    print("".join(f"  {change}\n" for change in changes), end="")
    if changes and not is_newest:
        sys.exit(f"{recorded} is not what the package has")


main()
