"""Pages of the site that are made when it is built: the catalogue from registries, the zoo and speed from data.

mkdocs calls `on_files`. Nothing here imports torch: the registries are plain data.
"""

import csv
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import scs_eval
from scs_eval.analyses.attacks.kinds import ATTACKS
from scs_eval.analyses.attribution.methods import METHODS
from scs_eval.analyses.attribution.metric_records import METRICS
from scs_eval.analyses.catalogue import ENTRIES, HIGHER, LOWER, Headline
from scs_eval.cli.main import commands
from scs_eval.reference.scs_paper import paper_figures

ROOT = Path(__file__).parent.parent
NO_SAMPLE = """<!doctype html><title>No sample</title><p>This build has no sample report. Make one:
<pre>scs-eval compare rohrer100k_scs rohrer100k_conv --out sample
SCS_EVAL_SAMPLE_REPORT=sample/report.html PYTHONPATH=. mkdocs build --strict</pre>"""
BETTER = {HIGHER: "more", LOWER: "less"}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made."""
    for name, make in PAGES.items():
        files.append(File.generated(config, name, content=make()))
    return files


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Markdown; a bar or a line break in a cell would end it."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        f"| {' | '.join(str(cell).replace('|', '∣').replace(chr(10), ' ') for cell in line)} |" for line in lines
    )


def methods() -> str:
    """Every attribution method."""
    parts = [
        "# Attribution methods\n\nOne record each, as `scs-eval methods` prints them; cost is for an image of 32×32.\n"
    ]
    for method in METHODS.values():
        adds = f"adds up to the {method.adds_up_to}" if method.adds_up_to else "need not add up to anything"
        facts = {
            "measures": method.measures, "source": method.source, "when it fails": method.fails, "cost": method.cost,
            "needs": ", ".join(method.needs) or "nothing but outputs",
            "is": f"a {method.quantity} of the {method.on}, {method.resolution}, {adds}",
            "class": "differs by class" if method.class_specific else "the same for every class",
        }  # fmt: skip
        parts.append(f"\n## {method.label} (`{method.name}`)\n\n{table(('trait', 'what it is'), facts.items())}\n")
    return "".join(parts)


def attacks() -> str:
    """Every attack."""
    rows = [
        (
            f"`{name}`",
            kind.does,
            kind.source,
            ", ".join(kind.norms),
            f"{kind.steps} {kind.unit}",
            f"{kind.cost:.2g}",
            kind.fails,
        )
        for name, kind in ATTACKS.items()
    ]
    heads = ("name", "what it does", "source", "norms", "usual budget", "gradients a step", "finds too little")
    return f"""# Attacks

What `--attack` takes besides `torchattacks:NAME` and `foolbox:NAME`. Of several the worst counts, image by image;
[how strong they are](../strength.md) beside their peers is measured.

{table(heads, rows)}
"""


def analyses() -> str:
    """Every analysis with its headline metrics."""
    parts = [
        "# Analyses and metrics\n\nFrom `analyses/catalogue.py`, from which commands, comparisons and pages follow.\n"
    ]
    for entry in ENTRIES.values():
        parts.append(f"\n## {entry.title} (`{entry.name}`)\n\n{entry.question}\n")
        if entry.run:
            size = f"{entry.size} {entry.unit}s" if entry.size else "as many images as its grids hold"
            cost = f"about {entry.cost:g} forward passes for each"
            parts.append(f"\nIn a comparison: {size}, {cost}. Needs: {', '.join(entry.needs) or 'nothing'}.\n")
        if entry.metrics:
            rows = [
                (f"`{m.name}{'@ε' if m.at_eps else ''}`", m.words, BETTER.get(m.better, "neither"), *_explained(m))
                for m in entry.metrics
            ]
            heads = ("metric", "what it is", "better", "formula", "source", "when it misleads")
            parts.append(f"\n{table(heads, rows)}\n")
    return "".join(parts)


def _explained(metric: Headline) -> tuple[str, str, str]:
    """Formula, source, and when it misleads: a headline of maps' metrics has them from there."""
    record = metric if metric.formula else METRICS[metric.name]
    return record.formula, record.source, record.fails


def map_metrics() -> str:
    """Every metric of maps."""
    rows = [
        (
            f"`{name}`",
            metric.formula,
            metric.source,
            metric.direction,
            metric.cost or ", ".join(metric.needs) or "none: of the map alone",
            metric.fails,
        )
        for name, metric in METRICS.items()
    ]
    heads = ("metric", "formula", "source", "direction", "forward passes an image", "when it misleads")
    return f"""# Metrics of maps

What `scs-eval faithfulness` measures each method's maps by, beside a random map and an edge map; `--metric` adds
`quantus:NAME` or one of yours. Where neither direction is better, only the difference to the random map is told.

{table(heads, rows)}
"""


def command_list() -> str:
    """Every command."""
    rows = [(f"`scs-eval {name}`", words) for name, words in commands().items()]
    return f"# Commands\n\n`scs-eval COMMAND --help` explains each.\n\n{table(('command', 'what it does'), rows)}\n"


