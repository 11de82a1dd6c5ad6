"""Text word by word: each word is one that follows the one before it in the corpus."""

import random
from itertools import pairwise


class Markov:
    """Answers of whole sentences, the same for the same prompt."""

    def __init__(self, corpus):
        words = corpus.split()
        self.first = [words[0]]
        self.after = {}
        for word, following in pairwise(words):
            if word.endswith("."):
                self.first.append(following)
            else:
                self.after.setdefault(word, []).append(following)

    def answer(self, prompt, most_words, *, ignore_end=False):
        """Words of an answer, with the spaces between them, and whether it came to an end.

        It ends after a sentence unless `ignore_end`.
        """
        chance = random.Random(prompt)  # noqa: S311 - no secret
        words = []
        while len(words) < most_words:
            after = self.after.get(words[-1].strip()) if words else None
            word = chance.choice(after or self.first)
            words.append(f" {word}" if words else word)
            if word.endswith(".") and not ignore_end:
                return words, True
        return words, False
