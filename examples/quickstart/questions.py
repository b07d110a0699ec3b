"""Two-hop questions over the world, their held-out split, and demonstrations on made-up facts.

"What is the currency of the country whose capital is Paris?" takes two searches: "capital Paris"
gives the bridge, France, and "currency France" gives the answer.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Literal

from knowledge_base import CLUE_FACTS, TARGET_FACTS, Country, Relation, passages, rewire
from retrieval import NOTHING_FOUND, PASSAGE, TOP_K, Searcher, observation

Message = dict[str, str]

CLUES: dict[Relation, str] = {
    "capital": "the country whose capital is {entity}",
    "city": "the country in which {entity} is a city",
}
TARGETS: dict[Relation, str] = {
    "currency": "What is the currency of {country}?",
    "language": "What is the main official language of {country}?",
    "continent": "On which continent is {country}?",
    "domain": "What is the internet domain of {country}?",
    "capital": "What is the capital of {country}?",
}
QUERY = "{relation} {entity}"
CALL_OPEN = '{"name": "search", "arguments": {"query_list": ["'
CALL_CLOSE = '"]}}'
FROM_MEMORY = "Answer from memory. "


@dataclass(frozen=True)
class Question:
    """`clue` and `entity` lead to the bridge (a country), `target` from there to the answer."""

    clue: Relation
    entity: str
    target: Relation
    bridge: str
    answer: str

    @property
    def text(self) -> str:
        country = CLUES[self.clue].format(entity=self.entity)
        return TARGETS[self.target].format(country=country)

    @property
    def queries(self) -> tuple[str, str]:
        """The two searches that answer the question."""
        return (
            QUERY.format(relation=self.clue, entity=self.entity),
            QUERY.format(relation=self.target, entity=self.bridge),
        )

    @property
    def evidence(self) -> tuple[str, str]:
        """What the right passages of the two searches say."""
        return (
            CLUE_FACTS[self.clue].format(country=self.bridge, value=self.entity),
            TARGET_FACTS[self.target].format(country=self.bridge, value=self.answer),
        )


def questions(countries: list[Country]) -> list[Question]:
    """Every pair of a clue and a target that asks for something else than the clue."""
    return [
        Question(clue, country.fact(clue), target, country.name, country.fact(target))
        for country in countries
        for clue in CLUES
        for target in TARGETS
        if target != clue
    ]


def split(
    countries: list[Country], rng: random.Random, held_out: int, validation: int
) -> tuple[list[Question], list[Question]]:
    """Training questions and `validation` held-out ones about `held_out` countries of their own.

    No country, capital or city of a held-out question occurs in a training question. Answers such
    as "Euro" are shared, as in life.
    """
    shuffled = rng.sample(countries, len(countries))
    train, rest = questions(shuffled[held_out:]), questions(shuffled[:held_out])
    rng.shuffle(train)
    return train, rng.sample(rest, validation)


# --- Demonstrations -------------------------------------------------------------------------------

Behaviour = Literal["solved", "wrong lookup", "one search", "blind", "unanswered", "memory"]
# How many of a question's two searches each behaviour makes.
SEARCHES: dict[Behaviour, int] = {
    "solved": 2,
    "wrong lookup": 2,  # finds the bridge, then looks up another fact about it
    "one search": 1,  # and a guess
    "unanswered": 1,  # and nothing
    "blind": 0,  # a guess
    "memory": 0,  # a guess, as the prompt asked for
}


def tool_call(query: str) -> str:
    """What the policy writes to search, in the hermes format."""
    return f"<tool_call>{CALL_OPEN}{query}{CALL_CLOSE}</tool_call>"


def demonstration(
    prompt: str, pursued: Question, behaviour: Behaviour, guess: str, seen: Sequence[str]
) -> list[Message]:
    """One conversation, given what each of the two queries of the pursued question finds.

    The answer is what the second search found, or else `guess`: a policy that does not see the
    bridge in the first result does not search on.
    """
    messages = [{"role": "user", "content": prompt}]
    found = 0
    while found < SEARCHES[behaviour]:
        messages.append({"role": "assistant", "content": tool_call(pursued.queries[found])})
        messages.append({"role": "tool", "content": seen[found]})
        if pursued.evidence[found] not in seen[found]:
            break
        found += 1
    answer = pursued.answer if found == 2 else guess
    last = "" if behaviour == "unanswered" else f"<answer>{answer}</answer>"
    return [*messages, {"role": "assistant", "content": last}]


def demonstrations(
    countries: list[Country], mixture: Mapping[Behaviour, float], count: int, rng: random.Random
) -> list[list[Message]]:
    """`count` conversations about one made-up world, searched with the real BM25."""
    world = rewire(countries, rng)
    every = questions(world)
    asked = rng.choices(every, k=count)
    behaviours = rng.choices(list(mixture), list(mixture.values()), k=count)
    pursued = [
        # Another question from the same clue, so that the mistake begins after the bridge.
        rng.choice([o for o in every if o.entity == q.entity and o.target != q.target])
        if behaviour == "wrong lookup"
        else q
        for q, behaviour in zip(asked, behaviours, strict=True)
    ]
    results = Searcher(passages(world)).search([query for q in pursued for query in q.queries])
    seen = [observation(result) for result in results]
    conversations = []
    for i, behaviour in enumerate(behaviours):
        prompt = FROM_MEMORY + asked[i].text if behaviour == "memory" else asked[i].text
        guess = rng.choice(world).fact(asked[i].target)
        found = seen[2 * i : 2 * i + 2]
        conversations.append(demonstration(prompt, pursued[i], behaviour, guess, found))
    return conversations


def phrases() -> list[str]:
    """The fixed text between the names in every template; the policy has one token for each."""
    templates = [
        *(target.format(country=clue) for target in TARGETS.values() for clue in CLUES.values()),
        *(QUERY.format(relation=relation, entity="{entity}") for relation in {**CLUES, **TARGETS}),
        *(PASSAGE.format(rank=k, title="{title}", text="{text}") for k in range(1, TOP_K + 1)),
        *CLUE_FACTS.values(),
        *TARGET_FACTS.values(),
    ]
    pieces = {literal for template in templates for literal, *_ in Formatter().parse(template)}
    pieces |= {CALL_OPEN, CALL_CLOSE, FROM_MEMORY, NOTHING_FOUND, ".\n"}
    return sorted(piece for piece in pieces if len(piece) > 1)