def zoo() -> str:
    """The trained networks, a card each, from the index of their weights."""
    papers = paper_figures()
    index = json.loads((ROOT / "models" / "weights" / "index.json").read_text(encoding="utf-8"))
    rows = []
    for name, entry in sorted(index.items()):
        low, high = entry["interval"]
        paper = ", ".join(f"{100 * row.accuracy:.1f}" for row in papers.get(name.partition("@")[0], ()))
        epochs = f"{entry['epochs']}" + (f" ({entry['paper_epochs']})" if entry.get("paper_epochs") else "")
        accuracy = f"{100 * entry['accuracy']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"
        link = f"[`{name}`](#{_anchor(name)})"
        rows.append((link, accuracy, paper, f"{entry['parameters']:,}", entry["seed"], epochs))
    heads = ("network", "accuracy %", "paper %", "parameters", "seed", "epochs (paper)")
    cards = "\n".join(_card(name, entry) for name, entry in sorted(index.items()))
    attacked = [name for name, entry in index.items() if entry.get("recipe", {}).get("pgd_eps")]
    hardened = f"are {', '.join(f'`{name}`' for name in attacked)} alone" if attacked else "is none"
    return f"""# The zoo

{len(index)} trained networks come with the package, all of CIFAR-10: accuracy on its 10,000 test images with Wilson's
95 % interval, as `models/weights/index.json` records it. One row is one training. `scs-eval models` lists these and
every network that can be built; `scs-eval accuracy` measures them again.

{table(heads, rows)}

## Model cards

What all of them share. **For**: comparing layers, and trying methods and attacks, on small images. **Not for**: any
decision about photographs; they know ten classes of 32×32 pixels, and give one of them to every image. **Data**:
CIFAR-10 (Krizhevsky 2009), 50,000 training images; accuracy is of its 10,000 test images, of which the bundled sample
has 1,000. **Limits**: trained against attacks {hardened}. Weights are safetensors, under the package's licence;
`scs-eval doctor NAME` examines one.

{cards}
"""


def _card(name: str, entry: Any) -> str:
    """What is known of one training: every number of its recipe that is not the layer's default of 0 or none."""
    recipe = {key: value for key, value in entry.get("recipe", {}).items() if value not in (0, False, "none", None)}
    paper = f" (the paper's have {entry['paper_epochs']})" if entry.get("paper_epochs") else ""
    low, high = entry["interval"]
    facts = {
        "accuracy": f"{entry['correct']:,} of {entry['n']:,}: {100 * entry['accuracy']:.2f} % "
                    f"[{100 * low:.1f}, {100 * high:.1f}]",
        "parameters": f"{entry['parameters']:,}",
        "training": f"{entry['epochs']} epochs{paper} of {entry['data']}, seed {entry['seed']}, torch {entry['torch']}",
        "recipe": ", ".join(f"{key} {value}" for key, value in recipe.items()),
        "file": f"`{entry['file']}`, sha256 `{entry['sha256']}`",
        "try": f"`scs-eval saliency --model {name}`",
    }  # fmt: skip
    return f"### {name} {{ #{_anchor(name)} }}\n\n{table(('fact', 'value'), facts.items())}\n"


def _anchor(name: str) -> str:
    """Of a card; with an equals sign Markdown would take it for an attribute and its value."""
    return name.replace("=", "-")


def speed() -> str:
    """The committed measurements: conditions, targets with why they are missed, how costs grow, and the figure."""
    made = ROOT / "benchmarks"
    parts = [(ROOT / "docs" / "speed.intro.md").read_text(encoding="utf-8")]
    if (made / "conditions.csv").is_file():
        facts = (f"{row['condition']} {row['value']}" for row in _rows("conditions"))
        parts.append(f"\nConditions: {', '.join(facts)}.\n")
    heads = ("what", "against", "target", "reached", "met", "rounds", "why it is missed")
    rows = [
        (
            row["what"], row["against"], row["target"], f"{float(row['reached']):.3g}",
            "yes" if row["met"] == "True" else "**no**", row["rounds"], row["why"],
        )
        for row in _rows("bench")
    ]  # fmt: skip
    parts.append(f"\n## Targets\n\n{table(heads, rows)}\n")
    if (ROOT / "docs" / "speed.png").is_file():
        parts.append("\n![Each target's ratio as a share of its goal, with its quartiles](speed.png)\n")
    return "".join([*parts, f"\n## How cost grows\n\n{_growth()}\n"])


def _growth() -> str:
    """A line for each curve: its ends and the slope of log cost over log size."""
    curves: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in _rows("growth"):
        curves.setdefault((row["what"], row["counted"]), []).append(row)
    lines = [
        (*name, *(f"{float(end['size']):g}: {float(end['cost']):.3g} {end['unit']}" for end in (rows[0], rows[-1])),
         f"{float(rows[0]['exponent']):.2f}")
        for name, rows in curves.items()
    ]  # fmt: skip
    return table(("what", "grows with", "from", "to", "exponent"), lines)


def _rows(name: str) -> list[dict[str, str]]:
    with (ROOT / "benchmarks" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def api() -> str:
    """Everything that `scs_eval` exports, from its docstrings."""
    homes = {**scs_eval._HOME, **scs_eval.exports(installed=False)}
    parts = [
        "# Python\n\nWhat `scs_eval` exports. Names are imported when first used, so `import scs_eval` is quick.\n"
    ]
    return "".join([*parts, *(f"\n::: {homes[name]}.{name}\n" for name in sorted(homes, key=str.lower))])


def sample() -> str:
    """A page of a comparison to click, if one was made for this build."""
    made = os.environ.get("SCS_EVAL_SAMPLE_REPORT")
    return Path(made).read_text(encoding="utf-8") if made else NO_SAMPLE


PAGES: dict[str, Callable[[], str]] = {
    "catalogue/methods.md": methods,
    "catalogue/attacks.md": attacks,
    "catalogue/analyses.md": analyses,
    "catalogue/metrics.md": map_metrics,
    "catalogue/commands.md": command_list,
    "catalogue/zoo.md": zoo,
    "speed.md": speed,
    "api.md": api,
    "sample/report.html": sample,
}
