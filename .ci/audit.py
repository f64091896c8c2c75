"""List known vulnerabilities of the installed packages that the wheel needs, with all its extras.

    python .ci/audit.py

The package index knows them. The exit code is 1 if it knows one. Packages that the index does not know are
listed as not audited. If it does not answer in time, nothing is audited, which is said and is no error.
"""

import json
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

TIMEOUT_S = 90


def list_needed(name: str) -> dict[str, str]:
    """List the installed packages that a package needs, directly or not: name -> version."""
    found: dict[str, str] = {}
    seen, left = set[str](), [Requirement(name)]
    while left:
        asked = left.pop()
        if str(asked) in seen:
            continue
        seen.add(str(asked))
        try:
            package = distribution(asked.name)
        except PackageNotFoundError:  # an extra that is not installed here
            continue
        found[package.name] = package.version
        extras = [{"extra": extra} for extra in ("", *asked.extras)]
        for one in map(Requirement, package.requires or ()):
            if one.marker is None or any(map(one.marker.evaluate, extras)):
                left.append(one)
    return found


def audit(packages: dict[str, str]) -> int:
    """Ask the index, and print what it knows; return 1 if it knows a vulnerability, else 0."""
    with tempfile.TemporaryDirectory() as folder:
        pinned, answer = Path(folder, "pinned.txt"), Path(folder, "answer.json")
        pinned.write_text("".join(f"{name}=={version}\n" for name, version in packages.items()))
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(pinned), "--output", str(answer)]
        command += ["--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            print(f"Nothing is audited, because the package index did not answer in {TIMEOUT_S} s.")
            return 0
        if not answer.exists():
            print(f"Nothing is audited: {(done.stderr.strip() or 'no answer').splitlines()[-1]}")
            return 0
        found = json.loads(answer.read_text())["dependencies"]
    skipped = [one["name"] for one in found if "skip_reason" in one]
    known = [
        f"{one['name']} {one['version']}: {hole['id']}, fixed in {', '.join(hole['fix_versions']) or 'none'}"
        for one in found
        for hole in one.get("vulns", ())
    ]
    n_audited = len(found) - len(skipped)
    print(f"{n_audited} packages audited, {len(known)} known vulnerabilities", *known, sep="\n")
    if skipped:
        print(f"not audited, because the index does not know them: {', '.join(skipped)}")
    return int(bool(known))


if __name__ == "__main__":
    needed = list_needed("thetastream[all]")
    needed.pop("thetastream")
    sys.exit(audit(needed))
