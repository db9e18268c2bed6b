"""Where a text's last words stood before: what followed them there may follow again."""

from collections.abc import Sequence

LONGEST, SHORTEST = 4, 2  # tokens that must have stood before


class NgramIndex:
    """Of one growing list of tokens, the place after the newest occurrence of each of its n-grams. Cost: a few
    microseconds a token, whatever the length (Saxena's prompt lookup, with an index)."""

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}
        self._known = 0  # tokens, of which all n-grams but those at their end are indexed

    def propose(self, tokens: Sequence[int], most: int) -> list[int]:
        """Up to so many tokens that followed when the last ones stood before, the longest match first, the newest of
        equal ones. `tokens` are those of the last call and more."""
        after, length = self._after, len(tokens)
        for end in range(max(self._known, 1), length):
            for n in range(SHORTEST, min(LONGEST, end) + 1):
                after[tuple(tokens[end - n : end])] = end
        self._known = length
        for n in range(min(LONGEST, length), SHORTEST - 1, -1):
            place = after.get(tuple(tokens[length - n :]))
            if place is not None:
                found = list(tokens[place : place + most])
                while found and len(found) < most:  # it runs into its own end: a loop, which goes on
                    found += found[: most - len(found)]
                return found
        return []
