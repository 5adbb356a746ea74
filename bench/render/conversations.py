"""Conversations of a wanted length whose texts nobody has seen before: prose, code and other scripts."""

from __future__ import annotations

import random
import sysconfig
from pathlib import Path

__all__ = ["Conversations", "Messages"]

_ROOT = Path(__file__).resolve().parents[2]
#: Tokens of a turn.
_TURN = 180
#: Of ten paragraphs so many are prose and code; the rest is in other scripts.
_PROSE, _CODE = 6, 9
#: Bytes of code that are read.
_MOST_CODE = 4 << 20
_OTHER = (
    "Der Zug nach Köln fährt heute später, weil über Nacht ein Baum auf die Gleise fiel. ",
    "Les élèves ont étudié la leçon; où est passée la clé du cinquième étage? ",
    "El niño pequeño comió una manzana en el jardín de su abuela. ",
    "Ведущий сказал, что ответ придёт завтра утром, а письмо уже отправлено. ",
    "会议改到星期三下午三点，请把报告提前发给所有同事。",
    "次の電車は午後五時に出発しますので、早めに駅へ来てください。",
    "내일 아침 회의에는 새로운 계획서를 가지고 오세요. ",
    "سيصل القطار في الساعة الخامسة مساءً إن شاء الله. ",
    "यह पुस्तक मेज़ पर रखी थी और किसी ने उसे नहीं पढ़ा। ",
    "👍🏽 ça marche 🎉 — naïve “quotes”, 3.14 €, ½ cup… ",
)

Messages = list[dict[str, str]]


class Conversations:
    """Draws conversations: pieces of the Python library's documentation and code, from places drawn at random."""

    def __init__(self, letters_per_token: float = 4.0) -> None:
        library = Path(sysconfig.get_paths()["stdlib"])
        sources = [path for path in sorted(library.glob("*.py")) if path.stat().st_size > 10_000]
        code = "\n".join(path.read_text(encoding="utf-8", errors="ignore") for path in sources)[:_MOST_CODE]
        topics = library / "pydoc_data" / "topics.py"
        documents = sorted((_ROOT / "docs").glob("*.md"))
        prose = [path.read_text(encoding="utf-8", errors="ignore") for path in (*documents, topics) if path.is_file()]
        self._pools = ("\n".join(prose).replace("\\n", "\n").replace("'\n", "\n"), code)
        self.letters_per_token = letters_per_token

    def draw(self, tokens: int, name: str) -> Messages:
        """Return turns of about so many tokens together; another name gives another text."""
        chance = random.Random(name)
        turns = max(1, round(tokens / _TURN))
        letters = int(tokens / turns * self.letters_per_token)
        said = (self._text(letters, chance) for _ in range(turns))
        return [{"role": "assistant" if index % 2 else "user", "content": text} for index, text in enumerate(said)]

    def _text(self, letters: int, chance: random.Random) -> str:
        kind = chance.randrange(10)
        if kind >= _CODE:
            text = "".join(chance.choice(_OTHER) for _ in range(letters // 20 + 1))
            return text[: letters // 2]
        pool = self._pools[kind >= _PROSE]
        begin = chance.randrange(len(pool) - letters)
        return pool[begin : begin + letters]
