"""An installed wheel holds what the repository holds: every subpackage, the sample, the weights. Not a pytest file.

    python tests/check_wheel.py SITE REPOSITORY

SITE is the folder the wheel was installed into, before anything else on the path.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path


def packages(root: Path) -> set[str]:
    """Dotted names below `scs_eval`, links followed."""
    found = set()
    for folder, _, files in os.walk(root / "scs_eval", followlinks=True):
        if "__init__.py" in files:
            # What is compiled, and from what: the wheel has the one, the repository the other.
            kept = (name for name in files if not name.endswith((".pyc", ".so", ".cpp")))
            found |= {str(Path(folder, name).relative_to(root)) for name in kept}
    return found


def main(site: Path, repository: Path) -> None:
    """Compare the files, then use the package from SITE in a process that cannot see the repository."""
    missing = packages(repository) - packages(site)
    assert not missing, f"the wheel lacks {sorted(missing)}"
    code = (
        "import json, scs_eval; from scs_eval.models.loading.load import weights_index; "
        "data = scs_eval.load_data('sample', n=10); model = scs_eval.create_model('rohrer25k_scs'); "
        "trained = [scs_eval.load_model(name) for name in weights_index()]; "
        "print(json.dumps([scs_eval.__file__, len(data), model(data.images).shape[1], len(trained)]))"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=site).stdout
    file, images, classes, trained = json.loads(output)
    assert Path(file).is_relative_to(site), f"tested {file}, which is not the wheel's"
    assert (images, classes) == (10, 10)
    if shutil.which("g++"):
        library = list(site.glob("scs_eval/models/layers/kernels/_fused*"))
        assert library, "there is a compiler, and the wheel has no compiled passes"
    print(f"wheel: {len(packages(site))} files, {images} images, {trained} trained models, used from elsewhere")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
