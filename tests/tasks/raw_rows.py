"""Made-up rows in exactly the schemas of the public data sets, and files of them."""

import base64
import json
import pickle
import zlib

import pyarrow as pa
import pyarrow.parquet as pq

DAPO_HEADER = (
    "Solve the following math problem step by step. The last line of your response should be of "
    "the form Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
DAPO_FOOTER = '\n\nRemember to put your answer on its own line after "Answer:".'
EURUS_FOOTER = (
    "\n\nWrite Python code to solve the problem. Present the code in \n"
    "```python\nYour code\n```\nat the end."
)


def aime(number, **fields):
    return {
        "id": 60 + number,
        "problem": f"Let $x+{number}=1$. Find ${number}-x$ if $x \\in \\{{1,2\\}}$.",
        "solution": f"It is \\boxed{{{number:03d}}}.",
        "answer": f"{number:03d}",
        "url": "https://artofproblemsolving.com/wiki/index.php/2024_AIME_I_Problems/Problem_1",
        "year": "2024",
        **fields,
    }


def math(number, **fields):
    return {
        "problem": f"How many {number}-cycles are there?",
        "level": "Level 5",
        "type": "Algebra",
        "solution": f"First $\\boxed{{1}}$, then $\\boxed{{\\frac{{{number}}}{{7}}}}$.",
        **fields,
    }


def dapo(number, text="", answer=None):
    problem = text or f"Find $\\frac{{{number}}}{{2}}$ of a dozen."
    return {
        "data_source": "math_dapo",
        "prompt": [{"content": f"{DAPO_HEADER}{problem}{DAPO_FOOTER}", "role": "user"}],
        "ability": "MATH",
        "reward_model": {
            "ground_truth": str(6 * number) if answer is None else answer,
            "style": "rule-lighteval/MATH_v2",
        },
        "extra_info": {"index": f"9a9b6eb4-a1cb-49d1-8c1e-{number:012d}"},
    }


def riddle(number, **fields):
    return {
        "answerKey": "ABCDE"[number % 5],
        "question": f"What has {number} keys but opens no lock?",
        "choices": {
            "label": ["A", "B", "C", "D", "E"],
            "text": ["piano", "door", "map", "ring", "code"],
        },
        **fields,
    }


def riddle_release(number):
    row = riddle(number)
    choices = zip(row["choices"]["label"], row["choices"]["text"], strict=True)
    return {
        "id": f"{number:032x}",
        "answerKey": row["answerKey"],
        "question": {
            "stem": row["question"],
            "choices": [{"label": label, "text": text} for label, text in choices],
        },
    }


def medqa(number, **fields):
    return {
        "question": f"A {number}-year-old man has a cough. What is the next step?",
        "answer": ["Rest", "Aspirin", "Surgery", "X-ray"][number % 4],
        "options": {"A": "Rest", "B": "Aspirin", "C": "Surgery", "D": "X-ray"},
        "meta_info": "step2&3",
        "answer_idx": "ABCD"[number % 4],
        "metamap_phrases": ["year old man", "cough"],
        **fields,
    }


def hotpot(number, **fields):
    return {
        "id": f"5a7a0693{number:016x}",
        "question": f"Which band {{was}} founded first, Band {number} or the other one? ",
        "answer": f"Band {number}",
        "type": "comparison" if number % 2 else "bridge",
        "level": ("easy", "medium", "hard")[number % 3],
        "supporting_facts": {"title": ["A", "B"], "sent_id": [0, 2]},
        "context": {
            "title": [f"T{i}" for i in range(10)],
            "sentences": [["One. ", "Two."] for _ in range(10)],
        },
        **fields,
    }


def search_r1(number, answers=("NYC", "New York City")):
    question = f"where is place number {number}?"
    return {
        "id": f"train_{number}",
        "question": question,
        "golden_answers": list(answers),
        "data_source": "nq",
        "prompt": [{"role": "user", "content": f"Answer the given question. {question}\n"}],
        "ability": "fact-reasoning",
        "reward_model": {"ground_truth": {"target": list(answers)}, "style": "rule"},
        "extra_info": {"index": number, "split": "train"},
        "metadata": None,
    }


def packed(tests):
    """LiveCodeBench's private tests, as its authors pack them."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def livecodebench(number, functional=False, **fields):
    if functional:
        public = [{"input": "1\n2", "output": str(3 + number), "testtype": "functional"}]
        private = [{"input": "5\n-1", "output": str(4 + number), "testtype": "functional"}]
        starter = "class Solution:\n    def addUp(self, a: int, b: int) -> int:\n        "
        metadata = {"func_name": "addUp"}
    else:
        public = [{"input": "1 2\n", "output": f"{3 + number}\n", "testtype": "stdin"}]
        private = [
            {"input": f"{i} 2\n", "output": f"{i + 2 + number}\n", "testtype": "stdin"}
            for i in range(5)
        ]
        starter, metadata = "", {}
    return {
        "question_title": f"Add {number}",
        "question_content": f"Add up the two numbers, and {number}.",
        "platform": "leetcode" if functional else "atcoder",
        "question_id": f"abc{number}_a",
        "contest_id": f"abc{number}",
        "contest_date": f"2024-0{1 + number % 9}-03T00:00:00",
        "starter_code": starter,
        "difficulty": "easy",
        "public_test_cases": json.dumps(public),
        "private_test_cases": packed(private),
        "metadata": json.dumps(metadata),
        **fields,
    }


def eurus(number, ability="code", tests=None):
    tests = tests or {"inputs": ["1 2\n"], "outputs": [f"{3 + number}\n"]}
    return {
        "data_source": "taco" if ability == "code" else "numina_olympiads",
        "prompt": [
            {"role": "system", "content": "When tackling complex reasoning tasks, [ASSESS] ..."},
            {"role": "user", "content": f"Add two numbers, and {number}.{EURUS_FOOTER}"},
        ],
        "ability": ability,
        "reward_model": {"ground_truth": json.dumps(tests), "style": "rule"},
        "extra_info": {"index": number, "reference": None, "split": "dummy"},
    }


def write(path, rows):
    """A file of rows, in the form that its ending says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=1))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)
