"""The ablation of the fast recipe: every change is another run, and the table says what it costs."""

import json
import math

import pytest

from scs_eval.benchmarks import recipe_ablation as ablation


def test_every_run_has_its_own_folder_and_holds_images_out(tmp_path):
    planned = list(ablation.jobs(tmp_path, data_dir=None, epochs=4, images=100, seeds=2))
    assert len({job.out for _, job in planned}) == len(planned) == 2 * len(ablation.CHANGES) * len(ablation.NETWORKS)
    assert {job.validation for _, job in planned} == {5000}
    recipes = {change: job.recipe for change, job in planned}
    assert all(recipe != recipes["fast"] for change, recipe in recipes.items() if change != "fast")


def test_the_table_is_the_mean_over_seeds_and_its_distance_from_the_recipe(tmp_path):
    planned = list(ablation.jobs(tmp_path, data_dir=None, epochs=4, images=100, seeds=2))
    for change, job in planned:
        job.out.mkdir(parents=True)
        accuracy = 0.8 + 0.01 * job.seed - 0.1 * (change == "random flip")
        diverged = {"diverged": "in epoch 1"} if change == "no weight decay" else {}
        (job.out / "run.json").write_text(
            json.dumps({"model": job.model, "recipe": {}, "test_accuracy": accuracy, **diverged})
        )
    rows = {(row["change"], row["network"]): row for row in ablation.table(planned)}
    row = rows["random flip", "rohrer100k_scs"]
    assert (row["seeds"], row["lowest"], row["highest"]) == (2, 0.7, 0.71)
    assert row["minus_fast"] == pytest.approx(-0.1)
    assert math.isnan(rows["no weight decay", "rohrer100k_conv"]["accuracy"])
    assert rows["fast", "rohrer100k_conv"]["accuracy"] == pytest.approx(0.805)
