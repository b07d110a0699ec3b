"""Files of samples for the tests."""

import json

VERL_TEMPLATE = "system\nYou are helpful.\nuser\n{}\nassistant\n"


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def groups(*results, **more):
    """One row a sample; prompt p has the p-th list of results."""
    return [
        {"prompt": f"question {p}", "acc": acc, **more}
        for p, accs in enumerate(results)
        for acc in accs
    ]


def verl_row(question, uid, score, *, session=0, index=0, step=10, **extra):
    """A row as verl 0.9.1's trainer writes it."""
    return {
        "input": VERL_TEMPLATE.format(question),
        "output": "some text",
        "gts": "gold",
        "score": score,
        "step": step,
        "reward": score,
        **extra,
        "uid": f"{uid}_{session}_{index}",
    }
