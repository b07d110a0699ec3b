"""Runs on disk for the tests, as verl writes them."""

import json


def write_run(folder, metrics, settings=None):
    """metrics: {step: {name: value}}; settings: nested, as our trainer writes them."""
    folder.mkdir(parents=True)
    lines = [json.dumps({"step": step, "data": data}) for step, data in metrics.items()]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))
    if settings is not None:
        (folder / "metrics.config.json").write_text(json.dumps(settings))
    return folder


def write_dump(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def dump_row(uid, output, score, *, session=0, index=0, prompt="Q", **extra):
    """A row as verl 0.9.1 dumps it."""
    return {
        **{"input": prompt, "output": output, "gts": "gold", "score": score, "step": 3},
        **extra,
        "uid": f"{uid}_{session}_{index}",
    }


def settings_of(estimator, seed, lr=1e-4):
    return {
        "algorithm": {"adv_estimator": estimator},
        "actor_rollout_ref": {"actor": {"optim": {"lr": lr}}},
        "data": {"seed": seed, "train_files": f"/data/seed{seed}/train.parquet"},
        "trainer": {"default_local_dir": f"/out/{estimator}-{seed}"},
    }
